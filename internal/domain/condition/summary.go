package condition

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Summary is the present state of one set over all nodes.
type Summary struct {
	Selected, Matching, Tainted, HeldBack, Stale int
	// Samples are up to SampleSize nodes that match or are tainted, sorted.
	Samples []string
	// Holds counts the held-back nodes by reason, with one message each.
	Holds   map[Reason]HoldCount
	Breaker *OpenBreaker
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
	if s.breaker != nil {
		open := *s.breaker
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
	both := names{}
	maps.Copy(both, s.matching)
	maps.Copy(both, s.tainted)
	sum.Samples = sample(both, SampleSize)
	for _, n := range f.nodes {
		if !n.Deleting && s.Match(n.Node, at).Phase == Doubtful {
			sum.Stale++
		}
	}
	return sum, true
}

// sample gives the first names in order; the same ones as long as the set is the same.
func sample(of names, size int) []string {
	sorted := of.sorted()
	return sorted[:min(len(sorted), size)]
}

// TaintedNodes counts all nodes with taints of ours that keep pods away or evict, for metrics.
func (f *Fleet) TaintedNodes() (repelling, evicting, of int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.counts.cluster.repelling, f.counts.cluster.evicting, f.counts.cluster.counted
}

// Nodes are the names of all known nodes.
func (f *Fleet) Nodes() []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Sorted(maps.Keys(f.nodes))
}
