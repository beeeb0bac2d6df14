package probe_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// pair is a pair of results; an empty external one isn't run.
type pair struct{ internal, external probe.Class }

func times(n int, p pair) []pair {
	all := make([]pair, n)
	for i := range all {
		all[i] = p
	}
	return all
}

func after(c *probe.Config, s probe.State, at time.Time, pairs ...[]pair) (probe.State, time.Time) {
	for _, some := range pairs {
		for _, p := range some {
			s = s.After(c, run(at, p.internal, p.external))
			at = at.Add(10 * time.Second)
		}
	}
	return s, at
}

var (
	fine    = pair{"OK", "OK"}
	cut     = pair{"OK", "Timeout"}
	allDown = pair{"Dial", ""}
)

func TestWhatFollowsFromTheProbes(t *testing.T) {
	for name, tt := range map[string]struct {
		more string
		runs [][]pair
		want string
	}{
		"nothing is known yet":                                   {"", nil, "hold"},
		"two failures are too few":                               {"", [][]pair{{fine, cut, cut}}, "hold"},
		"three outside":                                          {"", [][]pair{{fine, cut, cut, cut}}, "down"},
		"a success between them":                                 {"", [][]pair{{cut, cut, fine, cut, cut}}, "hold"},
		"a transient one between them":                           {"", [][]pair{{cut, cut, {"OK", "Forbidden"}, cut}}, "down"},
		"a transient one after them starts nothing":              {"", [][]pair{{cut, cut, cut, {"OK", "TooManyRequests"}}}, "hold"},
		"no Secret after them starts nothing":                    {"", [][]pair{{cut, cut, cut, {"OK", "SecretMissing"}}}, "hold"},
		"the internal one fails after them":                      {"", [][]pair{{cut, cut, cut, allDown}}, "hold"},
		"the internal one is throttled after them":               {"", [][]pair{{cut, cut, cut, {"TooManyRequests", ""}}}, "hold"},
		"one failure inside between them":                        {"", [][]pair{{cut, cut, allDown, cut}}, "down"},
		"the whole API server was down between them":             {"", [][]pair{{cut, cut}, times(3, allDown), {cut}}, "hold"},
		"it comes back without its outer side":                   {"", [][]pair{{cut, cut}, times(3, allDown), times(3, cut)}, "down"},
		"everything fails":                                       {"", [][]pair{times(9, allDown)}, "hold"},
		"healthy for 60 s":                                       {"", [][]pair{times(7, fine)}, "up"},
		"healthy for 50 s":                                       {"", [][]pair{times(6, fine)}, "hold"},
		"healthy for 60 s with a throttled run":                  {"", [][]pair{times(5, fine), {{"TooManyRequests", ""}}, {fine}}, "up"},
		"healthy for 60 s, the last transient":                   {"", [][]pair{times(6, fine), {{"OK", "Forbidden"}}}, "hold"},
		"healthy for 60 s but for one failure":                   {"", [][]pair{times(3, fine), {cut}, times(3, fine)}, "hold"},
		"two successes inside are wanted, one is there":          {"successThreshold: 2", [][]pair{{allDown, cut, allDown, cut, allDown, cut}}, "hold"},
		"two successes inside are wanted and there":              {"successThreshold: 2", [][]pair{{cut, cut, cut}}, "down"},
		"an internal one that never ran says nothing":            {"", [][]pair{times(9, pair{"SecretMissing", ""})}, "hold"},
		"the threshold is one":                                   {"failureThreshold: 1", [][]pair{{cut}}, "down"},
		"leases may not be listed, and it is fine for 60 s":      {"nodeLeases: {}", [][]pair{times(7, fine)}, "up"},
		"leases may not be listed, not often enough yet":         {"nodeLeases: {}\nfailureThreshold: 8", [][]pair{times(7, fine)}, "hold"},
		"the external one fails where leases are looked at, too": {"nodeLeases: {}", [][]pair{times(3, cut)}, "down"},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(t, tt.more)
			s, _ := after(c, probe.State{}, start, tt.runs...)
			if s.Direction.String() != tt.want {
				t.Errorf("%s, want %s: %+v", s.Direction, tt.want, s)
			}
		})
	}
}

