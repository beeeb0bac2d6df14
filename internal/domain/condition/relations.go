package condition

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// setState is a set with its state. The index has the nodes that it concerns.
type setState struct {
	*Set
	state           lifecycle.State
	breaker         limit.Breaker
	deletedMatching limit.Memory // nodes that were deleted while they matched
	resetID         string
}

// isMatched says whether the set matches a node that may be nil.
func (s *setState) isMatched(n *Node) bool {
	return n != nil && !n.Deleting && s.matches(n) && s.Selects(n)
}

// concerns says whether the set matches the node, or has an entry in its record.
func (s *setState) concerns(n *nodeState) bool {
	return s.isMatched(n.Node) || n.usage.claims(s) || n.usage.records(s.UID)
}

// matching are the nodes whose conditions have the members' statuses, fresh or not.
func (f *Fleet) matching(s *setState) *nodeSet {
	return f.index.matching(s.Set, f.index.selected(s.Set))
}

// recordedNodes are those with a record, or a write in flight, of which it is true.
func (f *Fleet) recordedNodes(is func(usage) bool) *nodeSet {
	nodes := &nodeSet{}
	for _, n := range f.index.nodes(&f.withRecord) {
		if is(n.usage) {
			nodes.set(n.slot, true)
		}
	}
	return nodes
}

// claimed are the nodes with a claim of the set, or of a former one of its name, on a taint.
func (f *Fleet) claimed(s *setState) *nodeSet {
	return f.recordedNodes(func(u usage) bool { return u.claims(s) })
}

// recorded are the nodes whose record names the set, also only in its history.
func (f *Fleet) recorded(s *setState) *nodeSet {
	return f.recordedNodes(func(u usage) bool { return u.records(s.UID) })
}

// concerned are the nodes that the set concerns, by name.
func (f *Fleet) concerned(s *setState) []string {
	nodes := f.matching(s)
	nodes.union(f.claimed(s))
	nodes.union(f.recorded(s))
	return f.index.names(nodes)
}

// union are the nodes that enforcing sets have tainted or may taint: of any, and of more than one.
type union struct{ any, shared nodeSet }

// taintedByOthers are the nodes of all sets but those called so, for the caller to keep.
func (f *Fleet) taintedByOthers(name string) *nodeSet {
	u := f.union.Load()
	if u == nil {
		u = f.computeUnion()
		f.union.Store(u)
	}
	others := u.any.copy()
	for own := range f.setIndex[facet{"name", name}] {
		alone := f.wouldTaint(own)
		alone.subtract(&u.shared)
		others.subtract(alone)
	}
	return others
}

func (f *Fleet) computeUnion() *union {
	u := &union{}
	for _, s := range f.sets {
		nodes := f.wouldTaint(s)
		both := nodes.copy()
		both.intersect(&u.any)
		u.shared.union(both)
		u.any.union(nodes)
	}
	return u
}

// wouldTaint are the nodes that the set counts for in the union: those that it tainted, and those that match, unless its breaker is open, up
// to its own cap. PreferNoSchedule is free.
func (f *Fleet) wouldTaint(s *setState) *nodeSet {
	nodes := &nodeSet{}
	if s.Observe || s.state != lifecycle.Active || s.Effect == corev1.TaintEffectPreferNoSchedule {
		return nodes
	}
	if !s.breaker.Blocks() {
		selected := f.index.selected(s.Set)
		nodes = f.index.matching(s.Set, selected)
		if s.MaxNodes != nil {
			nodes = f.firstByName(nodes, limit.Of(*s.MaxNodes, f.index.countAvailable(selected)))
		}
	}
	nodes.union(f.claimed(s))
	return nodes
}

// firstByName are the first so many of the nodes, by name.
func (f *Fleet) firstByName(nodes *nodeSet, most int) *nodeSet {
	first, names := &nodeSet{}, f.index.names(nodes)
	for _, name := range names[:min(most, len(names))] {
		first.set(f.nodes[name].slot, true)
	}
	return first
}
