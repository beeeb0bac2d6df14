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
const maxNamed = 20

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
	Behind int      `json:"behind,omitempty"`
	Open   []string `json:"open,omitempty"`
}

// Report returns this replica's, which is the same as long as nothing changed.
func (s *Server) Report() Report {
	r := Report{Content: map[string]string{}, Rejections: map[string][]Rejection{}}
	rejections := s.rejectedHere()
	for _, name := range slices.Sorted(maps.Keys(rejections))[:min(maxNamed, len(rejections))] {
		r.Rejections[name] = rejections[name][:1]
	}
	s.mu.Lock()
	digests := s.announced // read before the clients: of newer content they may only be counted as not having it
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
	by, open, anything := map[string]*Clients{}, map[string]set.Set[string]{}, map[string]bool{}
	for f := range t.feeds {
		c := by[f.identity]
		if c == nil {
			c = &Clients{Identity: f.identity}
			by[f.identity], open[f.identity] = c, set.New[string]()
		}
		c.Connected++
		names := f.open()
		if f.full || len(names) > 0 {
			c.Behind++
		}
		if open[f.identity].Len() <= maxNamed { // of more clusters none is named
			open[f.identity].Insert(names...)
		}
		anything[f.identity] = anything[f.identity] || f.full
	}
	for _, identity := range slices.Sorted(maps.Keys(by)) {
		if names := open[identity]; !anything[identity] && len(names) > 0 && len(names) <= maxNamed {
			by[identity].Open = names.SortedList()
		}
		all = append(all, *by[identity])
	}
	return all
}

// unackedNames are the names of what the client hasn't accepted as it is served. It needs the table's mutex.
func (f *feed) open() (names []string) {
	names = slices.Collect(maps.Keys(f.dirty))
	for _, sent := range f.sent {
		names = slices.AppendSeq(names, maps.Keys(sent))
	}
	return slices.AppendSeq(names, maps.Keys(f.rejected))
}

// SetOtherReports stores the other replicas' reports, and when they were read: zero while not all could be decoded. With changed, statuses
// may have to be updated.
func (s *Server) Learn(others []Report, at time.Time, news bool) {
	s.mu.Lock()
	s.others, s.learnedAt = others, at
	s.mu.Unlock()
	if news {
		s.report(s.Progressed, nil)
	}
}

// OtherReportsAt is when the other replicas' reports were read last; zero while not all of them are known.
func (s *Server) LearnedAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.learnedAt
}

func (s *Server) learned() []Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.others
}

// Connected counts the clients of all replicas that may see a namespace, by identity.
func (s *Server) Connected(namespace string) map[string]int {
	all := map[string]int{}
	s.clusters.mu.Lock()
	for f := range s.clusters.feeds {
		if f.scope.allows(namespace) {
			all[f.identity]++
		}
	}
	s.clusters.mu.Unlock()
	for _, r := range s.learned() {
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
func (r *Report) together(clusters, content map[string]string, scope func(identity string) Scope) (connected, acked int) {
	for _, c := range r.Clients {
		sees, same := false, true
		for namespace, digest := range content {
			if scope(c.Identity).allows(namespace) {
				sees, same = true, same && r.Content[namespace] == digest
			}
		}
		if !sees {
			continue
		}
		connected += c.Connected
		if !same {
			continue
		}
		acked += c.Connected
		if len(c.Open) == 0 || slices.ContainsFunc(c.Open, func(name string) bool { _, is := clusters[name]; return is }) {
			acked -= c.Behind
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
func (b *book) count(old, next *published) {
	for _, p := range []*published{old, next} {
		if p == nil {
			continue
		}
		digest := b.digests[p.entry.namespace] ^ xxhash.Sum64String(p.entry.name+" "+p.entry.version)
		if b.digests[p.entry.namespace] = digest; digest == 0 {
			delete(b.digests, p.entry.namespace)
		}
	}
}
