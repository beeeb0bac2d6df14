package guard

import (
	"fmt"
	"io/fs"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/docs"
)

// Severity is what a violated rule does.
type Severity = v1alpha1.RuleSeverity

const (
	// Deny refuses the object.
	Deny = v1alpha1.RuleDeny
	// Warn admits it with a warning.
	Warn = v1alpha1.RuleWarn
)

// Rule is one entry of a catalogue: what a Guardrail's rule may say, and what built-in ones alone may.
type Rule struct {
	v1alpha1.GuardrailRule `json:",inline"`

	// ID is kind/name, or a Guardrail's name and the rule's, in lower case; it is what users see, exempt and search for.
	ID string `json:"id"`
	// WhileObserving is what a violation does while spec.mode is Observe: Warn for a rule that denies only what would be done
	// to the cluster. A policy that observes acts nowhere, whatever admits it. Default: the severity.
	WhileObserving Severity `json:"whileObserving,omitempty"`
	// RatchetOn are the fields, such as spec.deletion, that together with the cluster decide what the rule reads of plan and
	// hears from the authorizer. Where an update leaves alone these and the fields that the expression reads, the stored object
	// breaks the rule just as much, so Deny becomes Warn. Default: a rule over these judges each update like a creation. A rule
	// that may be lifted has none: an exception that ended would go on for whoever edits something else.
	RatchetOn []string `json:"ratchetOn,omitempty"`
	// RatchetWhen is CEL over object, oldObject and what plan says of these alone: true for an update after which the object does
	// no more than the stored one did. Deny becomes Warn then, if the stored object may act: what made the rule fail is the
	// cluster, and whoever makes a policy softer must never be refused. It is for rules that ask the cluster, which aren't judged at
	// run time; so it holds for exceptable ones, too: what an exception let be stored goes on when it ends.
	RatchetWhen string `json:"ratchetWhen,omitempty"`
	// Tests show each verdict; they are run, and the rule's documentation quotes them.
	Tests []Test `json:"tests,omitempty"`
}

// Test is an object and the verdict that its rule must give.
type Test struct {
	v1alpha1.GuardrailRuleTest `json:",inline"`

	// Specimen: the kind is shown by this object wherever one is needed, also in a running cluster. A kind has one that every rule
	// admits, and one that this rule alone refuses.
	Specimen bool `json:"specimen,omitempty"`
}

// testFacts are a test's facts. Without any they are complete, and there are no nodes.
type testFacts struct{ v1alpha1.GuardrailTestFacts }

// Synced says whether the facts are complete.
func (f testFacts) Synced() bool {
	return f.GuardrailTestFacts.Synced == nil || *f.GuardrailTestFacts.Synced
}

// Age is the time since they were known to be current.
func (f testFacts) Age(time.Time) time.Duration { return time.Duration(f.AgeSeconds) * time.Second }

// Nodes counts those of which limits take a share.
func (f testFacts) Nodes() int { return int(f.GuardrailTestFacts.Nodes) }

// The outcomes of a test's rule: not violated, violated with a warning, violated with a refusal.
const (
	ExpectAdmit = "admit"
	ExpectWarn  = "warn"
	ExpectDeny  = "deny"
)

// The types of shared variables.
const (
	typeBool     = "bool"
	typeString   = "string"
	typeInt      = "int"
	typeDuration = "duration"
	typeList     = "list(string)"
	typeMap      = "map(string, string)"
)

// Variable is an expression that several rules share. It reads object, oldObject and earlier variables, so that the
// generated ValidatingAdmissionPolicy can carry the same text.
type Variable struct {
	Name string `json:"name"`
	// Type is one of bool, string, int, duration, list(string), map(string, string).
	Type string `json:"type"`
	// MaxItems bounds lists and maps, MaxLength every string in them: the cost estimate trusts these.
	MaxItems  int64 `json:"maxItems,omitempty"`
	MaxLength int64 `json:"maxLength,omitempty"`
	// Expression is its CEL.
	Expression string `json:"expression"`
	// Generated variables are tables of the program's own. While the engine judges, Guardrails may have made them longer.
	Generated bool `json:"-"`
}

// Catalogue is the file of one kind.
type Catalogue struct {
	Kind string `json:"kind"`
	// Recheck is CEL over object and oldObject. When true, an update is judged like a creation, also by the rules
	// whose fields it leaves alone.
	Recheck   string     `json:"recheck"`
	Variables []Variable `json:"variables,omitempty"`
	Rules     []Rule     `json:"rules"`
}

// parseCatalogue reads one file; unknown and duplicate fields are errors.
func parseCatalogue(files fs.FS, name string) (Catalogue, error) {
	var c Catalogue
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return c, fmt.Errorf("read catalogue: %w", err)
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return c, fmt.Errorf("parse catalogue %s: %w", name, err)
	}
	for i := range c.Rules {
		if err := c.Rules[i].validate(); err != nil {
			return c, fmt.Errorf("catalogue %s: %w", name, err)
		}
	}
	return c, nil
}

// validate checks what the type of a field can't, and fills in defaults.
func (r *Rule) validate() error {
	if r.OnFactsUnavailable == "" {
		r.OnFactsUnavailable = Warn
	}
	switch {
	case r.ID == "" || r.Expression == "" || len(r.Kinds) == 0:
		return fmt.Errorf("rule %q: id, kinds and expression are required", r.ID)
	case strings.Trim(r.ID, "abcdefghijklmnopqrstuvwxyz0123456789-/") != "":
		return fmt.Errorf("rule %q: an id has only lower-case letters, digits, - and /", r.ID)
	case r.Severity != Deny && r.Severity != Warn:
		return fmt.Errorf("rule %s: severity %q is neither Deny nor Warn", r.ID, r.Severity)
	case r.OnFactsUnavailable != Deny && r.OnFactsUnavailable != Warn:
		return fmt.Errorf("rule %s: onFactsUnavailable %q is neither Deny nor Warn", r.ID, r.OnFactsUnavailable)
	}
	return r.validateSoftening()
}

// validateSoftening checks when the rule only warns.
func (r *Rule) validateSoftening() error {
	switch {
	case r.WhileObserving != "" && r.WhileObserving != Warn:
		return fmt.Errorf("rule %s: whileObserving %q is not Warn", r.ID, r.WhileObserving)
	case r.RatchetWhen != "" && len(r.RatchetOn) > 0:
		return fmt.Errorf("rule %s: ratchetWhen and ratchetOn exclude each other", r.ID)
	case r.Exceptable && len(r.RatchetOn) > 0:
		return fmt.Errorf("rule %s: exceptable and ratchetOn exclude each other; an exception that ended would hold on", r.ID)
	}
	return nil
}

// Docs is where a rule is explained on the web.
func Docs(ruleID string) string {
	return docs.Base + "docs/reference/guardrails.md#" + Anchor(ruleID)
}

// Anchor is the id's anchor on the page of all rules.
func Anchor(ruleID string) string { return strings.ReplaceAll(ruleID, "/", "-") }
