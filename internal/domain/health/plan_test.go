package health_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

func plan(t *testing.T, status string, results map[string][]health.Result, more func(*health.Input)) health.Plan {
	t.Helper()
	in := health.Input{Target: worker(t, status), Shape: "Gardener", Results: results}
	if more != nil {
		more(&in)
	}
	return health.PlanTarget(in, start)
}

func TestTheExampleOfAWorker(t *testing.T) {
	p := plan(t, "", map[string][]health.Result{
		"SystemComponentsHealthy": {ok("shoot-mcm")}, "EveryNodeReady": {ok("nodes"), ok("mcm")},
	}, nil)
	if len(p.Steps) != 2 {
		t.Fatalf("%+v", p.Steps)
	}
	for i, want := range []string{"EveryNodeReady (2/2) Health checks successful", "SystemComponentsHealthy (1/1) Health checks successful"} {
		c := p.Steps[i].Condition
		if got := c.Type + " " + c.Message; got != want || c.Status != "True" || c.Reason != "HealthCheckSuccessful" {
			t.Errorf("%+v", c)
		}
	}
}

func TestWhatIsAsItShouldBeIsNotWritten(t *testing.T) {
	results := map[string][]health.Result{"X": {ok("a")}}
	const is = "status: {conditions: [{type: X, status: 'True', reason: HealthCheckSuccessful, message: (1/1) Health checks successful}]}"
	if p := plan(t, is, results, nil); len(p.Steps) != 0 || p.Verdicts["X"].Status != "True" {
		t.Errorf("%+v", p)
	}
}

func TestThePlanLooksAgainAtTheFirstDeadline(t *testing.T) {
	p := plan(t, "", map[string][]health.Result{
		"X": {rolling("a", 9*time.Minute)}, "Y": {rolling("b", 5*time.Minute)}, "Z": {ok("c")},
	}, nil)
	if !p.LookAgain.Equal(start.Add(5 * time.Minute)) {
		t.Errorf("looks again at %s", p.LookAgain)
	}
}

func TestTheBreakerHoldsWhatTurnsFalse(t *testing.T) {
	asked := 0
	refuse := func(in *health.Input) { in.MayFail = func(string) bool { asked++; return false } }
	both := map[string][]health.Result{"X": {bad("a")}, "Y": {bad("b")}, "Z": {ok("c")}}
	p := plan(t, "status: {conditions: [{type: X, status: 'True', reason: HealthCheckSuccessful}]}", both, refuse)
	if asked != 2 || len(p.Steps) != 3 {
		t.Fatalf("asked %d times: %+v", asked, p.Steps)
	}
	for _, s := range p.Steps[:2] {
		if s.Condition.Status != "Unknown" || s.Condition.Reason != "HealthCheckInDoubt" || !s.Held {
			t.Errorf("%+v", s)
		}
	}
	if s := p.Steps[2]; s.Condition.Status != "True" || s.Held {
		t.Errorf("%+v", s)
	}

	asked = 0
	was := "status: {conditions: [{type: X, status: 'False', reason: HealthCheckUnsuccessful, message: old}]}"
	if p := plan(t, was, map[string][]health.Result{"X": {bad("a")}}, refuse); asked != 0 || len(p.Steps) != 1 || p.Steps[0].Condition.Status != "False" {
		t.Errorf("what is False already: asked %d times: %+v", asked, p.Steps)
	}
}

func TestTypesToRemove(t *testing.T) {
	remove := func(in *health.Input) { in.Remove = []string{"Old", "X", "Never", "Theirs"} }
	const byChecks = "status: 'True', reason: HealthCheckSuccessful, message: (1/1) Health checks successful}"
	p := plan(t, "status: {conditions: [{type: Old, "+byChecks+", {type: Kept, "+byChecks+", {type: Theirs, status: 'True'}]}", map[string][]health.Result{"X": {ok("a")}}, remove)
	if len(p.Steps) != 2 || p.Steps[0].Remove || !p.Steps[1].Remove || p.Steps[1].Condition.Type != "Old" {
		t.Errorf("%+v", p.Steps)
	}
}

func TestFlips(t *testing.T) {
	const targets = 20 // of which 4 are a fifth
	flips := &health.Flips{}
	flip := func(i int, after time.Duration, want bool) {
		t.Helper()
		if got := flips.MayFail(fmt.Sprint("target-", i), "X", targets, start.Add(after)); got != want {
			t.Errorf("target %d after %s: %v", i, after, got)
		}
	}
	for i := range 4 {
		flip(i, 0, true)
	}
	flip(0, time.Minute, true) // again, but one target
	flip(4, 4*time.Minute, false)
	b, open := flips.Breaker()
	if !open || b.Flipped != 5 || b.Targets != targets || b.ID != "20260301t030400z" {
		t.Fatalf("%+v", b)
	}
	flip(9, time.Hour, false) // time doesn't close it
	if flips.Reset("another", start) || !flips.Reset(b.ID, start.Add(time.Hour)) {
		t.Error("reset by another's id, or not by its own")
	}
	flip(9, time.Hour, true)
}

