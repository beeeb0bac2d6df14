package condition

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// setState is a set with the nodes it concerns.
type setState struct {
	*Set
	state lifecycle.State
	// available are those of the selected nodes of which maxNodes is a share.
	selected, available int

	matching names // its members' statuses are there, fresh or not
	tainted  names // it has a claim on a taint
	recorded names // the record names it, also only in its history
	held     map[string]Hold
	breaker  limit.Breaker
	departed limit.Memory // nodes that were deleted while they matched
	resetID  string

	// counted are the nodes that it counts for in the union of all sets.
	counted nodeBits
	// inOrder are the matching nodes by name, and allowance is how many of them its own cap allows; only with maxNodes.
	inOrder   []string
	allowance int
}

func newSetState(set *Set, state lifecycle.State, breaker *limit.Opening, resetID string) *setState {
	s := &setState{Set: set, state: state, resetID: resetID, matching: names{}, tainted: names{}, recorded: names{}, held: map[string]Hold{}}
	s.breaker.Follow(breaker)
	return s
}

// concerns says whether the set has anything to do with the node now.
func (s *setState) concerns(name string) bool {
	_, matching := s.matching[name]
	_, tainted := s.tainted[name]
	_, recorded := s.recorded[name]
	_, held := s.held[name]
	return matching || tainted || recorded || held
}

// union counts, for each node, the enforcing sets that may taint it or have tainted it.
type union struct {
	sets []int
	// any are the nodes of at least one set, sole those of exactly one.
	any, sole nodeBits
}

func (u *union) add(slot, n int) {
	for len(u.sets) <= slot {
		u.sets = append(u.sets, 0)
	}
	u.sets[slot] += n
	u.any.put(slot, u.sets[slot] > 0)
	u.sole.put(slot, u.sets[slot] == 1)
}

// ofOthers are the nodes of all sets but those called so, for the caller to keep.
func (f *Fleet) ofOthers(name string) nodeBits {
	others := slices.Clone(f.union.any)
	for _, own := range f.setsBy.byName[name] {
		alone := slices.Clone(own.counted)
		alone.keep(f.union.sole)
		others.drop(alone)
	}
	return others
}

// relate brings what the node and the set know of each other up to date.
func (f *Fleet) relate(s *setState, n *nodeState) {
	if s.concerns(n.Name) {
		n.sets[s] = struct{}{}
	} else {
		delete(n.sets, s)
	}
	_, tainted := s.tainted[n.Name]
	f.countFor(s, n.slot, s.enforces() && (tainted || s.mayTaint(n.Name)))
}

func (f *Fleet) countFor(s *setState, slot int, in bool) {
	switch {
	case !s.counted.put(slot, in):
	case in:
		f.union.add(slot, 1)
	default:
		f.union.add(slot, -1)
	}
}

// part ends all relations of a set that goes, or that is replaced.
func (f *Fleet) part(s *setState) {
	for _, concerned := range []names{s.matching, s.tainted, s.recorded} {
		for name := range concerned {
			delete(f.nodes[name].sets, s)
		}
	}
	for name := range s.held {
		delete(f.nodes[name].sets, s)
	}
	for slot := range s.counted.all() {
		f.union.add(slot, -1)
	}
	f.setsBy.remove(s)
}

// enforces says whether what the set taints counts for the union; PreferNoSchedule is free.
func (s *setState) enforces() bool {
	return !s.Observe && s.state == lifecycle.Active && s.Effect != corev1.TaintEffectPreferNoSchedule
}

// mayTaint says whether the set could taint a matching node: none while its breaker is open, and no more than its own cap.
func (s *setState) mayTaint(name string) bool {
	_, matching := s.matching[name]
	if !matching || s.why() != "" {
		return false
	}
	if s.MaxNodes == nil {
		return true
	}
	at, _ := slices.BinarySearch(s.inOrder, name)
	return at < s.allowance
}

// rematch notes whether the node matches. Under a cap of the set's own, the node at its end may come in or go out for it.
func (f *Fleet) rematch(s *setState, n *nodeState, matches bool) {
	if s.matching.put(n.Name, matches) && s.MaxNodes != nil {
		at, _ := slices.BinarySearch(s.inOrder, n.Name)
		if matches {
			s.inOrder = slices.Insert(s.inOrder, at, n.Name)
		} else {
			s.inOrder = slices.Delete(s.inOrder, at, at+1)
		}
		if at < s.allowance {
			f.recountOrder(s, s.allowance-1, s.allowance+1)
		}
	}
	f.relate(s, n)
}

// resize brings the allowance up to the number of selected nodes that are available.
func (f *Fleet) resize(s *setState) {
	if s.MaxNodes == nil {
		return
	}
	was := s.allowance
	s.allowance = limit.Of(*s.MaxNodes, s.available)
	f.recountOrder(s, min(was, s.allowance), max(was, s.allowance))
	if s.allowance > was {
		f.wake(f.queues.first(ownLine(s)))
	}
}

func (f *Fleet) recountOrder(s *setState, from, to int) {
	for at := max(0, from); at < min(to, len(s.inOrder)); at++ {
		f.relate(s, f.nodes[s.inOrder[at]])
	}
}

// recountAll counts anew what the set may taint: its breaker opened or closed.
func (f *Fleet) recountAll(s *setState) {
	for name := range s.matching {
		f.relate(s, f.nodes[name])
	}
}

// noteRecord brings the sets up to what the node's record says, and what is in flight to it.
func (f *Fleet) noteRecord(n *nodeState, gone bool) {
	f.recording.put(n.slot, !gone && n.hasRecord())
	if f.unreadable.put(n.slot, !gone && n.RecordBroken) {
		for _, s := range f.sets {
			f.touch(s)
		}
	}
	concerned := n.sets
	if n.hasRecord() {
		concerned = maps.Clone(n.sets)
		f.addRecorded(concerned, n)
	}
	for s := range concerned {
		changed := s.tainted.put(n.Name, !gone && n.print.claims(s))
		if s.recorded.put(n.Name, !gone && n.recordNames(s.UID)) || changed {
			f.touch(s)
			f.relate(s, n)
		}
	}
}

func (n *nodeState) hasRecord() bool {
	return len(n.Owned.Taints) > 0 || len(n.Owned.History) > 0 || n.inFlight != nil
}

// addRecorded adds the known sets of the record, and those that inherit from one of their name.
func (f *Fleet) addRecorded(sets map[*setState]struct{}, n *nodeState) {
	for _, c := range n.print.sets {
		for _, s := range f.setsBy.byName[c.name] {
			sets[s] = struct{}{}
		}
	}
	for _, uid := range n.recordedSets() {
		if s := f.sets[uid]; s != nil {
			sets[s] = struct{}{}
		}
	}
}

// introduce finds the nodes that a set new to the fleet concerns.
func (f *Fleet) introduce(s *setState) {
	f.setsBy.add(s)
	selected := f.index.selected(s.Set)
	if s.selected = selected.count(); s.MaxNodes != nil {
		s.available = f.index.available(selected)
	}
	f.resize(s)
	for slot := range f.index.matching(s.Set, selected).all() {
		f.rematch(s, f.index.slots[slot], true)
	}
	for slot := range f.recording.all() {
		n := f.index.slots[slot]
		changed := s.tainted.put(n.Name, n.print.claims(s))
		if s.recorded.put(n.Name, n.recordNames(s.UID)) || changed {
			f.relate(s, n)
		}
	}
}
