package policy

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/resourcestack/autohealer/internal/guard"
)

func TestAnAdmissionCoversOneObjectUnderItsRulesUntilItsTime(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	for name, c := range map[string]struct {
		change func(p *sets, g *guard.Guard)
		uid    string
		admits bool
		judged time.Duration // after noon, the last time
	}{
		"as it was judged":             {nil, "uid-of-a", true, 0},
		"another object of that name":  {nil, "uid-of-b", false, 0},
		"its rules changed":            {func(_ *sets, g *guard.Guard) { g.SetGuardrails(rule("ConditionSet", "false")) }, "uid-of-a", false, 0},
		"it was judged by other rules": {func(p *sets, _ *guard.Guard) { edit(p, func(j *known) { j.Verdict.RuleSetHash = "others" }) }, "uid-of-a", false, 0},
		"it is gone":                   {func(p *sets, _ *guard.Guard) { p.Gone(stored("a")) }, "uid-of-a", false, 0},
		"its time isn't over": {func(p *sets, _ *guard.Guard) {
			edit(p, func(j *known) { j.Verdict.RecheckAt = noon.Add(time.Hour) })
			clock.SetTime(noon.Add(999 * time.Millisecond))
		}, "uid-of-a", true, 0},
		"it may be another one by now": {func(p *sets, _ *guard.Guard) {
			edit(p, func(j *known) { j.Verdict.RecheckAt = noon.Add(time.Hour) })
			clock.SetTime(noon.Add(time.Second))
		}, "uid-of-a", true, time.Second},
		"its time is over": {func(p *sets, _ *guard.Guard) {
			edit(p, func(j *known) { j.Verdict.RecheckAt = noon.Add(100 * time.Millisecond) })
			clock.SetTime(noon.Add(100 * time.Millisecond))
		}, "uid-of-a", true, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			clock.SetTime(noon)
			p, g := judging(t, guard.Options{Clock: clock}, "a")
			if c.change != nil {
				c.change(p, g)
			}
			now, ok := p.Admission(t.Context(), key("a"), stored(c.uid[len("uid-of-"):]).UID)
			if ok != c.admits || ok && (!now.Admitted.Valid() || now.JudgedAt.Sub(noon) != c.judged) {
				t.Errorf("admits: %t, valid %t, judged %s after noon; want %t, %s", ok, now.Admitted.Valid(), now.JudgedAt.Sub(noon), c.admits, c.judged)
			}
		})
	}
}

// edit changes what is known of set a.
func edit(p *sets, change func(*known)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := p.judged[key("a")]
	change(&j)
	p.judged[key("a")] = j
}
