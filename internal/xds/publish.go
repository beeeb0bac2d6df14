package xds

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"k8s.io/utils/set"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// published is a cluster as it is served.
type published struct {
	cluster *clusterv3.Cluster // entry is its encoding
	entry   *entry
	// endpointsName is the name under which the cluster subscribes to endpoints; "" where it doesn't.
	endpointsName string
	// endpointsNames are all names that some Envoy may still subscribe to: an Envoy that rejected the new cluster keeps the old one and
	// its endpoints.
	endpointsNames set.Set[string]

	endpoints *endpointv3.ClusterLoadAssignment // nameless is its encoding
	nameless  []byte
	version   string // of nameless
}

// clusterStore is what is served, by the name of the cluster. Only Set writes it; streams read endpoints.
type clusterStore struct {
	mu        sync.Mutex
	published map[string]*published
	invalid   map[string]string // why a cluster isn't served as it was set
	// withOldNames are the clusters whose endpoints are served under more than one name.
	withOldNames set.Set[string]
	// digests of clusters, by namespace.
	digests map[string]uint64
	// firstRelease is when the first of the delayed removals may happen, and nextRelease when the next may; zero while none is delayed.
	firstRelease, nextRelease time.Time
}

// resolveEndpoints makes the entry for a name that an Envoy has from another replica, or from before a restart.
func (s *clusterStore) resolveEndpoints(service string, scope Scope) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.published[clusterOf(service)]
	if p == nil || p.endpointsName == "" || !scope.allows(p.entry.namespace) {
		return nil
	}
	p.endpointsNames.Insert(service)
	if len(p.endpointsNames) > 1 {
		s.withOldNames.Insert(clusterOf(service))
	}
	return endpointsEntry(service, p.entry.namespace, p.version, p.nameless)
}

// changes are the entries that a snapshot changes.
type changes struct {
	clusters, endpoints map[string]*entry
	affected            set.Set[string] // clusters whose progress or rejections may differ now
}

// Set serves a snapshot from now on. One goroutine calls it, ten times a second at most: more often, Envoys would replace clusters
// faster than they warm them. New endpoints are published before the clusters that subscribe to them, and removed after those are
// replaced.
func (s *Server) Set(ctx context.Context, snapshot Snapshot) {
	c := changes{clusters: map[string]*entry{}, endpoints: map[string]*entry{}, affected: set.New[string]()}
	s.store.mu.Lock()
	gone, delayed := s.store.removals(snapshot, s.MaxRemovalPercent, s.Clock.Now())
	removing := set.New(gone...)
	for name, cluster := range snapshot.Clusters {
		if removing.Has(name) {
			continue
		}
		before := s.store.invalid[name]
		delete(s.store.invalid, name)
		if err := s.store.update(name, cluster, snapshot, &c); err != nil {
			s.store.invalid[name] = err.Error() // and the last valid one is still served
		}
		if s.store.invalid[name] != before {
			c.affected.Insert(name)
		}
	}
	orphanedNames := s.store.remove(gone)
	incomplete := slices.ContainsFunc(snapshot.Missing, func(name string) bool { return s.store.published[name] == nil && !removing.Has(name) })
	count, invalid, digests := len(s.store.published), len(s.store.invalid), maps.Clone(s.store.digests)
	s.store.mu.Unlock()

	s.endpoints.apply(c.endpoints, nil)
	s.clusters.setIncomplete(incomplete)
	s.clusters.apply(c.clusters, gone)
	s.endpoints.apply(nil, append(orphanedNames, s.retire()...))

	s.mu.Lock()
	delayedChanged := !slices.Equal(delayed.Clusters, s.delayed.Clusters)
	s.delayed, s.reportedDigests = delayed, digests
	s.mu.Unlock()
	s.ready.Store(true)
	s.setPublishedMetric()
	resources.WithLabelValues("served").Set(float64(count))
	resources.WithLabelValues("invalid").Set(float64(invalid))
	resources.WithLabelValues("removal_delayed").Set(float64(len(delayed.Clusters)))
	if len(c.clusters)+len(c.endpoints)+len(gone) > 0 || delayedChanged {
		log.FromContext(ctx).V(1).Info("Pushed xDS", "clusters", len(c.clusters), "endpoints", len(c.endpoints), "removed", len(gone), "removalsDelayed", len(delayed.Clusters))
	}
	if len(gone) > 0 {
		s.notify(s.OnRemoved, gone)
	}
	if affected := append(c.affected.SortedList(), gone...); len(affected) > 0 || delayedChanged {
		s.notify(s.OnProgress, affected)
	}
}

