package condition

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// ObserveSet takes in a set, what it may do, its stored breaker and the reset that its annotations ask for. It gives the
// nodes whose plans may have changed.
func (f *Fleet) ObserveSet(set *Set, state lifecycle.State, stored *limit.Opening, resetID string, at timing.Moment) (affected []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addDeclared(set.KeysDeclared)
	was := f.sets[set.UID]
	if stored != nil {
		delete(f.deletedSets, set.Name) // what it left is written down
	}
	if was != nil && f.follows && was.breaker.Follow(stored) {
		f.markDirty(was)
	}
	if was != nil && was.Generation == set.Generation && was.state == state && was.resetID == resetID {
		return nil
	}
	s := &setState{Set: set, state: state, resetID: resetID}
	s.breaker.Follow(stored)
	touched := sets.New[string]()
	if was != nil {
		s.breaker = was.breaker // the leader's own is never older than the stored one, and a follower's is the stored one
		s.inheritDeletedMatching(was)
		touched.Insert(f.concerned(was)...)
		f.setIndex.remove(was)
	} else if stored == nil {
		f.inherit(s, at.Now)
	}
	f.sets[set.UID] = s
	f.setIndex.add(s)
	f.evaluateBreaker(s, at)
	f.markDirty(s)
	touched.Insert(f.concerned(s)...)
	return sets.List(touched)
}

// addDeclared notes keys. Where a record can't be read, the taints of a new one count from now on.
func (f *Fleet) addDeclared(keys []string) {
	news := false
	for _, key := range keys {
		news = news || !f.declared[key]
		f.declared[key] = true
	}
	if !news {
		return
	}
	for _, n := range f.index.nodes(f.index.with(traitUnreadable)) {
		f.recount(n)
	}
}

func (f *Fleet) isDeclared(key string) bool { return f.declared[key] }

// ForgetSet removes a set that is gone, and gives the nodes that still carry its record.
func (f *Fleet) ForgetSet(uid types.UID, at timing.Moment) (affected []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sets[uid]
	if s == nil {
		return nil
	}
	f.setIndex.remove(s)
	f.recordDeletedSet(s, at.Now)
	f.markDirty(s)
	delete(f.sets, uid)
	delete(f.dirty, uid)
	return f.index.names(f.recorded(s))
}

// ConfirmOrphan says that a record's set was twice found to be gone; what the record holds is undone.
func (f *Fleet) ConfirmOrphan(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.orphans[uid] = true
}

// Policy is what the cluster's operators lay down for all sets. The zero value has no limit that lets anything through.
type Policy struct {
	Limits limit.Limits
	// Precedence says among which sets of a node the highest effect wins; "" means Key.
	Precedence Precedence
	// Paused is the message of holds while no set may add a taint; "" when they may. What stopped matching is undone all the same.
	Paused string
	// Frozen: nothing is undone, either. Paused says why.
	Frozen bool
	// DeclaredTypes are node condition types that are known beside the built-in ones, sorted.
	DeclaredTypes []string
}

// SetPolicy replaces the policy in force and gives the nodes whose plans may differ under it. A limit that shrinks undoes
// nothing; one that grows lets the longest-waiting nodes go on, and each of them the next.
func (f *Fleet) SetPolicy(p Policy, at timing.Moment) (affected []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.Precedence == "" {
		p.Precedence = PrecedenceKey
	}
	was := f.policy
	f.policy = p
	nodes := sets.New[string]()
	if p.Limits != was.Limits {
		for _, s := range f.sets {
			f.evaluateBreaker(s, at)
		}
		nodes.Insert(f.queueHeads()...)
	}
	if p.Precedence != was.Precedence || p.Paused != was.Paused || p.Frozen != was.Frozen {
		f.addAllAffected(nodes)
	}
	return sets.List(nodes)
}

// addAllAffected adds the nodes that some set has to do with, and those with a record of sets that nobody knows.
func (f *Fleet) addAllAffected(affected sets.Set[string]) {
	for _, s := range f.sets {
		affected.Insert(f.concerned(s)...)
	}
	for name, n := range f.nodes {
		if n.recorded || len(n.holds) > 0 {
			affected.Insert(name)
		}
	}
}

// Limits are those in force.
func (f *Fleet) Limits() limit.Limits {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.policy.Limits
}

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
