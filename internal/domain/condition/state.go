package condition

import (
	"slices"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// StateOf is what a stored set may do, but for what pauses all sets: the fleet knows that. Readable: its spec could be read; admitted:
// the rules admit it. Acting waits for the finalizer and the recorded key: without them what is done could not be undone.
func StateOf(cs *v1alpha1.ConditionSet, readable, admitted bool) lifecycle.State {
	recorded := slices.Contains(cs.Finalizers, v1alpha1.FinalizerUndo) && slices.Contains(cs.Status.TaintKeys, cs.Spec.TaintKey)
	return lifecycle.Policy{
		Deleted: cs.DeletionTimestamp != nil, Unreadable: !readable, Observing: cs.Spec.Mode == v1alpha1.Observe,
		Refused: !admitted, Unrecorded: !recorded,
	}.State()
}

// StoredBreaker is the breaker that the set's status tells of; nil when it is closed.
func StoredBreaker(cs *v1alpha1.ConditionSet) *limit.Opening {
	b := cs.Status.Breaker
	if b == nil {
		return nil
	}
	return &limit.Opening{ID: b.ID, OpenedAt: b.OpenedAt.Time, Reset: b.Reset}
}
