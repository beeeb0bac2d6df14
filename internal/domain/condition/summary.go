package condition

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Summary is the present state of one set over all nodes.
type Summary struct {
	Selected, Matching, Tainted, HeldBack, Doubtful int
	// Samples are up to sample.Size nodes that match or are tainted, sorted.
	Samples []string
	// Holds counts the held-back nodes by reason, with one message each.
	Holds   map[Reason]HoldCount
	Breaker *limit.Opening
}

// HoldCount is how many nodes one reason holds back.
type HoldCount struct {
	Nodes   int
	Message string
}

// Summary describes a set; ok is false when it isn't known.
func (f *Fleet) Summary(uid types.UID, at Moment) (sum Summary, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.sets[uid]
	if s == nil {
		return Summary{}, false
	}
	sum = Summary{Selected: s.selected, Matching: len(s.matching), Tainted: len(s.tainted), HeldBack: len(s.held), Holds: map[Reason]HoldCount{}}
	if open, ok := s.breaker.Opening(); ok {
		sum.Breaker = &open
	}
	for _, name := range slices.Sorted(maps.Keys(s.held)) {
		h := s.held[name]
		count := sum.Holds[h.Reason]
		count.Nodes++
		if count.Message == "" {
			count.Message = h.Message
		}
		sum.Holds[h.Reason] = count
	}
	var first firstNames
	for name := range s.matching {
		first.add(name)
	}
	for name := range s.tainted {
		first.add(name)
	}
	sum.Samples = first.names
	for _, n := range f.nodes {
		if _, tainted := s.tainted[n.Name]; !n.Deleting && s.doubtful(n.Node, tainted, at) {
			sum.Doubtful++
		}
	}
	return sum, true
}

// firstNames are the first sample.Size of the names added, in order, each once: the same ones whatever order they come in.
type firstNames struct{ names []string }

func (f *firstNames) add(name string) {
	i, there := slices.BinarySearch(f.names, name)
	if there || i == sample.Size {
		return
	}
	if len(f.names) == sample.Size {
		f.names = f.names[:sample.Size-1]
	}
	f.names = slices.Insert(f.names, i, name)
}

// Usage is how much of the cluster-wide limits is used.
type Usage struct {
	// Tainted nodes have a taint of ours that keeps pods away; Evicting ones one that evicts.
	Tainted, Evicting int
	// Of is what percentages are of; Unavailable nodes aren't among them.
	Of, Unavailable int
}

// Usage counts all nodes.
func (f *Fleet) Usage() Usage {
	f.mu.RLock()
	defer f.mu.RUnlock()
	all := f.counts.cluster
	return Usage{all.repelling, all.evicting, all.counted, all.away}
}

// Nodes are the names of all known nodes.
func (f *Fleet) Nodes() []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Sorted(maps.Keys(f.nodes))
}

// Recorded counts the nodes whose record, or a write in flight, still names the set, and names some.
func (f *Fleet) Recorded(uid types.UID) (nodes int, some []string) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.sets[uid]
	if s == nil {
		return 0, nil
	}
	all := s.recorded.sorted()
	return len(all), all[:min(len(all), 5)]
}

// Undone says whether the set is known to be withdrawn and nothing of it is left.
func (f *Fleet) Undone(uid types.UID) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.sets[uid]
	return s != nil && s.state.IsWithdrawn() && len(s.recorded) == 0
}

// Evicting says whether a taint of ours evicts from the node, or is about to.
func (f *Fleet) Evicting(node string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := f.nodes[node]
	return n != nil && n.print.evicts
}

// UsesLease says whether some set reads a condition that carries no heartbeat.
func (f *Fleet) UsesLease() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.setsBy.byLease) > 0
}
