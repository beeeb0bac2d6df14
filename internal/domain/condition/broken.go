package condition

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
)

// BrokenRecord is a node whose ownership record can't be read: nobody knows what was done to it, so that nothing is done and nothing
// undone there, and its taints that may be ours count under the limits.
type BrokenRecord struct {
	Node string
	// Taints are those that may be ours, as key:effect.
	Taints []string
}

// Mend says how people end it. The taints come first: once the record is gone they are somebody else's.
func (b BrokenRecord) Mend() string {
	annotate := fmt.Sprintf("kubectl annotate node %s %s-", b.Node, v1alpha1.AnnotationOwnedTaints)
	if len(b.Taints) == 0 {
		return "repair the annotation, or remove it: " + annotate
	}
	return fmt.Sprintf("repair the annotation; or remove the taints, those of them that ConditionSets set, and then the annotation: kubectl taint node %s %s-; %s",
		b.Node, strings.Join(b.Taints, "- "), annotate)
}

// suspects are the node's taints that may be ours, though its record can't be read: those of keys that a set declared.
func (n *nodeState) suspects(declared func(key string) bool) (taints []corev1.Taint) {
	for _, t := range n.Taints {
		if declared(t.Key) && !ecosystem.NeverOurs(t.Key) {
			taints = append(taints, t)
		}
	}
	return taints
}

func (f *Fleet) broken(n *nodeState) BrokenRecord {
	b := BrokenRecord{Node: n.Name}
	for _, t := range n.suspects(f.isDeclared) {
		b.Taints = append(b.Taints, t.Key+":"+string(t.Effect))
	}
	return b
}

// BrokenRecord tells of a node's record; ok is false when it can be read.
func (f *Fleet) BrokenRecord(node string) (b BrokenRecord, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := f.nodes[node]
	if n == nil || !n.RecordBroken {
		return BrokenRecord{}, false
	}
	return f.broken(n), true
}

// BrokenRecords are all of them, by node.
func (f *Fleet) BrokenRecords() (all []BrokenRecord) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for slot := range f.unreadable.all() {
		all = append(all, f.broken(f.nodes[f.index.slots[slot]]))
	}
	slices.SortFunc(all, func(a, b BrokenRecord) int { return strings.Compare(a.Node, b.Node) })
	return all
}
