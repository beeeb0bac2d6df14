package condition

import (
	"iter"
	"maps"
	"math/big"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// index finds nodes by their traits, so that neither a forecast nor a status needs to look at each of them.
type index struct {
	// slots are the nodes by slot, nil where one left; free are the slots that may be given again.
	slots []*nodeState
	free  []int
	by    map[trait]*nodeSet // an empty one isn't kept
}

// trait is something by which nodes are found.
type trait struct{ kind, key, value string }

var (
	traitPresent           = trait{kind: "present"}     // it isn't being deleted
	traitUnavailable       = trait{kind: "away"}        // it isn't available
	traitControlPlane      = trait{kind: "plane"}       // a control-plane node
	traitReadyControlPlane = trait{kind: "ready plane"} // one that is Ready and isn't being deleted
	traitUnreadable        = trait{kind: "unreadable"}  // its record can't be read
)

// reported is a condition with a status, reports one with whatever status.
func reported(conditionType string, status corev1.ConditionStatus) trait {
	return trait{"reported", conditionType, string(status)}
}

func reports(conditionType string) trait { return trait{kind: "reports", key: conditionType} }

// reportedTypes are those that some node reports.
func (i *index) reportedTypes() (all []string) {
	for t := range i.by {
		if t.kind == reports("").kind {
			all = append(all, t.key)
		}
	}
	return all
}

func labelled(key string) trait     { return trait{kind: "labelled", key: key} }
func label(key, value string) trait { return trait{"label", key, value} }

// foreign is a taint of the key that isn't ours.
func foreign(key string) trait { return trait{kind: "foreign", key: key} }

// traits of a node; nil has none. Those by conditions and labels that another node has, too, are left out.
func (n *Node) traits(other *Node) []trait {
	if n == nil {
		return nil
	}
	var all []trait
	add := func(t trait, is bool) {
		if is {
			all = append(all, t)
		}
	}
	add(traitPresent, !n.Deleting)
	add(traitUnavailable, !n.Available)
	add(traitControlPlane, n.ControlPlane)
	add(traitReadyControlPlane, n.ControlPlane && n.Ready && !n.Deleting)
	add(traitUnreadable, n.RecordBroken)
	for _, t := range n.Taints {
		add(foreign(t.Key), !n.Owned.Owns(t))
	}
	for _, r := range n.Observations {
		if other == nil || !other.Observations.same(r) {
			add(reported(r.Type, r.Status), true)
			add(reports(r.Type), r.Status != "")
		}
	}
	if other == nil || !maps.Equal(n.Labels, other.Labels) {
		for key, value := range n.Labels {
			all = append(all, label(key, value), labelled(key))
		}
	}
	return all
}

// add gives a new node its slot.
func (i *index) add(n *nodeState) (slot int) {
	if last := len(i.free) - 1; last >= 0 {
		slot, i.free = i.free[last], i.free[:last]
		i.slots[slot] = n
		return slot
	}
	i.slots = append(i.slots, n)
	return len(i.slots) - 1
}

// remove takes the slot of a node that has no traits any more.
func (i *index) remove(slot int) { i.slots[slot], i.free = nil, append(i.free, slot) }

// replace puts what a node is after in the place of what it was before; either may be nil.
func (i *index) replace(slot int, before, after *Node) {
	for _, t := range before.traits(after) {
		if of := i.by[t]; of != nil {
			if of.set(slot, false); of.empty() {
				delete(i.by, t)
			}
		}
	}
	for _, t := range after.traits(before) {
		if i.by[t] == nil {
			i.by[t] = &nodeSet{}
		}
		i.by[t].set(slot, true)
	}
}

// with gives the nodes with a trait, to read only.
func (i *index) with(t trait) *nodeSet {
	if of := i.by[t]; of != nil {
		return of
	}
	return &nodeSet{}
}

// nodes are the nodes of a set.
func (i *index) nodes(of *nodeSet) []*nodeState {
	var all []*nodeState
	for slot := range of.slots() {
		all = append(all, i.slots[slot])
	}
	return all
}

// names are those of a set's nodes, sorted.
func (i *index) names(of *nodeSet) []string {
	var names []string
	for _, n := range i.nodes(of) {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return names
}

// selected are the nodes that a set is about and that aren't being deleted, for the caller to keep.
func (i *index) selected(s *Set) *nodeSet {
	requirements, selectable := s.Selector.Requirements()
	if !selectable { // a spec that can't be read
		return &nodeSet{}
	}
	selected := i.with(traitPresent).copy()
	if !s.IncludeControlPlane {
		selected.subtract(i.with(traitControlPlane))
	}
	for _, r := range requirements {
		i.filter(selected, r)
	}
	return selected
}

// countAvailable counts those of the nodes that are.
func (i *index) countAvailable(nodes *nodeSet) int {
	nodes = nodes.copy()
	nodes.subtract(i.with(traitUnavailable))
	return nodes.count()
}

// filter keeps what meets a requirement of a nodeSelector.
func (i *index) filter(selected *nodeSet, r labels.Requirement) {
	var with nodeSet
	for value := range r.Values() {
		with.union(i.with(label(r.Key(), value)))
	}
	switch r.Operator() {
	case selection.Exists:
		selected.intersect(i.with(labelled(r.Key())))
	case selection.DoesNotExist:
		selected.subtract(i.with(labelled(r.Key())))
	case selection.NotIn:
		selected.subtract(&with)
	default: // In, and = of matchLabels; a nodeSelector has no others
		selected.intersect(&with)
	}
}

// matching are those of the selected nodes that have every member's status, fresh or not, for the caller to keep.
func (i *index) matching(s *Set, selected *nodeSet) *nodeSet {
	matching := selected.copy()
	for _, m := range s.Members {
		matching.intersect(i.with(reported(m.Type, m.Status)))
	}
	return matching
}

// sampleNames are the names of the first sample.Size of the nodes, in order.
func (i *index) sampleNames(of *nodeSet) []string {
	var first nameSample
	for _, n := range i.nodes(of) {
		first.add(n.Name)
	}
	return first.names
}

// nodeSet is a set of nodes: the bits of a number, by slot. Meeting two of them costs a machine word for 64 nodes, so that a question about all
// nodes costs about the same for ten as for five thousand.
type nodeSet struct{ number big.Int }

func (s *nodeSet) copy() *nodeSet {
	other := &nodeSet{}
	other.number.Set(&s.number)
	return other
}

func (s *nodeSet) set(slot int, in bool) {
	bit := uint(0)
	if in {
		bit = 1
	}
	s.number.SetBit(&s.number, slot, bit)
}

// intersect leaves only what is in other, too; subtract takes out what is in other, and union takes it in.
func (s *nodeSet) intersect(other *nodeSet) { s.number.And(&s.number, &other.number) }
func (s *nodeSet) subtract(other *nodeSet)  { s.number.AndNot(&s.number, &other.number) }
func (s *nodeSet) union(other *nodeSet)     { s.number.Or(&s.number, &other.number) }

func (s *nodeSet) empty() bool { return s.number.Sign() == 0 }

func (s *nodeSet) count() (nodes int) {
	for _, word := range s.number.Bits() {
		nodes += bits.OnesCount(uint(word))
	}
	return nodes
}

// slots of the nodes, the lowest first.
func (s *nodeSet) slots() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, word := range s.number.Bits() {
			for ; word != 0; word &= word - 1 {
				if !yield(i*bits.UintSize + bits.TrailingZeros(uint(word))) {
					return
				}
			}
		}
	}
}
