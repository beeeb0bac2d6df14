// Package guardrails tests Guardrails and GuardrailExceptions end to end: what they refuse, what they hold back, and how
// soon.
package guardrails
