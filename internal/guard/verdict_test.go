package guard

import (
	"slices"
	"testing"
)

func TestAReasonForWhichRulesWereNotCheckedIsSaidOnce(t *testing.T) {
	const away, slow = "read Secret shop/in: forbidden", "out of time"
	v := Verdict{Skipped: []Skip{
		{Rule: "k/a", Severity: Deny, Reason: away}, {Rule: "k/b", Severity: Warn, Reason: away}, {Rule: "k/c", Severity: Deny, Reason: away},
		{Rule: "k/d", Severity: Warn, Reason: slow}, {Rule: "k/e", Severity: Deny, Reason: "a fault of its own"},
		{Rule: "k/f", Severity: Warn, Reason: reasons[MissingFacts], Missing: MissingFacts},
	}}
	if got, want := v.Message(), "not checked: read Secret shop/in: forbidden (k/a, k/b, k/c)\nk/e: not checked: a fault of its own"; got != want {
		t.Errorf("the refusal says\n%s", got)
	}
	if got, want := v.Warnings(), []string{"k/d: not checked: out of time", "not checked, because Autohealer hasn't read all of the cluster yet: k/f"}; !slices.Equal(got, want) {
		t.Errorf("warnings are %q", got)
	}
	if got := v.RuleIDs(); !slices.Equal(got, []string{"k/a", "k/c", "k/e"}) {
		t.Errorf("%v refuse", got)
	}
}

func TestWhatIsTransientIsUndecidedUnlessSomethingElseRefuses(t *testing.T) {
	slow := Skip{Rule: "k/a", Severity: Deny, transient: true}
	for name, c := range map[string]struct {
		v    Verdict
		want bool
	}{
		"admitted":                         {Verdict{Allowed: true, Skipped: []Skip{{Rule: "k/c", Severity: Warn, transient: true}}}, false},
		"no verdict at all":                {Verdict{}, false},
		"slow":                             {Verdict{Skipped: []Skip{slow}}, true},
		"slow, and another rule warns":     {Verdict{Skipped: []Skip{slow}, Violations: []Violation{{Rule: "k/c", Severity: Warn}}}, true},
		"slow, and another rule refuses":   {Verdict{Skipped: []Skip{slow}, Violations: []Violation{{Rule: "k/c", Severity: Deny}}}, false},
		"slow, and another rule is broken": {Verdict{Skipped: []Skip{slow, {Rule: "k/c", Severity: Deny}}}, false},
		"slow, and not all is read":        {Verdict{Skipped: []Skip{slow, {Rule: "k/c", Severity: Deny, Missing: MissingFacts}}}, false},
		"slow, and one that warns is":      {Verdict{Skipped: []Skip{slow, {Rule: "k/c", Severity: Warn}}}, true},
	} {
		if got := c.v.Undecided(); got != c.want {
			t.Errorf("%s: undecided %v", name, got)
		}
	}
}
