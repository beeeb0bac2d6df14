package condition

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// Summary is the present state of one set over all nodes.
type Summary struct {
	Selected, Matching, HeldBack, Doubtful int
	// Tainted nodes carry a taint by the set; one that somebody else took away isn't counted.
	Tainted int
	// Unreadable are nodes with a taint of the set's key and a record that can't be read, so that nobody knows whose it is.
	Unreadable []string
	// Samples are up to sample.Size nodes that match or are tainted, sorted.
	Samples []string
	// Holds counts the held-back nodes by reason, with one message each.
	Holds   map[Reason]HoldCount
	Breaker *limit.Opening
	// DeletedMatching nodes were deleted while they matched, and count for the breaker still.
	DeletedMatching int
}

// HoldCount is how many nodes one reason holds back.
type HoldCount struct {
	Nodes   int
	Message string
}

// Summary describes a set; ok is false when it isn't known.
func (f *Fleet) Summary(uid types.UID, at timing.Moment) (sum Summary, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.sets[uid]
	if s == nil {
		return Summary{}, false
	}
	selected := f.index.selected(s.Set)
	matching, claimed := f.index.matching(s.Set, selected), f.claimed(s)
	sum = Summary{Selected: selected.count(), Matching: matching.count(), Unreadable: f.unreadableOf(s), Holds: map[Reason]HoldCount{}}
	for _, n := range f.index.nodes(claimed) {
		if n.hasTaintOf(s) {
			sum.Tainted++
		}
	}
	if open, ok := s.breaker.Opening(); ok {
		sum.Breaker = &open
	}
	f.countHolds(s, &sum)
	sum.Doubtful, sum.DeletedMatching = f.doubtful(s, claimed, at), f.countDeletedMatching(s, at.Now)
	matching.union(claimed)
	sum.Samples = f.index.sampleNames(matching)
	return sum, true
}

// countHolds counts a node by its first hold of the set; the message of a reason is that of its first node.
func (f *Fleet) countHolds(s *setState, sum *Summary) {
	first := map[Reason]string{}
	for n := range f.held {
		i := slices.IndexFunc(n.holds, func(h Hold) bool { return h.Set == s.UID })
		if i < 0 {
			continue
		}
		h := n.holds[i]
		count := sum.Holds[h.Reason]
		if count.Nodes++; first[h.Reason] == "" || n.Name < first[h.Reason] {
			first[h.Reason], count.Message = n.Name, h.Message
		}
		sum.Holds[h.Reason] = count
		sum.HeldBack++
	}
}

// doubtful counts the nodes of which Match would give Doubtful. Of a node without a taint of the set that doesn't report a member there
// is nothing to doubt: the set isn't about what runs no such reporter.
func (f *Fleet) doubtful(s *setState, claimed *nodeSet, at timing.Moment) (nodes int) {
	candidates := f.index.with(traitPresent).copy()
	for _, m := range s.Members {
		candidates.intersect(f.index.with(reports(m.Type)))
	}
	candidates.union(claimed)
	for _, n := range f.index.nodes(candidates) {
		if !n.Deleting && s.doubtful(n.Node, at) {
			nodes++
		}
	}
	return nodes
}

// nameSample are the first sample.Size of the names added, in order, each once: the same ones whatever order they come in.
type nameSample struct{ names []string }

func (f *nameSample) add(name string) {
	if len(f.names) == sample.Size && name > f.names[sample.Size-1] { // most of many
		return
	}
	i, there := slices.BinarySearch(f.names, name)
	if there || i == sample.Size {
		return
	}
	if len(f.names) == sample.Size {
		f.names = f.names[:sample.Size-1]
	}
	f.names = slices.Insert(f.names, i, name)
}

// Orphan is a claim of a set that doesn't exist, on a key that no set declares: it is unknown whether the taint is ours, so it
// stays, and counts under the limits, until a human removes it.
type Orphan struct {
	Node string
	OwnedTaint
}

// Orphans are all of them whose taint is there, by node.
func (f *Fleet) Orphans() (orphans []Orphan) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		n := f.nodes[name]
		for _, t := range n.Owned.Taints {
			if f.sets[t.Set] == nil && !f.declared[t.Key] && !ecosystem.NeverOurs(t.Key) && n.hasTaint(t.Key, n.Owned.Effect(t.Key)) {
				orphans = append(orphans, Orphan{name, t})
			}
		}
	}
	return orphans
}

// Usage is how much of the cluster-wide limits is used.
type Usage struct {
	// Tainted nodes have a taint of ours that keeps pods away; Evicting ones one that evicts.
	Tainted, Evicting int
	// Total is what percentages are of; Unavailable nodes aren't among them.
	Total, Unavailable int
}

// Usage counts all nodes.
func (f *Fleet) Usage() Usage {
	f.mu.RLock()
	defer f.mu.RUnlock()
	all := f.counts.cluster
	return Usage{all.repelling, all.evicting, all.counted, all.unavailable}
}

// Nodes are the names of all known nodes.
func (f *Fleet) Nodes() []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Sorted(maps.Keys(f.nodes))
}

// Recorded counts the nodes whose record, or a write in flight, still names the set, or may name it: it can't be read, and the node has
// a taint of the set's key. It names some.
func (f *Fleet) Recorded(uid types.UID) (nodes int, some []string) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.sets[uid]
	if s == nil {
		return 0, nil
	}
	all := append(f.index.names(f.recorded(s)), f.unreadableOf(s)...)
	return len(all), all[:min(len(all), 5)]
}

// Undone says whether the set is known to be withdrawn and nothing of it is left.
func (f *Fleet) Undone(uid types.UID) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.sets[uid]
	return s != nil && s.state.IsWithdrawn() && f.recorded(s).empty() && len(f.unreadableOf(s)) == 0
}

// unreadableOf are the nodes that carry a taint of a key that the set declared, and whose record can't be read.
func (f *Fleet) unreadableOf(s *setState) (nodes []string) {
	for _, n := range f.index.nodes(f.index.with(traitUnreadable)) {
		if slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return slices.Contains(s.KeysDeclared, t.Key) }) {
			nodes = append(nodes, n.Name)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// hasTaintOf says whether a taint that the set claims is on the node, or in flight to it.
func (n *nodeState) hasTaintOf(s *setState) bool {
	on := func(o Ownership, taints []corev1.Taint) bool {
		return slices.ContainsFunc(taints, func(t corev1.Taint) bool {
			return o.Owns(t) && slices.ContainsFunc(o.Taints, func(c OwnedTaint) bool { return c.Key == t.Key && (c.Set == s.UID || c.Name == s.Name) })
		})
	}
	return on(n.Owned, n.Taints) || n.inFlight != nil && on(n.inFlight.owned, n.inFlight.taints)
}

// Evicting says whether a taint of ours evicts from the node, or is about to.
func (f *Fleet) Evicting(node string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := f.nodes[node]
	return n != nil && n.usage.evicts
}

// UsesLease says whether some set reads a condition that carries no heartbeat.
func (f *Fleet) UsesLease() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, s := range f.sets {
		if slices.ContainsFunc(s.Members, func(m Member) bool { return m.noHeartbeat }) {
			return true
		}
	}
	return false
}
