package condition

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Unreadable stands for a ConditionSet whose spec can't be read: it selects no node, and what it did before can be found
// and, once it is deleted, undone.
func Unreadable(cs *v1alpha1.ConditionSet) *Set {
	return &Set{
		UID: cs.UID, Name: cs.Name, Generation: cs.Generation, Created: cs.CreationTimestamp.Time,
		Type: cs.Spec.Type, Key: cs.Spec.TaintKey, Effect: cs.Spec.Effect,
		Selector:     labels.Nothing(),
		KeysDeclared: append(slices.Clone(cs.Status.TaintKeys), cs.Spec.TaintKey),
	}
}
