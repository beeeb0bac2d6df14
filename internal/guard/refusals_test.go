package guard

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// asked is an authorizer that nobody may ask.
type asked struct{ t *testing.T }

func (a asked) Authorize(_ context.Context, q authorizer.Attributes) (authorizer.Decision, string, error) {
	a.t.Errorf("asked what %s may do", q.GetUser().GetName())
	return authorizer.DecisionAllow, "", nil
}

const notCounted = "guardrail/refusals-not-counted"

func TestAReviewOfAGuardrailAsksForNobodysRights(t *testing.T) {
	compiled, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	g := under(t, compiled, Options{Stored: someSets(t, 3, 2), Authorizer: asked{t}})
	const oracle = "authorizer.serviceAccount('kube-system', 'someone').group('').resource('secrets').check('get').allowed()"
	v := reviewRail(t, t.Context(), g, "", `{rules: [{name: oracle, kinds: [ConditionSet, WeederConfig], expression: "`+oracle+`"},
		{name: no-eviction, kinds: [ConditionSet], expression: "object.spec.effect != 'NoExecute'", messageExpression: "string(`+oracle+`)"}]}`)
	const want = notCounted + ": the stored policies that its rules would stop were counted without what rule oracle refuses, because it asks the authorizer; " +
		"begin with severity: Warn, or look at rejectedPolicies in the status (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#guardrail-refusals-not-counted)"
	if got := warningOf(v, notCounted); !v.Allowed || got != want {
		t.Errorf("allowed %v: %s\n got %s\nwant %s", v.Allowed, v.Message(), got, want)
	}
	if got := warningOf(v, "guardrail/refuses-stored"); !strings.Contains(got, "2 of 3 stored ConditionSets") {
		t.Errorf("the other rule isn't counted: %q", got)
	}
}

func TestAllStoredPoliciesTogetherHaveOneBudget(t *testing.T) {
	const many, costly = 5000, "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(a, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(b, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(c, a * b * c < 2000))) && object.spec.effect != 'NoExecute'"
	synctest.Test(t, func(t *testing.T) { // time stands still, so that the budget ends it
		s := someSets(t, many, many)
		looked := 0
		s.ends = func(int) { looked++ }
		v := reviewRail(t, t.Context(), guardOver(t, s), "", `{rules: [{name: costly, kinds: [ConditionSet], expression: "`+costly+`"}]}`)
		if looked < 10 || looked > many/2 {
			t.Errorf("judged %d of %d stored sets at 10,000 cost units each, want about 500", looked, many)
		}
		if got := warningOf(v, notCounted); !v.Allowed || !strings.Contains(got, fmt.Sprintf("all stored ConditionSets but %d, because it would take too long now", looked-1)) {
			t.Errorf("allowed %v, %d judged: %s", v.Allowed, looked-1, got)
		}
		if got := warningOf(v, "guardrail/refuses-stored"); !strings.Contains(got, fmt.Sprintf("%d of %d stored ConditionSets so far, and there are more", looked-1, looked-1)) {
			t.Error(got)
		}
	})
}

func TestAPauseNeverWaitsForReviewsOfOtherGuardrails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOver(t, someSets(t, 3, 0))
		g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", noEviction)})
		if err := g.reviewing.Acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		began := time.Now()
		for _, pause := range []string{"{paused: true}", strings.Replace(noEviction, "{rules", "{paused: true, rules", 1)} {
			if v := reviewRail(t, ctx, g, noEviction, pause); !v.Allowed || time.Since(began) > 0 {
				t.Errorf("%s: allowed %v after %s: %s", pause, v.Allowed, time.Since(began), v.Message())
			}
		}
		const want = "not checked: plan: too many Guardrails are being reviewed at once; try again in a moment (guardrail/rules-compile, "
		v := reviewRail(t, ctx, g, noEviction, strings.ReplaceAll(noEviction, "NoExecute", "NoSchedule"))
		if !v.Undecided() || !strings.HasPrefix(v.Message(), want) || time.Since(began) != 3*time.Second {
			t.Errorf("a new rule: undecided %v after %s: %s", v.Undecided(), time.Since(began), v.Message())
		}
	})
}

func TestTheVerdictComesThoughStoredPoliciesCannotBeCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := someSets(t, 3, 3)
		var g *Guard
		s.ends = func(i int) {
			if i == 1 {
				_ = g.reviewing.Acquire(t.Context(), 1) // somebody else's turn, for long
			}
		}
		g = guardOver(t, s)
		began := time.Now()
		v := reviewRail(t, t.Context(), g, "", noEviction)
		if got := warningOf(v, notCounted); !v.Allowed || time.Since(began) != time.Second || !strings.Contains(got, "all stored ConditionSets but 1, because it would take too long now") {
			t.Errorf("allowed %v after %s: %s", v.Allowed, time.Since(began), got)
		}
	})
}

func TestReviewsDoNotTouchWhatIsCompiledAndInForce(t *testing.T) {
	g := newTestGuard(t, nil)
	platform := []*v1alpha1.Guardrail{gr(t, "platform", noEviction)}
	g.SetGuardrails(platform)
	own := func() *compiledRule { return g.rules.Load().kinds["ConditionSet"].own[0] }
	first := own()
	for i := range 20 {
		reviewRail(t, t.Context(), g, "", fmt.Sprintf(`{rules: [{name: r, kinds: [ConditionSet], expression: "object.metadata.name != 'x%d'"}]}`, i))
	}
	g.SetGuardrails(platform)
	if own() != first || len(g.rules.Load().compiled) != 1 {
		t.Errorf("compiled again: %v; %d rules are remembered, and one is in force", own() != first, len(g.rules.Load().compiled))
	}
	g.SetGuardrails(nil)
	if n := len(g.rules.Load().compiled); n != 0 {
		t.Errorf("%d rules are remembered, and none is in force", n)
	}
}
