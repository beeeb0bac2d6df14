package check

import (
	"fmt"

	"github.com/resourcestack/autohealer/internal/guard"
)

// Rules of the text and the schema. They are no catalogue's: whoever breaks them never gets as far as the catalogue.
const (
	RuleUndecodable     = "manifest/undecodable"
	RuleDuplicateKey    = "manifest/duplicate-key"
	RuleDuplicateObject = "manifest/duplicate-object"
	RuleKind            = "manifest/kind"
	RuleUnknownField    = "schema/unknown-field"
	RuleValue           = "schema/value"
)

// Report is what would be said of one object.
type Report struct {
	// File and Line of the object; empty when it came without.
	File string `json:"file"`
	Line int    `json:"line"`
	// Kind, Namespace and Name, as far as they can be read.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Allowed: the API server, the policy and the webhook would store it, as far as they could be asked.
	Allowed bool `json:"allowed"`
	// Violations, those of text and schema first.
	Violations []Violation `json:"violations"`
	// Skipped rules could not be asked.
	Skipped []Skip `json:"skipped"`
	// Stored is the object as it would be stored, defaults filled in; nil when its schema refuses it.
	Stored map[string]any `json:"-"`
	// RuleSetHash names the catalogue that judged; empty when it didn't come to that.
	RuleSetHash string `json:"-"`
}

// Violation is one thing wrong, or one warning.
type Violation struct {
	Rule     string         `json:"rule"`
	Severity guard.Severity `json:"severity"`
	// Message is the text that the API server or the webhook gives.
	Message string `json:"message"`
	// Field that the schema refuses, as the API server names it; "" when the rule is about the whole object.
	Field string `json:"field,omitempty"`
	// Line of the field, or of the object.
	Line int `json:"line"`
	// Docs is the place of the rule's documentation, relative to the project's root.
	Docs string `json:"-"`
}

// Skip is a rule that could not be asked.
type Skip struct {
	Rule     string         `json:"rule"`
	Severity guard.Severity `json:"severity"`
	Reason   string         `json:"reason"`
	// Missing is what wasn't there to ask; that refuses nothing here. "" when the rule itself failed.
	Missing guard.Missing `json:"missing,omitempty"`
	// Docs is the place of the rule's documentation, relative to the project's root, or the Guardrail that it is in.
	Docs string `json:"-"`
}

// Repeats warns that the object is one that was there before.
func (r *Report) Repeats(first Report) {
	r.Violations = append(r.Violations, Violation{
		Rule: RuleDuplicateObject, Severity: guard.Warn, Line: r.Line, Docs: Docs(RuleDuplicateObject),
		Message: fmt.Sprintf("%s:%d has the same object already; the one that is applied last replaces the other, so remove one of them", first.File, first.Line),
	})
}

// refuses says whether anything refuses the object.
func (r *Report) refuses() bool {
	for _, v := range r.Violations {
		if v.Severity == guard.Deny {
			return true
		}
	}
	for _, s := range r.Skipped {
		if s.Severity == guard.Deny && s.Missing == "" {
			return true
		}
	}
	return false
}

// Warns says whether there is a warning; a rule that lacked something to ask is none.
func (r *Report) Warns() bool {
	for _, v := range r.Violations {
		if v.Severity == guard.Warn {
			return true
		}
	}
	for _, s := range r.Skipped {
		if s.Severity == guard.Warn && s.Missing == "" {
			return true
		}
	}
	return false
}

// Docs is where text and schema rules are explained.
func Docs(rule string) string { return "docs/reference/cli.md#" + guard.Anchor(rule) }
