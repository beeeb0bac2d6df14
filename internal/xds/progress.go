package xds

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/resourcestack/autohealer/internal/metric"
)

// Rejections are the NACKs in force of clusters and their endpoints, by proxies of all replicas, and the errors of clusters that aren't
// served as set since they are invalid, by the name of the cluster. Clusters without any cost nothing.
func (s *Server) Rejections() map[string][]Rejection {
	all := s.localRejections()
	for _, r := range s.otherReplicas() {
		for name, rejected := range r.Rejections {
			all[name] = append(all[name], rejected...)
		}
	}
	return sortRejections(all)
}

// localRejections are those of the proxies that are connected to this replica, and of invalid clusters.
func (s *Server) localRejections() map[string][]Rejection {
	clusters, endpoints := s.clusters.rejections(), s.endpoints.rejections()
	all := map[string][]Rejection{}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for name, message := range s.store.invalid {
		all[name] = append(all[name], Rejection{Message: message})
	}
	for name, rejected := range clusters {
		if s.store.published[name] != nil {
			all[name] = append(all[name], rejected...)
		}
	}
	for service, rejected := range endpoints {
		if name := clusterOf(service); s.store.published[name] != nil {
			all[name] = append(all[name], rejected...)
		}
	}
	return sortRejections(all)
}

// sortRejections sorts the rejections of each cluster and drops duplicates.
func sortRejections(all map[string][]Rejection) map[string][]Rejection {
	for name, rejected := range all {
		slices.SortFunc(rejected, func(a, b Rejection) int {
			return cmp.Or(cmp.Compare(a.Proxy, b.Proxy), cmp.Compare(a.Message, b.Message))
		})
		all[name] = slices.Compact(rejected)
	}
	return all
}

// CountProxies counts the proxies, connected to any replica, that may see any of these clusters, and those of them that have accepted all
// that they may see. Which of the clusters a proxy may see differs from proxy to proxy.
func (s *Server) CountProxies(clusters []string) (connected, acked int) {
	others := s.otherReplicas()
	namespaces, content := make(map[string]string, len(clusters)), map[string]string{}
	s.store.mu.Lock()
	for _, name := range clusters {
		if p := s.store.published[name]; p != nil {
			namespaces[name] = p.clusterEntry.namespace
			if len(others) > 0 {
				content[p.clusterEntry.namespace] = strconv.FormatUint(s.store.digests[p.clusterEntry.namespace], 36)
			}
		}
	}
	s.store.mu.Unlock()
	for _, r := range others {
		c, a := r.countProxies(namespaces, content, s.scope)
		connected, acked = connected+c, acked+a
	}
	s.clusters.mu.Lock()
	defer s.clusters.mu.Unlock()
	for w := range s.clusters.watches {
		visible, complete := w.ackState(namespaces)
		if visible {
			connected++
		}
		if visible && complete {
			acked++
		}
	}
	return connected, acked
}

// rejections are those of all watches, by name.
func (t *table) rejections() map[string][]Rejection {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string][]Rejection{}
	for w := range t.watches {
		for name, message := range w.rejections {
			all[name] = append(all[name], Rejection{Proxy: w.identity, Message: message})
		}
	}
	return all
}

// setRejectedMetric sets how many resources are rejected, each stream counted by itself.
func (s *Server) setRejectedMetric() {
	for label, t := range map[string]*table{"cluster": s.clusters, "endpoints": s.endpoints} {
		n := 0
		for _, rejected := range t.rejections() {
			n += len(rejected)
		}
		rejectedNow.WithLabelValues(label).Set(float64(n))
	}
}

// setPublishedMetric sets when a snapshot was published last.
func (s *Server) setPublishedMetric() {
	publishedAt.Set(float64(s.Clock.Now().UnixMilli()) / 1000)
}

// setUnackedMetric sets for how long a response has been unacknowledged.
func (s *Server) setUnackedMetric() {
	unacknowledgedFor.Set(s.longestUnacked(s.Clock.Now()).Seconds())
}

// longestUnacked is the age of the oldest response that a client hasn't acknowledged; 0 when there is none.
func (s *Server) longestUnacked(now time.Time) (longest time.Duration) {
	for _, t := range []*table{s.clusters, s.endpoints, s.unserved} {
		longest = max(longest, t.longestUnacked(now))
	}
	return longest
}

func (t *table) longestUnacked(now time.Time) (longest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.watches {
		if !w.unackedSince.IsZero() {
			longest = max(longest, now.Sub(w.unackedSince))
		}
	}
	return longest
}

// Labels are bounded: protocols, types and reasons, never clusters or clients.
var (
	streams = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_xds_streams",
		Help: "Open xDS streams, by protocol (delta, sotw).",
	}, []string{"protocol"})
	refusedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_xds_refused_streams_total",
		Help: "Refused xDS streams, by reason (not_ready, identity, installation_conflict, too_many_types).",
	}, []string{"reason"})
	resources = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_xds_clusters",
		Help: "Clusters, by state: served, not served as they should be (invalid), or kept though they are gone (removal_delayed).",
	}, []string{"state"})
	publishedAt = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "autohealer_xds_published_timestamp_seconds",
		Help: "When the served snapshot was last published, changed or not; at first when the server was made. In Unix seconds.",
	})
	unacknowledgedFor = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "autohealer_xds_longest_unacknowledged_seconds",
		Help: "For how long a connected Envoy has neither accepted nor rejected what it was sent, of the Envoy for which that is longest; 0 when none is behind.",
	})
	sentTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_xds_sent_resources_total",
		Help: "Resources sent to Envoys, by type (cluster, endpoints, other).",
	}, []string{"type"})
	removedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_xds_removed_resources_total",
		Help: "Removals of resources sent to Envoys, by type (cluster, endpoints, other).",
	}, []string{"type"})
	rejectedNow = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_xds_rejected_resources",
		Help: "Resources that connected Envoys refuse now, each Envoy's for itself, by type (cluster, endpoints).",
	}, []string{"type"})
	answersTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_xds_answers_total",
		Help: "Answers of Envoys to what they were sent, by type (cluster, endpoints, other) and result (accepted, rejected).",
	}, []string{"type", "result"})
)

func registerMetrics() error {
	return metric.Register(streams, refusedTotal, resources, publishedAt, unacknowledgedFor, sentTotal, removedTotal, rejectedNow, answersTotal)
}

func typeLabel(typeURL string) string {
	switch typeURL {
	case resource.ClusterType:
		return "cluster"
	case resource.EndpointType:
		return "endpoints"
	}
	return "other"
}
