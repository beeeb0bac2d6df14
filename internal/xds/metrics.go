package xds

import (
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/resourcestack/autohealer/internal/metric"
)

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
