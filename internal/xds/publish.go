package xds

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"k8s.io/utils/set"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// published is a cluster as it is served: as it was set, and its encodings. The endpoints' entry has the name under which the cluster
// subscribes to them.
type published struct {
	Cluster
	clusterEntry, endpointsEntry *entry
}

// clusterStore is what is served, by the name of the cluster. Only Set writes it.
type clusterStore struct {
	mu        sync.Mutex
	published map[string]*published
	invalid   map[string]string // why a cluster isn't served as it was set
	// digests of clusters, by namespace.
	digests map[string]uint64
	// firstRelease is when the first of the delayed removals may happen, and nextRelease when the next may; zero while none is delayed.
	firstRelease, nextRelease time.Time
}

// changes are the entries that a snapshot changes, by the name of the cluster.
type changes struct {
	clusters, endpoints map[string]*entry
	affected            set.Set[string] // clusters whose progress or rejections may differ now
}

// Set serves a snapshot from now on. One goroutine calls it, ten times a second at most: more often, Envoys would replace clusters
// faster than they warm them. New endpoints are published before the clusters that subscribe to them. It returns the clusters that are no
// longer served.
func (s *Server) Set(ctx context.Context, snapshot Snapshot) (gone []string) {
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
		if err := s.store.update(name, cluster, &c); err != nil {
			s.store.invalid[name] = err.Error() // and the last valid one is still served
		}
		if s.store.invalid[name] != before {
			c.affected.Insert(name)
		}
	}
	s.store.remove(gone)
	incomplete := slices.ContainsFunc(snapshot.Missing, func(name string) bool { return s.store.published[name] == nil && !removing.Has(name) })
	count, invalid, digests := len(s.store.published), len(s.store.invalid), maps.Clone(s.store.digests)
	s.store.mu.Unlock()

	s.endpoints.apply(c.endpoints, gone)
	s.clusters.setIncomplete(incomplete)
	s.clusters.apply(c.clusters, gone)

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
	if affected := append(c.affected.SortedList(), gone...); len(affected) > 0 || delayedChanged {
		s.notify(s.OnProgress, affected)
	}
	return gone
}

// unpublished is a cluster that isn't served yet, and noEndpoints those of one without hosts.
var unpublished, noEndpoints = &published{}, &endpointv3.ClusterLoadAssignment{}

// update stores one cluster of a snapshot. After an error it is served as before. Nothing is compared or encoded where the messages are
// those of before.
func (s *clusterStore) update(name string, cluster Cluster, c *changes) (err error) {
	before := cmp.Or(s.published[name], unpublished)
	cluster.Endpoints = cmp.Or(cluster.Endpoints, before.Endpoints, noEndpoints)
	if cluster == before.Cluster {
		return nil
	}
	next := &published{Cluster: cluster, clusterEntry: before.clusterEntry}
	service := ""
	if cluster.Message == before.Message && cluster.Namespace == before.Namespace {
		service = before.endpointsEntry.name
	} else if next.clusterEntry, service, err = encodeCluster(name, cluster.Namespace, cluster.Message); err != nil {
		return err
	}
	if cluster.Endpoints == before.Endpoints {
		next.endpointsEntry = endpointsEntry(service, cluster.Namespace, before.endpointsEntry.version, before.endpointsEntry.nameless)
	} else {
		nameless, err := encodeEndpoints(cluster.Endpoints)
		if err != nil {
			return err
		}
		next.endpointsEntry = endpointsEntry(service, cluster.Namespace, hash(nameless), nameless)
	}
	s.replace(name, before, next, c)
	return nil
}

// replace stores a cluster, and adds to the changes what differs from the cluster as it was served.
func (s *clusterStore) replace(name string, before, next *published, c *changes) {
	s.published[name] = next
	if next.clusterEntry.equal(before.clusterEntry) {
		next.clusterEntry = before.clusterEntry
	} else {
		s.updateDigests(before.clusterEntry, next.clusterEntry)
		c.clusters[name] = next.clusterEntry
		c.affected.Insert(name)
	}
	if next.endpointsEntry.equal(before.endpointsEntry) {
		next.endpointsEntry = before.endpointsEntry
	} else {
		c.endpoints[name] = next.endpointsEntry
		c.affected.Insert(name)
	}
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

// remove drops clusters.
func (s *clusterStore) remove(gone []string) {
	for _, name := range gone {
		delete(s.invalid, name)
		if p := s.published[name]; p != nil {
			s.updateDigests(p.clusterEntry, nil)
			delete(s.published, name)
		}
	}
}

// DelayedRemovals are the clusters that would be removed now if they weren't too many at a time.
func (s *Server) DelayedRemovals() DelayedRemovals {
	s.mu.Lock()
	defer s.mu.Unlock()
	return DelayedRemovals{Clusters: slices.Clone(s.delayed.Clusters), Start: s.delayed.Start}
}

// table has the resources of one type, and the watches of streams for it, which have what changed since their last response.
type table struct {
	// endpoints: the entries are endpoints, by their cluster. They are served under every NAME#HASH that a client subscribes to: an Envoy that
	// rejected the new cluster keeps the old one, and it may have its cluster from another replica. Removals aren't sent: Envoys drop
	// endpoints by themselves once no cluster subscribes to them.
	endpoints bool

	mu sync.Mutex
	// entries by the name of the cluster.
	entries map[string]*entry
	watches map[*watch]struct{}
	// incomplete: clients may have what isn't in entries and isn't known to be gone.
	incomplete bool
}

func newTable(endpoints bool) *table {
	return &table{endpoints: endpoints, entries: map[string]*entry{}, watches: map[*watch]struct{}{}}
}

func (t *table) addWatch(w *watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watches[w] = struct{}{}
}

func (t *table) removeWatch(w *watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.watches, w)
}

// setIncomplete sets incomplete. Watches that were deferred because of it get a response with the next apply.
func (t *table) setIncomplete(incomplete bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.incomplete = incomplete
}

// apply stores changed entries and removes others, and answers the open requests that they concern.
func (t *table) apply(changed map[string]*entry, gone []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	news, outdated := t.replace(changed, gone)
	for w := range t.watches {
		if t.endpoints {
			w.keepNames(outdated)
		} else {
			w.markGone(gone, outdated)
		}
		for name, e := range news {
			if w.scope.allows(e.namespace) {
				w.markChanged(name, e)
			}
		}
	}
	for w := range t.watches {
		w.replyIfChanged()
	}
}

// replace stores changed entries and removes others. It gives, by cluster, the entries that clients don't have yet, and those that aren't
// served under their names any more. Endpoints that only have another name, since their cluster changed, are no news: clients have
// them under the name before, and ask for them under the next once they have the cluster.
func (t *table) replace(changed map[string]*entry, gone []string) (news, outdated map[string]*entry) {
	news, outdated = map[string]*entry{}, map[string]*entry{}
	for _, name := range gone {
		if was := t.entries[name]; was != nil {
			outdated[name] = was
			delete(t.entries, name)
		}
	}
	for name, e := range changed {
		was := t.entries[name]
		if was != nil && was.name != e.name {
			outdated[name] = was
		}
		if was == nil || was.version != e.version || was.namespace != e.namespace {
			news[name] = e
		}
		t.entries[name] = e
	}
	return news, outdated
}

// lookup returns the entry that a watch gets under a name; nil for none. It needs mu.
func (t *table) lookup(name string, w *watch) *entry {
	key := name
	if t.endpoints {
		key = clusterOf(name)
	}
	e := t.entries[key]
	if e == nil || !w.scope.allows(e.namespace) || !w.serves(e, name) {
		return nil
	}
	return e
}
