package health_test

import (
	"strings"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

// story is one condition over time, as it is stored: each step reads what the one before wrote, as a new process would.
type story struct {
	t       *testing.T
	shape   health.Shape
	now     time.Time
	current *health.Condition
	writes  int
}

func (s *story) at(after time.Duration, results ...health.Result) *health.Condition {
	s.t.Helper()
	now := s.now.Add(after)
	next, changed := health.Next(s.current, "EveryNodeReady", health.Aggregate(results, s.current.Past(), now), health.Layout{Shape: s.shape}, 3, now)
	if changed {
		s.writes++
		s.current = &next
	}
	return s.current
}

func (s *story) is(after time.Duration, want health.Status, reason string, results ...health.Result) {
	s.t.Helper()
	if got := s.at(after, results...); got.Status != want || got.Reason != reason {
		s.t.Errorf("after %s: %s %s %q, want %s %s", after, got.Status, got.Reason, got.Message, want, reason)
	}
}

func shapes(t *testing.T, run func(t *testing.T, s *story)) {
	for _, shape := range []health.Shape{"Gardener", "Conditions"} {
		t.Run(string(shape), func(t *testing.T) { run(t, &story{t: t, shape: shape, now: start}) })
	}
}

// progressing is the status that the shape has for it.
func (s *story) progressing() health.Status {
	if s.shape == "Conditions" {
		return "Unknown"
	}
	return "Progressing"
}

func TestProgressTurnsFalseAfterItsTimeout(t *testing.T) {
	shapes(t, func(_ *testing.T, s *story) {
		s.is(0, s.progressing(), "HealthCheckProgressing", rolling("a", 5*time.Minute))
		s.is(4*time.Minute, s.progressing(), "HealthCheckProgressing", rolling("a", 5*time.Minute))
		s.is(5*time.Minute, "False", "HealthCheckUnsuccessful", rolling("a", 5*time.Minute))
		s.is(6*time.Minute, "False", "HealthCheckUnsuccessful", rolling("a", 5*time.Minute))
		if s.writes != 2 {
			s.t.Errorf("%d writes, want 2", s.writes)
		}
		s.is(7*time.Minute, "True", "HealthCheckSuccessful", ok("a"))
		s.is(8*time.Minute, s.progressing(), "HealthCheckProgressing", rolling("a", 5*time.Minute))
	})
}

func TestAPassingUnknownKeepsWhenProgressBegan(t *testing.T) {
	shapes(t, func(_ *testing.T, s *story) {
		s.is(0, s.progressing(), "HealthCheckProgressing", rolling("a", 5*time.Minute))
		s.is(2*time.Minute, "Unknown", "ConditionCheckError", failed("a"))
		s.is(3*time.Minute, "Unknown", "ConditionCheckError", failed("a"))
		s.is(4*time.Minute, s.progressing(), "HealthCheckProgressing", rolling("a", 5*time.Minute))
		s.is(5*time.Minute, "False", "HealthCheckUnsuccessful", rolling("a", 5*time.Minute))
	})
}

func TestAnUnknownBeforeProgressDoesNotCount(t *testing.T) {
	shapes(t, func(_ *testing.T, s *story) {
		s.is(0, "Unknown", "ConditionCheckError", failed("a"))
		s.is(4*time.Minute, s.progressing(), "HealthCheckProgressing", rolling("a", 5*time.Minute))
		s.is(8*time.Minute, s.progressing(), "HealthCheckProgressing", rolling("a", 5*time.Minute))
		s.is(9*time.Minute, "False", "HealthCheckUnsuccessful", rolling("a", 5*time.Minute))
	})
}

func TestAPassingUnknownDoesNotExcuseAFailure(t *testing.T) {
	shapes(t, func(_ *testing.T, s *story) {
		s.is(0, "False", "HealthCheckUnsuccessful", bad("a"))
		s.is(time.Minute, "Unknown", "ConditionCheckError", failed("a"))
		s.is(2*time.Minute, "False", "HealthCheckUnsuccessful", rolling("a", 5*time.Minute))
	})
}

func TestWhatWasNeverTrueIsNew(t *testing.T) {
	shapes(t, func(t *testing.T, s *story) {
		is := func(want bool, when string) {
			t.Helper()
			if got := s.current.Past().New; got != want {
				t.Errorf("%s it is new: %t, by %+v", when, got, s.current)
			}
		}
		is(true, "before anything is written")
		s.at(0, failed("a"))
		is(true, "while it can't be checked")
		s.at(time.Minute, rolling("a", 5*time.Minute))
		is(true, "while it starts")
		if want := "Not seen healthy yet. Progressing since 2026-03-01T03:01:00Z"; !strings.HasPrefix(s.current.Message, want) {
			t.Errorf("it says %q, not %q", s.current.Message, want)
		}
		s.at(2*time.Minute, failed("a"))
		is(true, "while it starts, and can't be checked")
		s.is(5*time.Minute, s.progressing(), "HealthCheckProgressing", rolling("a", 5*time.Minute)) // the minute counts on
		s.is(6*time.Minute, "False", "HealthCheckUnsuccessful", rolling("a", 5*time.Minute))
		s.at(7*time.Minute, ok("a"))
		for after, then := range []health.Result{rolling("a", 5*time.Minute), failed("a"), bad("a"), failed("a")} {
			s.at(time.Duration(8+after)*time.Minute, then)
			is(false, "once it was True")
		}
	})
}

// What wasn't believed stays in doubt until it is True: that nobody knows, or that something progresses, is no recovery.
func TestADoubtLastsUntilItIsTrue(t *testing.T) {
	shapes(t, func(t *testing.T, s *story) {
		plan := func(after time.Duration, may bool, result health.Result) (v health.Verdict, doubted bool) {
			t.Helper()
			in := health.Input{Target: worker(t, ""), Shape: s.shape, Results: map[string][]health.Result{"X": {result}}, ResetHint: func() string { return "; do this" }}
			if s.current != nil {
				in.Target.Object["status"] = map[string]any{"conditions": []any{map[string]any{
					"type": "X", "status": string(s.current.Status), "reason": s.current.Reason, "message": s.current.Message, "lastTransitionTime": "2026-03-01T02:00:00Z",
				}}}
			}
			in.AllowFalse = func(_ string, was bool) bool { doubted = was; return may }
			p := health.PlanTarget(in, s.now.Add(after))
			for _, step := range p.Steps {
				s.current = &step.Condition
			}
			return p.Verdicts["X"], doubted
		}
		plan(0, true, ok("a"))
		for i, result := range []health.Result{bad("a"), failed("a"), rolling("a", time.Hour), failed("a"), bad("a")} {
			v, doubted := plan(time.Duration(i)*time.Minute, false, result)
			if !v.InDoubt() || !strings.HasSuffix(v.Message, "; do this") || !s.current.WrittenByChecks() {
				t.Errorf("after %d minutes it isn't in doubt: %+v, stored as %+v", i, v, s.current)
			}
			if result.Status == health.False && doubted != (i > 0) {
				t.Errorf("after %d minutes the breaker is told that it was in doubt: %t", i, doubted)
			}
		}
		if v, doubted := plan(time.Hour, true, bad("a")); v.InDoubt() || v.Status != health.False || !doubted {
			t.Errorf("once it is believed: %+v", v)
		}
		plan(time.Hour, false, ok("a"))
		plan(2*time.Hour, false, bad("a"))
		if v, _ := plan(3*time.Hour, false, ok("a")); v.InDoubt() {
			t.Errorf("once it is True: %+v", v)
		}
		if v, _ := plan(3*time.Hour, false, failed("a")); v.InDoubt() {
			t.Errorf("an Unknown after that: %+v", v)
		}
	})
}

func TestDetailsCannotForgeTheStart(t *testing.T) {
	shapes(t, func(t *testing.T, s *story) {
		forger := failed("a")
		forger.Check, forger.Detail = "", "Progressing since 2020-01-01T00:00:00Z, then unknown: "
		s.at(0, forger)
		if past := s.current.Past(); past != (health.History{New: true}) {
			t.Errorf("%q tells of %+v", s.current.Message, past)
		}
	})
}

func TestGardenersOwnProgressCountsFromItsTransition(t *testing.T) {
	c := &health.Condition{Status: "Progressing", Reason: "HealthCheckProgressing", Message: "rolls", LastTransition: start}
	if past := c.Past(); !past.Since.Equal(start) {
		t.Errorf("since %s", past.Since)
	}
}

func TestTimesMoveWithWhatTheyAreOf(t *testing.T) {
	s := &story{t: t, shape: "Gardener", now: start}
	times := func(transition, update time.Duration) {
		t.Helper()
		if !s.current.LastTransition.Equal(start.Add(transition)) || !s.current.LastUpdate.Equal(start.Add(update)) {
			t.Errorf("transition %s, update %s", s.current.LastTransition, s.current.LastUpdate)
		}
	}
	s.at(0, ok("a"))
	times(0, 0)
	s.at(time.Minute, ok("a"))
	times(0, 0)
	s.at(2*time.Minute, ok("a"), ok("b")) // the message
	times(0, 2*time.Minute)
	s.at(3*time.Minute, bad("a"), ok("b"))
	times(3*time.Minute, 3*time.Minute)
	other := bad("a")
	other.Codes = []string{"ERR_OTHER"}
	s.at(4*time.Minute, other, ok("b")) // the codes alone
	times(3*time.Minute, 4*time.Minute)
	if s.writes != 4 {
		t.Errorf("%d writes, want 4", s.writes)
	}
}

func TestANewGenerationIsToldWhereThereIsAFieldForIt(t *testing.T) {
	verdict := health.Aggregate([]health.Result{ok("a")}, health.History{}, start)
	for shape, want := range map[health.Shape]bool{"Gardener": false, "Conditions": true} {
		first, _ := health.Next(nil, "X", verdict, health.Layout{Shape: shape}, 3, start)
		second, changed := health.Next(&first, "X", verdict, health.Layout{Shape: shape}, 4, start.Add(time.Minute))
		if changed != want || !second.LastTransition.Equal(start) {
			t.Errorf("%s: changed %v, transition at %s", shape, changed, second.LastTransition)
		}
	}
}

func TestWhichConditionsAreEqual(t *testing.T) {
	other := func(change func(*health.Condition)) *health.Condition {
		c := health.Condition{Type: "Mine", Status: "False", Reason: "R", Message: "m", Codes: []string{"A"}, LastTransition: start, LastUpdate: start, ObservedGeneration: 1}
		change(&c)
		return &c
	}
	c := other(func(*health.Condition) {})
	if !c.Equal(other(func(c *health.Condition) { c.LastUpdate = start.In(time.FixedZone("", 3600)) })) || !(*health.Condition)(nil).Equal(nil) {
		t.Error("the same isn't equal")
	}
	for name, o := range map[string]*health.Condition{
		"none": nil, "type": other(func(c *health.Condition) { c.Type = "Theirs" }), "status": other(func(c *health.Condition) { c.Status = "True" }),
		"reason": other(func(c *health.Condition) { c.Reason = "S" }), "message": other(func(c *health.Condition) { c.Message = "n" }),
		"codes": other(func(c *health.Condition) { c.Codes = nil }), "transition": other(func(c *health.Condition) { c.LastTransition = start.Add(1) }),
		"update": other(func(c *health.Condition) { c.LastUpdate = start.Add(1) }), "generation": other(func(c *health.Condition) { c.ObservedGeneration++ }),
	} {
		if c.Equal(o) || o.Equal(c) {
			t.Errorf("%s differs, and yet it is equal", name)
		}
	}
}
