package guard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apicel "k8s.io/apiserver/pkg/apis/cel"
)

// Verdict is what the rules say of one object. Its zero value admits nothing.
type Verdict struct {
	// Allowed: no rule refuses the object, and none that could was left out.
	Allowed bool
	// Violations of rules, in the catalogue's order.
	Violations []Violation
	// Skipped rules could not be evaluated.
	Skipped []Skip
	// RuleSetHash names the rules that judged.
	RuleSetHash string
	// Lifted are violated rules that exceptions keep from refusing the object; they are among the violations as warnings.
	Lifted []Lifted
	// RecheckAt is when the verdict may change without any event; zero when it can't.
	RecheckAt time.Time
}

// Violation is a rule that the object breaks.
type Violation struct {
	Rule     string
	Severity Severity
	// Message says what is wrong and what to write instead, on one line.
	Message string
	// Docs is the place of the rule's documentation.
	Docs string
	// Unchanged: the stored object breaks the rule already and the update doesn't make it worse, so Deny became Warn.
	Unchanged bool
	// Observing: the rule denies what would be done, and the object's mode is Observe, so Deny became Warn.
	Observing bool

	// noWorse: the update may touch what the rule reads, and makes it no worse.
	noWorse bool
	// lifted: an exception keeps the rule from refusing the object.
	lifted *Lifted
}

// Skip is a rule that could not be evaluated; with severity Deny it refuses the object.
type Skip struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	// Reason says why it could not be evaluated.
	Reason string `json:"reason"`
	// Missing is what wasn't there to ask; "" when the rule itself failed.
	Missing Missing `json:"missing,omitempty"`
	// Docs is the place of the rule's documentation, or the Guardrail that it is in; "" for one of the engine's own.
	Docs string `json:"-"`

	// transient: it isn't the object's fault, and asking again may help.
	transient bool
}

// Missing is something without which a rule can't be evaluated, and which is no mistake of the rule.
type Missing string

// What may be missing.
const (
	MissingFacts      Missing = "facts"
	MissingAuthorizer Missing = "authorizer"
	MissingRequest    Missing = "request"
)

// String is the line that users see.
func (v Violation) String() string {
	line := fmt.Sprintf("%s: %s (%s)", v.Rule, v.Message, v.Docs)
	if v.lifted != nil {
		line += fmt.Sprintf("; GuardrailException %s lifts this rule until %s", v.lifted.Exception, v.lifted.Until.UTC().Format(time.RFC3339))
	}
	switch {
	case v.noWorse:
		line += "; it was so before, and this update makes it no worse"
	case v.Unchanged:
		line += "; it was so before, and this update doesn't touch it"
	}
	if v.Observing {
		line += "; mode: Observe does nothing, and mode: Enforce would be refused"
	}
	return line
}

// String is the line that users see.
func (s Skip) String() string {
	return fmt.Sprintf("%s: not checked: %s", s.Rule, s.Reason)
}

// Message is the text of a refusal: every rule that refuses, one after the other. It is empty when the object is admitted.
func (v Verdict) Message() string { return strings.Join(v.lines(Deny), "\n") }

// Warnings are the texts of what doesn't refuse the object, each on one line: the API server drops others.
func (v Verdict) Warnings() []string {
	lines := v.lines(Warn)
	for i := range lines {
		lines[i] = oneLine(lines[i])
	}
	return lines
}

func (v Verdict) lines(severity Severity) []string {
	var lines []string
	for _, violation := range v.Violations {
		if violation.Severity == severity {
			lines = append(lines, violation.String())
		}
	}
	lines = append(lines, v.notEvaluated(severity)...)
	missing := map[Missing][]string{}
	for _, skip := range v.Skipped {
		if skip.Severity == severity && skip.Missing != "" {
			missing[skip.Missing] = append(missing[skip.Missing], skip.Rule)
		}
	}
	for _, what := range []Missing{MissingFacts, MissingAuthorizer, MissingRequest} { // one line for all rules that miss the same
		if rules := missing[what]; len(rules) > 0 {
			lines = append(lines, fmt.Sprintf("not checked, because %s: %s", reasons[what], strings.Join(rules, ", ")))
		}
	}
	return lines
}

// notEvaluated has a line a reason for which rules could not be evaluated. Where one of them refuses, so does the line, which
// names all: the reason is often long, and is said once.
func (v Verdict) notEvaluated(severity Severity) []string {
	var reasons []string
	rules, worst := map[string][]string{}, map[string]Severity{}
	for _, skip := range v.Skipped {
		if skip.Missing != "" {
			continue
		}
		if rules[skip.Reason] == nil {
			reasons = append(reasons, skip.Reason)
			worst[skip.Reason] = Warn
		}
		rules[skip.Reason] = append(rules[skip.Reason], skip.Rule)
		if skip.Severity == Deny {
			worst[skip.Reason] = Deny
		}
	}
	var lines []string
	for _, reason := range reasons {
		switch of := rules[reason]; {
		case worst[reason] != severity:
		case len(of) == 1:
			lines = append(lines, Skip{Rule: of[0], Reason: reason}.String())
		default:
			lines = append(lines, fmt.Sprintf("not checked: %s (%s)", reason, strings.Join(of, ", ")))
		}
	}
	return lines
}

// RuleIDs are the rules that refuse the object, sorted: those it breaks and those that could not be evaluated.
func (v Verdict) RuleIDs() []string {
	ids := v.BrokenIDs()
	for _, skip := range v.Skipped {
		if skip.Severity == Deny {
			ids = append(ids, skip.Rule)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(ids)))
}

// BrokenIDs are the rules that refuse the object because it breaks them, sorted.
func (v Verdict) BrokenIDs() []string {
	var ids []string
	for _, violation := range v.Violations {
		if violation.Severity == Deny {
			ids = append(ids, violation.Rule)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(ids)))
}

// Undecided says that nothing refuses the object but what was transient: whoever asks again may get a verdict.
func (v Verdict) Undecided() bool {
	stays := func(s Skip) bool { return s.Severity == Deny && !s.transient }
	return !v.Allowed && len(v.Skipped) > 0 && len(v.BrokenIDs()) == 0 && !slices.ContainsFunc(v.Skipped, stays)
}

// message is what the rule says of the object. Like the API server's, it falls back to fixed text when the expression
// fails. Only the message of a rule that no policy carries may have several lines.
func (e *evaluation) message(r *compiledRule) string {
	if r.message == nil {
		return r.FixedMessage()
	}
	value, err := e.run(*r.message)
	switch err = e.inability(err); {
	case errors.Is(err, errBudget):
		return r.FixedMessage() + " (details are missing: " + err.Error() + ")"
	case err != nil:
		return r.FixedMessage()
	}
	text, isText := value.Value().(string)
	text = strings.TrimSpace(text)
	if !isText || text == "" || len(text) > maxMessage || r.portable() && strings.Contains(text, "\n") {
		return r.FixedMessage()
	}
	return text
}

// maxMessage leaves room for the rule's id and the link in what the API server takes from a policy's expression.
const maxMessage = apicel.MaxEvaluatedMessageExpressionSizeBytes - 256

// FixedMessage is the text of a violation that has no other.
func (r *Rule) FixedMessage() string {
	if r.Rationale != "" {
		return oneLine(r.Rationale)
	}
	return "must hold: " + oneLine(r.Expression)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
