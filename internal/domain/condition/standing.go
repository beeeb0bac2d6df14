package condition

import (
	"slices"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Standing is what a set may do now. The zero value may do nothing.
type Standing int

const (
	// Frozen: not judged yet, or its facts can't be trusted. Nothing is done and nothing undone.
	Frozen Standing = iota
	// Held: refused by a rule or paused. No new acts; what stopped matching is undone.
	Held
	// Active: admitted and enforcing.
	Active
	// Withdrawn: observing only, or deleted. Everything it did is undone.
	Withdrawn
)

// StandingOf is what a stored set may do. Readable: its spec could be read; admitted: the rules admit it. Acting waits for the
// finalizer and the recorded key: without them what is done could not be undone.
func StandingOf(cs *v1alpha1.ConditionSet, readable, admitted bool) Standing {
	switch {
	case cs.DeletionTimestamp != nil:
		return Withdrawn
	case !readable:
		return Frozen // whether its nodes still match can't be told
	case cs.Spec.Mode == v1alpha1.Observe:
		return Withdrawn
	case !admitted:
		return Held
	case !slices.Contains(cs.Finalizers, v1alpha1.FinalizerUndo), !slices.Contains(cs.Status.TaintKeys, cs.Spec.TaintKey):
		return Frozen
	}
	return Active
}

// StoredBreaker is the breaker that the set's status tells of; nil when it is closed.
func StoredBreaker(cs *v1alpha1.ConditionSet) *OpenBreaker {
	b := cs.Status.Breaker
	if b == nil {
		return nil
	}
	return &OpenBreaker{ID: b.ID, OpenedAt: b.OpenedAt.Time, Reset: b.Reset}
}
