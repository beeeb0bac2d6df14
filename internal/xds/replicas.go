package xds

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
	"k8s.io/utils/set"
)

// maxReported bounds the clusters in each list of a report, which the other replicas read every two seconds.
const maxReported = 20

// Report is what a replica writes for the others: its connected clients, and how far they are.
type Report struct {
	// Content are digests of the clusters that are served, by namespace, for the namespaces that some client may see. Two replicas of one
	// version that serve the same clusters have the same digest.
	Content map[string]string `json:"content,omitempty"`
	Clients []Clients         `json:"clients,omitempty"`
	// Rejections of clusters, by their names: one of each cluster, and of maxReported clusters at most.
	Rejections map[string][]Rejection `json:"rejections,omitempty"`
}

// Clients are the streams of one identity that subscribe to clusters.
type Clients struct {
	Identity  string `json:"identity"`
	Connected int    `json:"connected"`
	// Unacked of them haven't accepted all that is served: not the clusters in UnackedNames, or not any cluster when there are no names.
	Unacked      int      `json:"behind,omitempty"`
	UnackedNames []string `json:"open,omitempty"`
}

// Report returns this replica's, which is the same as long as nothing changed.
func (s *Server) Report() Report {
	r := Report{Content: map[string]string{}, Rejections: map[string][]Rejection{}}
	rejections := s.localRejections()
	for _, name := range slices.Sorted(maps.Keys(rejections))[:min(maxReported, len(rejections))] {
		r.Rejections[name] = rejections[name][:1]
	}
	s.mu.Lock()
	digests := s.reportedDigests // read before the clients: of newer content they may only be counted as not having it
	s.mu.Unlock()
	r.Clients = s.clusters.clients()
	for namespace, digest := range digests {
		if slices.ContainsFunc(r.Clients, func(c Clients) bool { return s.scope(c.Identity).allows(namespace) }) {
			r.Content[namespace] = strconv.FormatUint(digest, 36)
		}
	}
	return r
}

// clients are the watches of the table, by identity.
func (t *table) clients() (all []Clients) {
	t.mu.Lock()
	defer t.mu.Unlock()
	byIdentity, unacked, unknown := map[string]*Clients{}, map[string]set.Set[string]{}, map[string]bool{}
	for w := range t.watches {
		c := byIdentity[w.identity]
		if c == nil {
			c = &Clients{Identity: w.identity}
			byIdentity[w.identity], unacked[w.identity] = c, set.New[string]()
		}
		c.Connected++
		names := w.unackedNames()
		if w.allDirty || len(names) > 0 {
			c.Unacked++
		}
		if unacked[w.identity].Len() <= maxReported { // of more clusters none is named
			unacked[w.identity].Insert(names...)
		}
		unknown[w.identity] = unknown[w.identity] || w.allDirty
	}
	for _, identity := range slices.Sorted(maps.Keys(byIdentity)) {
		if names := unacked[identity]; !unknown[identity] && len(names) > 0 && len(names) <= maxReported {
			byIdentity[identity].UnackedNames = names.SortedList()
		}
		all = append(all, *byIdentity[identity])
	}
	return all
}

// unackedNames are the names of what the client hasn't accepted as it is served. It needs the table's mutex.
func (w *watch) unackedNames() (names []string) {
	names = slices.Collect(maps.Keys(w.dirty))
	for _, sent := range w.unacked {
		names = slices.AppendSeq(names, maps.Keys(sent))
	}
	return slices.AppendSeq(names, maps.Keys(w.rejections))
}

// SetOtherReports stores the other replicas' reports, and when they were read: zero while not all could be decoded. With changed, statuses
// may have to be updated.
func (s *Server) SetOtherReports(reports []Report, at time.Time, changed bool) {
	s.mu.Lock()
	s.otherReports, s.otherReportsAt = reports, at
	s.mu.Unlock()
	if changed {
		s.notify(s.OnProgress, nil)
	}
}

// OtherReportsAt is when the other replicas' reports were read last; zero while not all of them are known.
func (s *Server) OtherReportsAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.otherReportsAt
}

func (s *Server) otherReplicas() []Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.otherReports
}

// Connected counts the clients of all replicas that may see a namespace, by identity.
func (s *Server) Connected(namespace string) map[string]int {
	all := map[string]int{}
	s.clusters.mu.Lock()
	for w := range s.clusters.watches {
		if w.scope.allows(namespace) {
			all[w.identity]++
		}
	}
	s.clusters.mu.Unlock()
	for _, r := range s.otherReplicas() {
		for _, c := range r.Clients {
			if s.scope(c.Identity).allows(namespace) {
				all[c.Identity] += c.Connected
			}
		}
	}
	return all
}

// countProxies is Server.CountProxies for another replica's clients. Clusters are given with their namespaces, and content are this
// replica's digests of those. Clients of a replica that serves something else count as not having accepted it.
func (r *Report) countProxies(clusters, content map[string]string, scope func(identity string) Scope) (connected, acked int) {
	for _, c := range r.Clients {
		visible, same := false, true
		for namespace, digest := range content {
			if scope(c.Identity).allows(namespace) {
				visible, same = true, same && r.Content[namespace] == digest
			}
		}
		if !visible {
			continue
		}
		connected += c.Connected
		if !same {
			continue
		}
		acked += c.Connected
		if len(c.UnackedNames) == 0 || slices.ContainsFunc(c.UnackedNames, func(name string) bool { _, is := clusters[name]; return is }) {
			acked -= c.Unacked
		}
	}
	return connected, acked
}

// scope is what an identity that is connected to some replica may see.
func (s *Server) scope(identity string) Scope {
	if s.TLS == nil {
		return Scope{All: true}
	}
	scope, _ := s.Authorise(identity)
	return scope
}

// updateDigests replaces a cluster in the digests by what it is next; nil stands for no cluster.
func (s *clusterStore) updateDigests(old, next *entry) {
	for _, e := range []*entry{old, next} {
		if e == nil {
			continue
		}
		digest := s.digests[e.namespace] ^ xxhash.Sum64String(e.name+" "+e.version)
		if s.digests[e.namespace] = digest; digest == 0 {
			delete(s.digests, e.namespace)
		}
	}
}
