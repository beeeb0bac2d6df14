package condition

import (
	"iter"
	"maps"
	"math/bits"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// index finds nodes by what they carry, so that neither a forecast nor a new set needs to look at each of them.
type index struct {
	// slots are the nodes by slot, nil where one left; free are the slots that may be given again.
	slots []*nodeState
	free  []int
	// order are the slots in the order of the nodes' names.
	order []int

	present, planes, readyPlanes nodeBits // neither of the first nor of the last is being deleted
	away                         nodeBits // not available
	byCondition                  bitsBy[reported]
	byType                       bitsBy[string] // of conditions that are there
	byLabel                      bitsBy[label]
	labelled                     bitsBy[string]
	foreign                      bitsBy[string] // by the key of a taint that isn't ours
}

type reported struct {
	conditionType string
	status        corev1.ConditionStatus
}

type label struct{ key, value string }

func newIndex() index {
	return index{byCondition: bitsBy[reported]{}, byType: bitsBy[string]{}, byLabel: bitsBy[label]{}, labelled: bitsBy[string]{}, foreign: bitsBy[string]{}}
}

// enter gives a new node its slot.
func (i *index) enter(n *nodeState) (slot int) {
	if last := len(i.free) - 1; last >= 0 {
		slot, i.free = i.free[last], i.free[:last]
		i.slots[slot] = n
	} else {
		slot, i.slots = len(i.slots), append(i.slots, n)
	}
	at, _ := i.place(n.Name)
	i.order = slices.Insert(i.order, at, slot)
	return slot
}

// leave takes the slot of a node that carries nothing any more.
func (i *index) leave(name string, slot int) {
	if at, there := i.place(name); there {
		i.order = slices.Delete(i.order, at, at+1)
	}
	i.slots[slot], i.free = nil, append(i.free, slot)
}

func (i *index) place(name string) (at int, there bool) {
	return slices.BinarySearchFunc(i.order, name, func(slot int, name string) int { return strings.Compare(i.slots[slot].Name, name) })
}

// replace puts what a node carries after in the place of what it carried before; either may be nil.
func (i *index) replace(slot int, before, after *Node) {
	i.present.put(slot, after != nil && !after.Deleting)
	i.away.put(slot, after != nil && !after.Available)
	i.planes.put(slot, after != nil && after.ControlPlane)
	i.readyPlanes.put(slot, after != nil && after.ControlPlane && after.Ready && !after.Deleting)
	var was, is Node
	if before != nil {
		was = *before
	}
	if after != nil {
		is = *after
	}
	i.relabel(slot, was.Labels, is.Labels)
	i.report(slot, was.Readings, is.Readings)
	for _, t := range was.Taints {
		i.foreign.put(t.Key, slot, false)
	}
	for _, t := range is.Taints {
		if !is.Owned.Owns(t) {
			i.foreign.put(t.Key, slot, true)
		}
	}
}

func (i *index) relabel(slot int, before, after map[string]string) {
	if maps.Equal(before, after) {
		return
	}
	for key, value := range before {
		i.byLabel.put(label{key, value}, slot, false)
		i.labelled.put(key, slot, false)
	}
	for key, value := range after {
		i.byLabel.put(label{key, value}, slot, true)
		i.labelled.put(key, slot, true)
	}
}

func (i *index) report(slot int, before, after Readings) {
	for _, was := range before {
		if is, there := after.Of(was.Type); !there || is.Status != was.Status {
			i.byCondition.put(reported{was.Type, was.Status}, slot, false)
			i.byType.put(was.Type, slot, there && is.Status != "")
		}
	}
	for _, is := range after {
		if was, there := before.Of(is.Type); !there || is.Status != was.Status {
			i.byCondition.put(reported{is.Type, is.Status}, slot, true)
			i.byType.put(is.Type, slot, is.Status != "")
		}
	}
}

// selected are the nodes that a set is about and that aren't being deleted, for the caller to keep.
func (i *index) selected(s *Set) nodeBits {
	selected := slices.Clone(i.present)
	if !s.IncludeControlPlane {
		selected.drop(i.planes)
	}
	requirements, selectable := s.Selector.Requirements()
	if !selectable {
		clear(selected)
	}
	for _, r := range requirements {
		i.require(selected, r)
	}
	return selected
}

// available counts those of the nodes that are.
func (i *index) available(nodes nodeBits) int {
	nodes = slices.Clone(nodes)
	nodes.drop(i.away)
	return nodes.count()
}

// require keeps what meets a requirement of a nodeSelector.
func (i *index) require(selected nodeBits, r labels.Requirement) {
	var with nodeBits
	for value := range r.Values() {
		with.join(i.byLabel.of(label{r.Key(), value}))
	}
	switch r.Operator() {
	case selection.Exists:
		selected.keep(i.labelled.of(r.Key()))
	case selection.DoesNotExist:
		selected.drop(i.labelled.of(r.Key()))
	case selection.NotIn:
		selected.drop(with)
	default: // In, and = of matchLabels; a nodeSelector has no others
		selected.keep(with)
	}
}

// matching are those of the selected nodes that have every member's status, for the caller to keep.
func (i *index) matching(s *Set, selected nodeBits) nodeBits {
	matching := slices.Clone(selected)
	if len(s.Members) == 0 { // a spec that can't be read
		clear(matching)
	}
	for _, m := range s.Members {
		matching.keep(i.byCondition.of(reported{m.Type, m.Status}))
	}
	return matching
}

// reporting are those that report all members, whatever their status, for the caller to keep.
func (i *index) reporting(s *Set) nodeBits {
	reporting := slices.Clone(i.present)
	for _, m := range s.Members {
		reporting.keep(i.byType.of(m.Type))
	}
	return reporting
}

// fewNodes is up to how many nodes it is cheaper to sort their names than to look for them in the order of all names.
const fewNodes = 64

// first are the names of the first sample.Size of the nodes, in order.
func (i *index) first(of nodeBits, count int) []string {
	if count <= fewNodes {
		var first firstNames
		for slot := range of.all() {
			first.add(i.slots[slot].Name)
		}
		return first.names
	}
	first := make([]string, 0, sample.Size)
	for _, slot := range i.order {
		if of.has(slot) {
			if first = append(first, i.slots[slot].Name); len(first) == sample.Size {
				break
			}
		}
	}
	return first
}

// nodeBits is a set of nodes by their slots. Meeting two of them costs a machine word for 64 nodes, so that a question
// about all nodes costs about the same for ten as for five thousand.
type nodeBits []uint64

func (b nodeBits) has(slot int) bool { return slot/64 < len(b) && b[slot/64]&(1<<(slot%64)) != 0 }

func (b *nodeBits) put(slot int, in bool) (changed bool) {
	if b.has(slot) == in {
		return false
	}
	for len(*b) <= slot/64 {
		*b = append(*b, 0)
	}
	(*b)[slot/64] ^= 1 << (slot % 64)
	return true
}

// keep leaves only what is in other, too.
func (b nodeBits) keep(other nodeBits) {
	for i := range b {
		if i < len(other) {
			b[i] &= other[i]
		} else {
			b[i] = 0
		}
	}
}

// drop takes out what is in other.
func (b nodeBits) drop(other nodeBits) {
	for i := range min(len(b), len(other)) {
		b[i] &^= other[i]
	}
}

// join takes in what is in other.
func (b *nodeBits) join(other nodeBits) {
	for len(*b) < len(other) {
		*b = append(*b, 0)
	}
	for i, word := range other {
		(*b)[i] |= word
	}
}

func (b nodeBits) count() int {
	n := 0
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return n
}

func (b nodeBits) empty() bool {
	for _, word := range b {
		if word != 0 {
			return false
		}
	}
	return true
}

// meets says whether some node is in both.
func (b nodeBits) meets(other nodeBits) bool {
	for i := range min(len(b), len(other)) {
		if b[i]&other[i] != 0 {
			return true
		}
	}
	return false
}

// all are the slots, the lowest first.
func (b nodeBits) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, word := range b {
			for ; word != 0; word &= word - 1 {
				if !yield(i*64 + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}

// bitsBy are sets of nodes by what they have in common. An empty one isn't kept.
type bitsBy[K comparable] map[K]*nodeBits

func (by bitsBy[K]) put(key K, slot int, in bool) {
	b := by[key]
	if b == nil {
		if !in {
			return
		}
		b = &nodeBits{}
		by[key] = b
	}
	if b.put(slot, in) && !in && b.empty() {
		delete(by, key)
	}
}

// of gives the nodes of a key, to read only.
func (by bitsBy[K]) of(key K) nodeBits {
	if b := by[key]; b != nil {
		return *b
	}
	return nil
}
