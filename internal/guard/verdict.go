package guard

import (
	"fmt"
	"slices"
	"strings"
	"time"
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
	// FactsTime is when the facts were last known to be current; zero when no rule looked at them.
	FactsTime time.Time
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
	// Unchanged: the stored object breaks the rule already and the update doesn't touch it, so Deny became Warn.
	Unchanged bool
}

// Skip is a rule that could not be evaluated; with severity Deny it refuses the object.
type Skip struct {
	Rule     string
	Severity Severity
	// Reason says why it could not be evaluated.
	Reason string
}

// String is the line that users see.
func (v Violation) String() string {
	line := fmt.Sprintf("%s: %s (%s)", v.Rule, v.Message, v.Docs)
	if v.Unchanged {
		line += "; it was so before, and this update doesn't touch it"
	}
	return line
}

// String is the line that users see.
func (s Skip) String() string {
	return fmt.Sprintf("%s: not checked: %s", s.Rule, s.Reason)
}

// Message is the text of a refusal: every rule that refuses, one a line. It is empty when the object is admitted.
func (v Verdict) Message() string { return strings.Join(v.lines(Deny), "\n") }

// Warnings are the texts of what doesn't refuse the object, one a rule.
func (v Verdict) Warnings() []string { return v.lines(Warn) }

func (v Verdict) lines(severity Severity) []string {
	var lines []string
	for _, violation := range v.Violations {
		if violation.Severity == severity {
			lines = append(lines, violation.String())
		}
	}
	for _, skip := range v.Skipped {
		if skip.Severity == severity {
			lines = append(lines, skip.String())
		}
	}
	return lines
}

// RuleIDs are the rules that refuse the object, sorted: those it breaks and those that could not be evaluated.
func (v Verdict) RuleIDs() []string {
	var ids []string
	for _, violation := range v.Violations {
		if violation.Severity == Deny {
			ids = append(ids, violation.Rule)
		}
	}
	for _, skip := range v.Skipped {
		if skip.Severity == Deny {
			ids = append(ids, skip.Rule)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