func TestWhatABreakerHeldBackIsBelievedAfterItsReset(t *testing.T) {
	const targets = 20
	flips, now := &health.Flips{}, start
	all := func(from, to int) (may int) {
		for i := from; i < to; i++ {
			if flips.MayFail(fmt.Sprint(i), "X", targets, now) {
				may++
			}
		}
		return may
	}
	if may := all(0, 12); may != 4 {
		t.Fatalf("%d of 12 are believed at once", may)
	}
	flips.Forget("11") // it is gone
	b, _ := flips.Breaker()
	flips.Reset(b.ID, now)
	if may := all(4, 11); may != 7 {
		t.Errorf("after the reset %d of the 7 that were held back are believed", may)
	}
	if may := all(11, 20); may != 4 {
		t.Errorf("%d others are believed, not as many as may turn False together", may)
	}
	b, _ = flips.Breaker()
	flips.Reset(b.ID, now)
	now = now.Add(5 * time.Minute)
	if may := all(0, 20); may != 4 {
		t.Errorf("%d of a later wave are believed", may)
	}
}

func TestWhatRecoveredIsNotBelieved(t *testing.T) {
	const targets = 100
	for name, recoverAt := range map[string]struct{ beforeReset, afterReset, afterFlip bool }{
		"while the breaker was open":            {beforeReset: true},
		"after its reset":                       {afterReset: true},
		"after it turned False, being believed": {afterFlip: true},
	} {
		t.Run(name, func(t *testing.T) {
			flips := &health.Flips{}
			fail := func() (may int) {
				for i := range targets {
					if flips.MayFail(fmt.Sprint(i), "X", targets, start) {
						may++
					}
				}
				return may
			}
			recovered := func(did bool) {
				for i := 0; did && i < targets; i++ {
					flips.Recovered(fmt.Sprint(i), "X")
				}
			}
			if may := fail(); may != 20 {
				t.Fatalf("%d are believed at once", may)
			}
			recovered(recoverAt.beforeReset)
			b, _ := flips.Breaker()
			flips.Reset(b.ID, start)
			recovered(recoverAt.afterReset)
			if recoverAt.afterFlip {
				for i := 20; i < targets; i++ {
					if !flips.MayFail(fmt.Sprint(i), "X", targets, start) {
						t.Fatalf("the %dth isn't believed after the reset", i+1)
					}
				}
				recovered(true)
			}
			if may := fail(); may != 20 {
				t.Errorf("%d of a new wave are believed", may)
			}
		})
	}
}

func TestEachConditionInDoubtIsBelieved(t *testing.T) {
	flips := &health.Flips{}
	flips.Restore(health.Breaker{ID: "x", OpenedAt: start})
	all := func() (may int) {
		for i := range 10 {
			for _, conditionType := range []string{"X", "Y"} {
				if flips.MayFail(fmt.Sprint(i), conditionType, 10, start) {
					may++
				}
			}
		}
		return may
	}
	if may := all(); may != 0 {
		t.Fatalf("%d are believed while the breaker is open", may)
	}
	for i := range 5 {
		flips.Recovered(fmt.Sprint(i), "Y")
	}
	for i := 5; i < 10; i++ {
		flips.Recovered(fmt.Sprint(i), "X")
	}
	flips.Reset("x", start)
	for i := range 10 {
		if doubted := map[bool]string{true: "X", false: "Y"}[i < 5]; !flips.MayFail(fmt.Sprint(i), doubted, 10, start) {
			t.Errorf("what %d is in doubt for isn't believed", i)
		}
	}
	if _, open := flips.Breaker(); open {
		t.Error("what was in doubt opens the breaker again")
	}
	for i, may := range []bool{true, true, false} { // three of ten are too many
		if flips.MayFail(fmt.Sprint(i), "Y", 10, start) != may {
			t.Errorf("the condition of %d that wasn't in doubt isn't counted", i)
		}
	}
}

func TestFlipsThatAreFarApart(t *testing.T) {
	flips := &health.Flips{}
	for i := range 30 {
		if !flips.MayFail(fmt.Sprint(i), "X", 20, start.Add(time.Duration(i)*80*time.Second)) {
			t.Fatalf("the breaker opened at the %dth", i)
		}
	}
}

func TestTwoTargetsAreTooFewToTell(t *testing.T) {
	flips := &health.Flips{}
	if !flips.MayFail("a", "X", 2, start) || !flips.MayFail("b", "X", 2, start) {
		t.Error("two of two opened the breaker")
	}
	if flips.MayFail("c", "X", 3, start) {
		t.Error("three of three didn't")
	}
}

func TestAForgottenTargetDoesNotCount(t *testing.T) {
	flips := &health.Flips{}
	for _, name := range []string{"a", "b", "c", "d"} {
		if !flips.MayFail(name, "X", 3, start) {
			t.Fatalf("%s opened the breaker", name)
		}
		flips.Forget(name)
	}
}

func TestAWriteThatFailedTakesBackItsOwnConditionAlone(t *testing.T) {
	flips := &health.Flips{}
	for _, name := range []string{"a", "b"} {
		if !flips.MayFail(name, "X", 3, start) || !flips.MayFail(name, "Y", 3, start) {
			t.Fatalf("%s opened the breaker", name)
		}
		flips.Unwritten(name, "Y")
	}
	if flips.MayFail("c", "X", 3, start) {
		t.Error("what turned False and was written isn't counted")
	}
}

func TestARestoredBreakerHolds(t *testing.T) {
	flips := &health.Flips{}
	flips.Restore(health.Breaker{ID: "x", OpenedAt: start})
	flips.Restore(health.Breaker{ID: "y", OpenedAt: start})
	if b, open := flips.Breaker(); !open || b.ID != "x" || flips.MayFail("a", "X", 100, start) {
		t.Errorf("%+v", b)
	}
}
