// Package guardrail merges what Guardrails declare: limits, pauses, precedence, condition types. It is pure.
package guardrail

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// Policy is what all Guardrails together say, rules apart.
type Policy struct {
	// Limits in force.
	Limits limit.Limits
	// PausedBy names what pauses new acts, sorted; empty when nothing does.
	PausedBy []string
	// Precedence among ConditionSets.
	Precedence v1alpha1.ConditionSetPrecedence
	// ConditionTypes are the declared healthy statuses, by type. Disputed ones are left out.
	ConditionTypes map[string]corev1.ConditionStatus
	// DisputedTypes are those that Guardrails declare differently, sorted. None of the declarations holds.
	DisputedTypes []string
}

// Paused says whether nothing new may be done.
func (p Policy) Paused() bool { return len(p.PausedBy) > 0 }

// Unread is the policy while Guardrails can't be read: what they may forbid isn't known, so everything counts as paused.
func Unread(limits limit.Limits) Policy {
	p := Merge(limits, nil)
	p.PausedBy = []string{UnreadName}
	return p
}

// UnreadName stands in PausedBy for Guardrails that aren't read yet; it has a space, so no Guardrail is called so.
const UnreadName = "Guardrails not read"

// Declared is a Guardrail with what the rules say of it.
type Declared struct {
	*v1alpha1.Guardrail
	// Refused: a rule refuses the stored Guardrail, so it can only make things stricter.
	Refused bool
}

// Merge gives what all Guardrails together say; limits hold where they set none.
func Merge(limits limit.Limits, all []Declared) Policy {
	p := Policy{Limits: limits, Precedence: v1alpha1.PrecedenceKey, ConditionTypes: map[string]corev1.ConditionStatus{}}
	for _, g := range all {
		if g.Spec.Paused {
			p.PausedBy = append(p.PausedBy, g.Name)
		}
	}
	slices.Sort(p.PausedBy)
	return p
}
