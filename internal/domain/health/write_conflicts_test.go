package health_test

import (
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

var (
	ours   = &health.Condition{Type: "X", Status: "False", Reason: "HealthCheckUnsuccessful", Message: "(0/1) Health checks successful: 1) a: ours"}
	theirs = &health.Condition{Type: "X", Status: "True", Reason: "HealthCheckSuccessful", Message: "(1/1) Health checks successful"}
)

// contested is a condition that somebody else may write.
type contested struct {
	t     *testing.T
	known *health.WriteConflicts
	found *health.Condition
	now   time.Time
}

func (c *contested) ask(next *health.Condition) (until time.Time) {
	_, until = c.known.Check("a/t", "u", "X", c.found, next, c.now)
	return until
}

// told says until when it is told of.
func (c *contested) told() time.Time {
	_, until := c.known.Persistent("a/t", "u", c.now)
	return until
}

// write has ours written, if it may be now.
func (c *contested) write(next *health.Condition) (written bool, until time.Time) {
	c.t.Helper()
	if until = c.ask(next); !until.IsZero() {
		return false, until
	}
	c.known.RecordWrite("a/t", "u", "X", c.found, next, c.now)
	c.found = next
	return true, until
}

func TestWhatSomebodyElseWritesIsPutRightLessAndLess(t *testing.T) {
	for name, next := range map[string]*health.Condition{"a condition": ours, "a removal": nil} {
		t.Run(name, func(t *testing.T) { putRight(t, next) })
	}
}

func putRight(t *testing.T, next *health.Condition) {
	t.Helper()
	c := &contested{t, &health.WriteConflicts{}, theirs, start}
	var writes []time.Duration
	for end := start.Add(time.Hour); c.now.Before(end); c.now = c.now.Add(100 * time.Millisecond) {
		if written, until := c.write(next); written {
			writes = append(writes, c.now.Sub(start))
		} else if !until.After(c.now) {
			t.Fatalf("at %s it waits until %s", c.now, until)
		}
		c.found = theirs
	}
	if of, until := c.known.Persistent("a/t", "u", c.now); of != "X" || !until.After(c.now) {
		t.Errorf("told to be contested is %q until %s", of, until)
	}
	if of, _ := c.known.Persistent("a/t", "u", c.now.Add(time.Hour)); of != "" {
		t.Errorf("an hour later %q still is", of)
	}
	if of, _ := c.known.Persistent("a/t", "another", c.now); of != "" {
		t.Errorf("of another target of the name %q is", of)
	}
	if len(writes) < 15 || len(writes) > 22 || writes[1] != 100*time.Millisecond {
		t.Fatalf("it is written at %s", writes)
	}
	if last := writes[len(writes)-1] - writes[len(writes)-2]; last < 5*time.Minute || last > 5*time.Minute+time.Second {
		t.Errorf("at last it is written every %s", last)
	}
}

func TestWhatStandsIsUncontested(t *testing.T) {
	c := &contested{t, &health.WriteConflicts{}, nil, start}
	unknown := &health.Condition{Type: "X", Status: "Unknown", Reason: "ConditionCheckError"}
	for range 100 {
		c.write(ours)
		c.now, c.found = c.now.Add(time.Second), theirs
	}
	if written, _ := c.write(unknown); !written {
		t.Error("what turned into something else for us isn't written at once")
	}
	c.found, c.now = theirs, c.now.Add(time.Second)
	if written, until := c.write(unknown); written || until.IsZero() {
		t.Error("after that it is as if nobody had written anything else")
	}
	c.now = c.now.Add(time.Hour)
	c.write(unknown)
	if written, _ := c.write(ours); !written { // in the place of what we wrote
		t.Error("what stands isn't changed at once")
	}
	c.found = theirs
	if written, _ := c.write(ours); !written || !c.told().IsZero() {
		t.Error("the first that somebody else writes isn't put right at once, without a word")
	}
}

func TestAContestIsForgottenWithItsTarget(t *testing.T) {
	c := &contested{t, &health.WriteConflicts{}, nil, start}
	for range 5 {
		c.write(ours)
		c.found = theirs
	}
	if written, _ := c.write(ours); written {
		t.Fatal("it isn't contested")
	}
	if _, until := c.known.Check("a/t", "another", "X", theirs, ours, c.now); !until.IsZero() {
		t.Error("another target of the name inherits it")
	}
	c.known.Forget("a/t")
	if written, _ := c.write(ours); !written {
		t.Error("it is, after its target was forgotten")
	}
}

func TestWhatIsContestedIsNotPlanned(t *testing.T) {
	until := start.Add(time.Minute)
	p := plan(t, "status: {conditions: [{type: X, status: 'True', reason: HealthCheckSuccessful}, {type: Old, status: 'True', reason: HealthCheckSuccessful, message: (1/1) Health checks successful}]}", map[string][]health.Result{"X": {bad("a")}, "Z": {ok("b")}}, func(in *health.Input) {
		in.Remove = []string{"Old"}
		in.AllowFalse = func(string, bool) bool { t.Error("the breaker is asked"); return true }
		in.CheckConflict = func(conditionType string, found, next *health.Condition) (bool, time.Time) {
			switch {
			case conditionType == "Z":
				return false, time.Time{}
			case found.Status != health.True || conditionType == "X" && next.Status != health.False || conditionType == "Old" && next != nil:
				t.Errorf("%+v, for %+v", found, next)
			}
			return true, until
		}
	})
	if len(p.Steps) != 1 || p.Steps[0].Condition.Type != "Z" || !p.RequeueAt.Equal(until) || p.Verdicts["X"].Status != health.False {
		t.Errorf("%+v", p)
	}
}

// What we had written already, and somebody else replaced, isn't news: it doesn't count for the breaker.
func TestWhatIsRewrittenTurnsNothing(t *testing.T) {
	p := plan(t, "status: {conditions: [{type: X, status: 'True', reason: HealthCheckSuccessful}]}", map[string][]health.Result{"X": {bad("a")}}, func(in *health.Input) {
		in.AllowFalse = func(string, bool) bool { t.Error("the breaker is asked"); return false }
		in.CheckConflict = func(string, *health.Condition, *health.Condition) (bool, time.Time) { return true, time.Time{} }
	})
	if len(p.Steps) != 1 || p.Steps[0].Condition.Status != health.False || p.Steps[0].Counted {
		t.Errorf("%+v", p)
	}
}

// The answer to a write may be lost, and others may write what is right: what stands is what we had written last.
func TestWhatIsRightWhoeverWroteItIsNoContest(t *testing.T) {
	c := &contested{t, &health.WriteConflicts{}, nil, start}
	c.write(ours)
	c.found = theirs
	c.ask(theirs) // by our checks it is True, too, and nothing is to be written
	if rewrites, _ := c.known.Check("a/t", "u", "X", c.found, ours, c.now.Add(time.Hour)); rewrites {
		t.Error("what turns False again counts as known")
	}
}

func TestContestIsAskedWhereNothingIsWritten(t *testing.T) {
	asked := false
	plan(t, "status: {conditions: [{type: X, status: 'True', reason: HealthCheckSuccessful, message: (1/1) Health checks successful}]}", map[string][]health.Result{"X": {ok("a")}}, func(in *health.Input) {
		in.CheckConflict = func(_ string, found, next *health.Condition) (bool, time.Time) {
			asked = found.Status == next.Status
			return false, time.Time{}
		}
	})
	if !asked {
		t.Error("it doesn't learn what stands")
	}
}
