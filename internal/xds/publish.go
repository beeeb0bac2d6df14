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
	service string
	// endpointsNames are all names that some Envoy may still subscribe to: an Envoy that rejected the new cluster keeps the old one and
	// its endpoints.
	services set.Set[string]

	endpoints *endpointv3.ClusterLoadAssignment // nameless is its encoding
	nameless  []byte
	version   string // of nameless
}

// clusterStore is what is served, by the name of the cluster. Only Set writes it; streams read endpoints.
type book struct {
	mu        sync.Mutex
	published map[string]*published
	invalid   map[string]string // why a cluster isn't served as it was set
	// withOldNames are the clusters whose endpoints are served under more than one name.
	several set.Set[string]
	// digests of clusters, by namespace.
	digests map[string]uint64
	// firstRelease is when the first of the delayed removals may happen, and nextRelease when the next may; zero while none is delayed.
	since, release time.Time
}

// resolveEndpoints makes the entry for a name that an Envoy has from another replica, or from before a restart.
func (b *book) endpoints(service string, scope Scope) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.published[clusterOf(service)]
	if p == nil || p.service == "" || !scope.allows(p.entry.namespace) {
		return nil
	}
	p.services.Insert(service)
	if len(p.services) > 1 {
		b.several.Insert(clusterOf(service))
	}
	return endpointsEntry(service, p.entry.namespace, p.version, p.nameless)
}

// changes are the entries that a snapshot changes.
type changes struct {
	clusters, endpoints map[string]*entry
	touched             set.Set[string] // clusters whose progress or rejections may differ now
}

// Set serves a snapshot from now on. One goroutine calls it, ten times a second at most: more often, Envoys would replace clusters
// faster than they warm them. New endpoints are published before the clusters that subscribe to them, and removed after those are
// replaced.
func (s *Server) Set(ctx context.Context, snapshot Snapshot) {
	c := changes{clusters: map[string]*entry{}, endpoints: map[string]*entry{}, touched: set.New[string]()}
	s.book.mu.Lock()
	gone, held := s.book.goners(snapshot, s.MaxRemovalPercent, s.Clock.Now())
	going := set.New(gone...)
	for name, cluster := range snapshot.Clusters {
		if going.Has(name) {
			continue
		}
		before := s.book.invalid[name]
		delete(s.book.invalid, name)
		if err := s.book.update(name, cluster, snapshot, &c); err != nil {
			s.book.invalid[name] = err.Error() // and the last valid one is still served
		}
		if s.book.invalid[name] != before {
			c.touched.Insert(name)
		}
	}
	orphans := s.book.remove(gone)
	partial := slices.ContainsFunc(snapshot.Missing, func(name string) bool { return s.book.published[name] == nil && !going.Has(name) })
	count, invalid, digests := len(s.book.published), len(s.book.invalid), maps.Clone(s.book.digests)
	s.book.mu.Unlock()

	s.endpoints.apply(c.endpoints, nil)
	s.clusters.lack(partial)
	s.clusters.apply(c.clusters, gone)
	s.endpoints.apply(nil, append(orphans, s.retire()...))

	s.mu.Lock()
	news := !slices.Equal(held.Clusters, s.held.Clusters)
	s.held, s.announced = held, digests
	s.mu.Unlock()
	s.ready.Store(true)
	s.countPublished()
	resources.WithLabelValues("served").Set(float64(count))
	resources.WithLabelValues("invalid").Set(float64(invalid))
	resources.WithLabelValues("removal_delayed").Set(float64(len(held.Clusters)))
	if len(c.clusters)+len(c.endpoints)+len(gone) > 0 || news {
		log.FromContext(ctx).V(1).Info("Pushed xDS", "clusters", len(c.clusters), "endpoints", len(c.endpoints), "removed", len(gone), "removalsDelayed", len(held.Clusters))
	}
	if len(gone) > 0 {
		s.report(s.Removed, gone)
	}
	if touched := append(c.touched.SortedList(), gone...); len(touched) > 0 || news {
		s.report(s.Progressed, touched)
	}
}