func TestWhenToProbeAgain(t *testing.T) {
	retry := func(after time.Duration) probe.Outcome {
		return probe.Outcome{Class: probe.TooManyRequests, RetryAfter: after}
	}
	for name, tt := range map[string]struct {
		before   []pair
		internal probe.Outcome
		took     time.Duration
		want     time.Duration
	}{
		"after an interval":                       {nil, outcome("OK"), time.Second, 10 * time.Second},
		"two failures inside":                     {times(1, allDown), outcome("Dial"), time.Second, 10 * time.Second},
		"three failures inside back off":          {times(2, allDown), outcome("Dial"), time.Second, 30 * time.Second},
		"throttled":                               {nil, retry(0), time.Second, 31 * time.Second},
		"throttled, told for how long":            {nil, retry(42 * time.Second), time.Second, 43 * time.Second},
		"throttled for less than an interval":     {nil, retry(time.Second), time.Second, 10 * time.Second},
		"throttled for a day":                     {nil, retry(24 * time.Hour), time.Second, 5*time.Minute + time.Second},
		"a slow run doesn't overlap the next one": {nil, outcome("OK"), 12 * time.Second, 12 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(t, "backoffJitterFactor: 0")
			s, at := after(c, probe.State{}, start, tt.before)
			r := probe.Run{Started: at, Ended: at.Add(tt.took), Internal: tt.internal}
			s = s.After(c, r)
			if got := s.NextRun.Sub(at); got != tt.want {
				t.Errorf("after %s, want %s", got, tt.want)
			}
		})
	}
}

func TestJitterSpreadsRuns(t *testing.T) {
	c := config(t, "backoffJitterFactor: 0.5")
	first, next := map[time.Time]bool{}, map[time.Time]bool{}
	var sum time.Duration
	const targets = 1000
	for i := range targets {
		r := run(start, "OK", "OK")
		r.Spread = float64(i) / targets
		at := c.FirstRun(r.Spread, start)
		if at.Before(start.Add(30*time.Second)) || !at.Before(start.Add(40*time.Second)) {
			t.Fatalf("the first run is at %s, want it in the interval after initialDelay", at)
		}
		s := probe.State{}.After(c, r)
		pause := s.NextRun.Sub(start)
		if pause < 10*time.Second || pause > 15*time.Second {
			t.Fatalf("the next run is after %s, want from 10s to 15s", pause)
		}
		first[at.Truncate(100*time.Millisecond)], next[s.NextRun.Truncate(100*time.Millisecond)] = true, true
		sum += pause
	}
	if mean := sum / targets; len(first) < 95 || len(next) < 45 || mean < 12300*time.Millisecond || mean > 12700*time.Millisecond {
		t.Errorf("first runs in %d of 100 slots, next ones in %d of 50, after %s on average", len(first), len(next), mean)
	}
}

// TestStaleDecisionsEnd: a decision doesn't outlive the run that should have followed.
func TestStaleDecisionsEnd(t *testing.T) {
	c := config(t, "backoffJitterFactor: 0")
	s, _ := after(c, probe.State{}, start, times(3, cut))
	if want := s.NextRun.Add(25 * time.Second); !s.ValidUntil.Equal(want) {
		t.Errorf("stands until %s, want %s: an interval, two time-outs and that of witnesses after the next run", s.ValidUntil, want)
	}
}

func TestAnySequenceOfRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := config(t, rapid.SampledFrom([]string{"", "successThreshold: 2", "failureThreshold: 1", "failureThreshold: 2\nsuccessThreshold: 3"}).Draw(t, "config"))
		var s probe.State
		now, failures := start, 0
		for range rapid.IntRange(0, 60).Draw(t, "runs") {
			r := run(now, rapid.SampledFrom(classes).Draw(t, "internal"), rapid.SampledFrom(classes).Draw(t, "external"))
			before := s
			s = s.After(c, r)
			switch {
			case r.External == nil:
				if r.Internal.Result() != probe.Failure {
					break
				}
				if s.Internal.Errors == c.Thresholds.Failure {
					failures = 0
				}
			case r.External.Result() == probe.Failure:
				failures++
			case r.External.Result() == probe.Success:
				failures = 0
			}
			switch {
			case s.Direction == probe.Down && (failures < c.Thresholds.Failure || r.External == nil || r.External.Result() != probe.Failure):
				t.Fatalf("down after %d failures: %+v", failures, s)
			case s.Direction == probe.Up && (r.External == nil || r.External.Result() != probe.Success || !s.ExternalHealthy(c)):
				t.Fatalf("up without a success: %+v", s)
			case r.External == nil && r.Internal.Result() != probe.Failure && s.External != before.External:
				t.Fatalf("an external probe that didn't run was counted: %+v, %+v", before, s)
			case s.NextRun.Before(r.Ended) || s.NextRun.Sub(r.Started) < c.Interval:
				t.Fatalf("the next run is at %s after one from %s to %s", s.NextRun, r.Started, r.Ended)
			case s.ExternalHealthy(c) && s.ExternalUnhealthy(c):
				t.Fatalf("both: %+v", s)
			}
			now = s.NextRun
		}
	})
}