// update stores one cluster of a snapshot and its endpoints. After an error the cluster is served as before.
func (s *clusterStore) update(name string, cluster *clusterv3.Cluster, snapshot Snapshot, c *changes) error {
	p, namespace := s.published[name], snapshot.Owners[name].Namespace
	if p != nil && p.sameMessages(cluster, snapshot.Endpoints[name], namespace) {
		return nil
	}
	next := published{}
	if p != nil {
		next = *p
	} else {
		next.endpointsNames = set.New[string]()
	}
	if p == nil || p.cluster != cluster || p.entry.namespace != namespace {
		e, service, err := encodeCluster(name, namespace, cluster)
		if err != nil {
			return err
		}
		if p == nil || !e.equal(p.entry) {
			next.entry, next.endpointsName = e, service
		}
		next.cluster = cluster
	}
	if err := next.setEndpoints(snapshot.Endpoints[name]); err != nil {
		return err
	}
	s.replace(name, p, &next, c)
	return nil
}

// sameMessages says whether the messages are those of before: so nothing is compared or encoded for the clusters that didn't change.
func (p *published) sameMessages(cluster *clusterv3.Cluster, endpoints *endpointv3.ClusterLoadAssignment, namespace string) bool {
	return p.cluster == cluster && (endpoints == nil || p.endpoints == endpoints) && p.entry.namespace == namespace
}

// setEndpoints sets the endpoints; nil leaves them as they are.
func (p *published) setEndpoints(endpoints *endpointv3.ClusterLoadAssignment) error {
	if endpoints == nil && p.endpoints == nil {
		endpoints = &endpointv3.ClusterLoadAssignment{}
	}
	if endpoints == nil || endpoints == p.endpoints {
		return nil
	}
	nameless, err := encodeEndpoints(endpoints)
	if err != nil {
		return err
	}
	if version := hash(nameless); version != p.version {
		p.nameless, p.version = nameless, version
	}
	p.endpoints = endpoints
	return nil
}

// replace stores a cluster, and adds to the changes what differs from the cluster as it was served (nil: not at all).
func (s *clusterStore) replace(name string, old, next *published, c *changes) {
	s.published[name] = next
	if next.endpointsName != "" {
		next.endpointsNames.Insert(next.endpointsName)
	}
	if len(next.endpointsNames) > 1 {
		s.withOldNames.Insert(name)
	}
	clusterChanged := old == nil || old.entry != next.entry
	if clusterChanged {
		s.updateDigests(old, next)
		c.clusters[name] = next.entry
		c.affected.Insert(name)
	}
	if old != nil && !clusterChanged && old.version == next.version {
		return
	}
	for service := range next.endpointsNames {
		if old == nil || old.version != next.version || service == next.endpointsName {
			c.endpoints[service] = endpointsEntry(service, next.entry.namespace, next.version, next.nameless)
		}
	}
	c.affected.Insert(name)
}

// removals are the clusters that are confirmed to be gone and may be removed now. If they are more than maxPercent of all, they are
// delayed, and later removed a share at a time.
func (s *clusterStore) removals(snapshot Snapshot, maxPercent int, now time.Time) (gone []string, delayed DelayedRemovals) {
	gone = slices.Compact(slices.Sorted(slices.Values(snapshot.Gone)))
	// Clusters that only clients have count too: they were served before a restart.
	total := len(s.published)
	for _, name := range gone {
		if s.published[name] == nil {
			total++
		}
	}
	allowed := max(1, total*maxPercent/100)
	switch {
	case len(gone) <= allowed:
		s.firstRelease, s.nextRelease = time.Time{}, time.Time{}
		return gone, DelayedRemovals{}
	case s.nextRelease.IsZero():
		s.firstRelease = now.Add(removalDelay)
		s.nextRelease = s.firstRelease
	case !now.Before(s.nextRelease):
		s.nextRelease = now.Add(removalInterval)
		return gone[:allowed], DelayedRemovals{Clusters: gone[allowed:], Start: s.firstRelease}
	}
	return nil, DelayedRemovals{Clusters: gone, Start: s.firstRelease}
}

// remove drops clusters, and returns the names of their endpoints.
func (s *clusterStore) remove(gone []string) []string {
	var services []string
	for _, name := range gone {
		delete(s.invalid, name)
		if p := s.published[name]; p != nil {
			services = append(services, p.endpointsNames.UnsortedList()...)
			s.updateDigests(p, nil)
			delete(s.published, name)
		}
	}
	return services
}

// retire drops names of endpoints of replaced clusters once no stream subscribes to them.
func (s *Server) retire() []string {
	s.store.mu.Lock()
	var old []string
	for name := range s.store.withOldNames {
		p := s.store.published[name]
		if p == nil || len(p.endpointsNames) < 2 {
			s.store.withOldNames.Delete(name)
			continue
		}
		for service := range p.endpointsNames {
			if service != p.endpointsName {
				old = append(old, service)
			}
		}
	}
	s.store.mu.Unlock()
	// Not under the store's lock: streams take it while they have the table's.
	old = slices.DeleteFunc(old, s.endpoints.subscribed)
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for _, service := range old {
		s.store.published[clusterOf(service)].endpointsNames.Delete(service)
	}
	return old
}

// DelayedRemovals are the clusters that would be removed now if they weren't too many at a time.
func (s *Server) DelayedRemovals() DelayedRemovals {
	s.mu.Lock()
	defer s.mu.Unlock()
	return DelayedRemovals{Clusters: slices.Clone(s.delayed.Clusters), Start: s.delayed.Start}
}