// update stores one cluster of a snapshot and its endpoints. After an error the cluster is served as before.
func (b *book) update(name string, cluster *clusterv3.Cluster, snapshot Snapshot, c *changes) error {
	p, namespace := b.published[name], snapshot.Owners[name].Namespace
	if p != nil && p.same(cluster, snapshot.Endpoints[name], namespace) {
		return nil
	}
	next := published{}
	if p != nil {
		next = *p
	} else {
		next.services = set.New[string]()
	}
	if p == nil || p.cluster != cluster || p.entry.namespace != namespace {
		e, service, err := encodeCluster(name, namespace, cluster)
		if err != nil {
			return err
		}
		if p == nil || !e.same(p.entry) {
			next.entry, next.service = e, service
		}
		next.cluster = cluster
	}
	if err := next.take(snapshot.Endpoints[name]); err != nil {
		return err
	}
	b.replace(name, p, &next, c)
	return nil
}

// sameMessages says whether the messages are those of before: so nothing is compared or encoded for the clusters that didn't change.
func (p *published) same(cluster *clusterv3.Cluster, endpoints *endpointv3.ClusterLoadAssignment, namespace string) bool {
	return p.cluster == cluster && (endpoints == nil || p.endpoints == endpoints) && p.entry.namespace == namespace
}

// setEndpoints sets the endpoints; nil leaves them as they are.
func (p *published) take(endpoints *endpointv3.ClusterLoadAssignment) error {
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
func (b *book) replace(name string, old, next *published, c *changes) {
	b.published[name] = next
	if next.service != "" {
		next.services.Insert(next.service)
	}
	if len(next.services) > 1 {
		b.several.Insert(name)
	}
	clusterChanged := old == nil || old.entry != next.entry
	if clusterChanged {
		b.count(old, next)
		c.clusters[name] = next.entry
		c.touched.Insert(name)
	}
	if old != nil && !clusterChanged && old.version == next.version {
		return
	}
	for service := range next.services {
		if old == nil || old.version != next.version || service == next.service {
			c.endpoints[service] = endpointsEntry(service, next.entry.namespace, next.version, next.nameless)
		}
	}
	c.touched.Insert(name)
}

// removals are the clusters that are confirmed to be gone and may be removed now. If they are more than maxPercent of all, they are
// delayed, and later removed a share at a time.
func (b *book) goners(snapshot Snapshot, maxPercent int, now time.Time) (gone []string, held Held) {
	gone = slices.Compact(slices.Sorted(slices.Values(snapshot.Gone)))
	// Clusters that only clients have count too: they were served before a restart.
	all := len(b.published)
	for _, name := range gone {
		if b.published[name] == nil {
			all++
		}
	}
	allowed := max(1, all*maxPercent/100)
	switch {
	case len(gone) <= allowed:
		b.since, b.release = time.Time{}, time.Time{}
		return gone, Held{}
	case b.release.IsZero():
		b.since = now.Add(holdRemovals)
		b.release = b.since
	case !now.Before(b.release):
		b.release = now.Add(releaseEvery)
		return gone[:allowed], Held{Clusters: gone[allowed:], Since: b.since}
	}
	return nil, Held{Clusters: gone, Since: b.since}
}

// remove drops clusters, and returns the names of their endpoints.
func (b *book) remove(gone []string) []string {
	var services []string
	for _, name := range gone {
		delete(b.invalid, name)
		if p := b.published[name]; p != nil {
			services = append(services, p.services.UnsortedList()...)
			b.count(p, nil)
			delete(b.published, name)
		}
	}
	return services
}

// retire drops names of endpoints of replaced clusters once no stream subscribes to them.
func (s *Server) retire() []string {
	s.book.mu.Lock()
	var old []string
	for name := range s.book.several {
		p := s.book.published[name]
		if p == nil || len(p.services) < 2 {
			s.book.several.Delete(name)
			continue
		}
		for service := range p.services {
			if service != p.service {
				old = append(old, service)
			}
		}
	}
	s.book.mu.Unlock()
	// Not under the store's lock: streams take it while they have the table's.
	old = slices.DeleteFunc(old, s.endpoints.subscribed)
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	for _, service := range old {
		s.book.published[clusterOf(service)].services.Delete(service)
	}
	return old
}

// DelayedRemovals are the clusters that would be removed now if they weren't too many at a time.
func (s *Server) RemovalHeld() Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Held{Clusters: slices.Clone(s.held.Clusters), Since: s.held.Since}
}
