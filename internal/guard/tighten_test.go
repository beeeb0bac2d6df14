package guard

import (
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// midway is a clock that is asked while Guardrails are being put in force, after their rules were compiled.
type midway struct {
	*clocktesting.FakePassiveClock
	do func()
}

func (c *midway) Now() time.Time {
	if do := c.do; do != nil {
		c.do = nil
		do()
	}
	return c.FakePassiveClock.Now()
}

func TestAPauseAndALimitHoldWhileRulesAreStillBeingCompiled(t *testing.T) {
	compiled, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	clock := &midway{FakePassiveClock: clocktesting.NewFakePassiveClock(noon)}
	g := under(t, compiled, Options{Clock: clock})
	type rails = []*v1alpha1.Guardrail
	org := gr(t, "org", noEviction)
	state := func() []string {
		return append(slices.Clone(g.Policy().PausedBy), g.Policy().Limits.MaxTaintedNodes.String())
	}
	expect := func(when string, want ...string) {
		t.Helper()
		if got := state(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	told := 0
	g.OnChange(func(c Change) {
		if c.Policy {
			told++
		}
	})
	g.Tighten(rails{org})
	g.SetGuardrails(rails{org})
	expect("nothing is paused", "10%")
	freeze := gr(t, "freeze", "{paused: true, limits: {maxTaintedNodes: 3}}")
	clock.do = func() { // while an older list is being put in force
		g.Tighten(rails{freeze, org})
		expect("at once", "freeze", "10% and 3")
		if told != 1 {
			t.Errorf("told %d times", told)
		}
	}
	g.SetGuardrails(rails{org})
	expect("the older list doesn't take it back", "freeze", "10% and 3")
	g.SetGuardrails(rails{freeze, org})
	expect("it is in force", "freeze", "3")

	looser := gr(t, "freeze", "{limits: {maxTaintedNodes: 50%}}")
	g.Tighten(rails{looser, org})
	expect("what becomes looser waits until the rules that may come with it are in force", "freeze", "50% and 3")
	g.SetGuardrails(rails{looser, org})
	expect("then it holds", "50%")
	g.Tighten(nil)
	g.SetGuardrails(nil)
	expect("all are gone", "10%")
}

func TestAnExceptionNeedNotWaitForTheCompiler(t *testing.T) {
	g := newTestGuard(t, nil)
	g.setting.Lock() // Guardrails are being compiled
	defer g.setting.Unlock()
	g.SetExceptions([]*v1alpha1.GuardrailException{lifting(t, healthySpec, noon.Add(time.Hour), healthyRule)})
	if _, v := Admit(t.Context(), g, stored(t, healthySpec)); !v.Allowed {
		t.Error(v.Message())
	}
}

func TestNotKnowingWhatGuardrailsThereArePausesUntilItIsKnownAgain(t *testing.T) {
	g := newTestGuard(t, nil)
	var told []Change
	g.OnChange(func(c Change) { told = append(told, c) })
	g.GuardrailsUnknown("forbidden")
	g.GuardrailsUnknown("forbidden")
	if p := g.Policy(); !p.Paused() || p.Lost != "forbidden" || len(told) != 1 || !told[0].Policy {
		t.Errorf("paused %v, told %v", p.Paused(), told)
	}
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", "{limits: {maxTaintedNodes: 50%}}")})
	g.Tighten(nil)
	if !g.Policy().Paused() {
		t.Error("other news end it")
	}
	if _, v := Admit(t.Context(), g, stored(t, goodSpec)); !v.Allowed {
		t.Errorf("the rules say nothing else: %s", v.Message())
	}
	g.GuardrailsUnknown("")
	if p := g.Policy(); p.Paused() || p.Limits.MaxTaintedNodes.String() != "50%" {
		t.Errorf("known again, it is %+v", p)
	}
}
