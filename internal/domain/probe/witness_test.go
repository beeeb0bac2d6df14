package probe_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// vouched is a target that has just turned unhealthy, and that witnesses vouch for.
func vouched(at time.Time) *probe.State {
	s := turnsUnhealthy(at)
	s.Vouched = true
	return s
}

func TestWhomWitnessesVouchForIsBelievedHoweverManyFail(t *testing.T) {
	f := fleetOf(80)
	for i := range 80 {
		if f.ObserveRun(target("a", i), vouched(start), start) {
			t.Fatalf("target %d opens the breaker", i)
		}
	}
	for i := range 16 {
		if p := f.AcquireScaleDown(target("a", i), start); !p.Allowed {
			t.Fatalf("target %d of 16: %+v", i, p)
		}
	}
	if p := f.AcquireScaleDown(target("a", 16), start); p.Reason != "TooManyScaledDown" {
		t.Errorf("one more than the cap: %+v", p)
	}
}

func TestAnOpenBreakerHoldsWhomNobodyVouchesFor(t *testing.T) {
	f := fleetOf(20)
	for i := range 8 {
		f.ObserveRun(target("a", i), turnsUnhealthy(start), start)
	}
	f.ObserveRun(target("a", 8), vouched(start), start)
	if p := f.AcquireScaleDown(target("a", 8), start); !p.Allowed {
		t.Errorf("one that witnesses vouch for: %+v", p)
	}
	if p := f.AcquireScaleDown(target("a", 7), start); p.Reason != "TooManyFailTogether" {
		t.Errorf("one that none vouches for: %+v", p)
	}
}

func TestTheBreakerOpensOnceWitnessesAreSilent(t *testing.T) {
	f := fleetOf(20)
	for i := range 3 {
		f.ObserveRun(target("a", i), vouched(start), start)
	}
	later := start.Add(10 * time.Second)
	silent := turnsUnhealthy(start)
	silent.At = later
	if f.ObserveRun(target("a", 0), silent, later) || f.ObserveRun(target("a", 1), silent, later) {
		t.Fatal("two open it")
	}
	if !f.ObserveRun(target("a", 2), silent, later) {
		t.Fatal("the third doesn't open it")
	}
}

// Each failure of the row must be witnessed: of three of which one fell into an outage of our own two are left.
func TestEachFailureOfTheRowIsWitnessed(t *testing.T) {
	c := config(t, "")
	at, s := start, probe.State{}
	run := func(class probe.Class, witnessed bool) {
		at = at.Add(10 * time.Second)
		s = s.After(c, probe.Run{Started: at, Ended: at, Internal: probe.Outcome{Class: probe.OK}, External: &probe.Outcome{Class: class}, Witnessed: witnessed})
	}
	for i, step := range []struct {
		class     probe.Class
		witnessed bool
		want      bool
	}{
		{probe.OK, false, false},
		{probe.Dial, true, false}, {probe.Dial, true, false}, {probe.Dial, true, true},
		{probe.Dial, false, false},
		{probe.Dial, true, false}, {probe.TooManyRequests, false, false}, {probe.Dial, true, false}, {probe.Dial, true, true},
		{probe.OK, false, false},
		{probe.Dial, false, false}, {probe.Dial, true, false}, {probe.Dial, true, false}, {probe.Dial, true, true},
	} {
		if run(step.class, step.witnessed); s.Vouched != step.want {
			t.Fatalf("step %d, %s: vouched for: %t", i, step.class, s.Vouched)
		}
	}
	s = s.After(c, probe.Run{Ended: at, Internal: probe.Outcome{Class: probe.Dial}})
	for range 2 {
		s = s.After(c, probe.Run{Ended: at, Internal: probe.Outcome{Class: probe.Dial}})
	}
	if s.Vouched {
		t.Error("the API server itself is down, and witnesses vouch for what was seen outside")
	}
}

func TestTheBreakerClosesOnceMostAreHealthyAgain(t *testing.T) {
	opened := func() *probe.Fleet {
		f := fleetOf(80)
		for i := range 80 {
			f.ObserveRun(target("a", i), turnsUnhealthy(start), start)
		}
		return f
	}
	for name, test := range map[string]struct {
		healthy int
		after   time.Duration
		open    bool
	}{
		"five are left":               {75, time.Hour, true},
		"four are left":               {76, time.Minute, false},
		"it isn't over for long":      {80, 59 * time.Second, true},
		"all are healthy for as long": {80, time.Minute, false},
	} {
		f := opened()
		at := start.Add(10 * time.Minute)
		for i := range test.healthy {
			f.ObserveRun(target("a", i), healthy(at), at)
		}
		closed := f.ObserveRun(target("a", 0), healthy(at.Add(test.after)), at.Add(test.after))
		if _, open := f.Breaker(); open != test.open || closed == open {
			t.Errorf("%s: open: %t, told that it closed: %t", name, open, closed)
		}
	}

	f := opened()
	b, _ := f.Breaker()
	for i := range 80 {
		f.ObserveRun(target("a", i), healthy(start), start)
	}
	f.ObserveRun(target("a", 0), turnsUnhealthy(start.Add(59*time.Second)), start.Add(59*time.Second))
	for i := range 5 { // it began anew meanwhile
		f.ObserveRun(target("a", i), turnsUnhealthy(start.Add(59*time.Second)), start.Add(59*time.Second))
	}
	f.ObserveRun(target("a", 6), healthy(start.Add(2*time.Minute)), start.Add(2*time.Minute))
	for i := range 5 {
		f.ObserveRun(target("a", i), healthy(start.Add(2*time.Minute)), start.Add(2*time.Minute))
	}
	if _, open := f.Breaker(); !open {
		t.Error("it closes though few were in doubt for less than a minute on end")
	}
	f.ObserveRun(target("a", 0), healthy(start.Add(3*time.Minute)), start.Add(3*time.Minute))
	f.FollowBreaker(&b) // as a status tells that isn't written anew yet
	if _, open := f.Breaker(); open {
		t.Error("an old status opens it again")
	}
	f.FollowBreaker(&limit.Opening{ID: "20260301t115900z"})
	if _, open := f.Breaker(); open {
		t.Error("an older one opens it again")
	}
}

// A process that takes over knows nothing of most targets at first.
func TestARestoredBreakerStaysWhileMostAreUnknown(t *testing.T) {
	f := probe.NewFleet(limit.Builtin())
	for i := range 20 {
		f.Add(target("a", i), false)
	}
	f.FollowBreaker(&limit.Opening{ID: "x", OpenedAt: start})
	for i := range 18 {
		f.SetActive(target("a", i), true, start)
		f.ObserveRun(target("a", i), healthy(start), start)
		f.ObserveRun(target("a", i), healthy(start.Add(time.Hour)), start.Add(time.Hour))
	}
	if _, open := f.Breaker(); !open {
		t.Fatal("it closes, and two targets weren't looked at")
	}
	f.ObserveUnprobed(target("a", 18)) // its Secret can't be used
	at := start.Add(2 * time.Hour)
	f.ObserveRun(target("a", 0), healthy(at), at)
	f.ObserveRun(target("a", 0), healthy(at.Add(time.Minute)), at.Add(time.Minute))
	if _, open := f.Breaker(); !open {
		t.Fatal("it closes, and of two targets nobody knows how they are")
	}
	f.SetExempt(target("a", 18), true)
	complete := false
	f.Complete = func() bool { return complete }
	for _, complete = range []bool{false, true} {
		at = at.Add(time.Hour)
		f.ObserveRun(target("a", 0), healthy(at), at)
		f.ObserveRun(target("a", 0), healthy(at.Add(time.Minute)), at.Add(time.Minute))
		if _, open := f.Breaker(); open == complete {
			t.Fatalf("all targets are expected: %t, open: %t", complete, open)
		}
	}
}

// closes says whether an open breaker closes by itself, once it may.
func closes(f *probe.Fleet, by probe.TargetKey, at time.Time) bool {
	f.ObserveRun(by, healthy(at), at)
	return f.ObserveRun(by, healthy(at.Add(time.Minute)), at.Add(time.Minute))
}

func TestWhoKeepsTheBreakerOpen(t *testing.T) {
	later := start.Add(time.Hour)
	for name, test := range map[string]struct {
		then func(f *probe.Fleet, t probe.TargetKey)
		open bool
	}{
		"who is unhealthy":            {func(*probe.Fleet, probe.TargetKey) {}, true},
		"who is vouched for":          {func(f *probe.Fleet, t probe.TargetKey) { f.ObserveRun(t, vouched(later), later) }, false},
		"who is gone":                 {func(f *probe.Fleet, t probe.TargetKey) { f.Forget(t) }, false},
		"who needn't be healthy":      {func(f *probe.Fleet, t probe.TargetKey) { f.SetExempt(t, true) }, false},
		"who isn't in force any more": {func(f *probe.Fleet, t probe.TargetKey) { f.SetActive(t, false, later) }, true},
		"who can't be probed any more": {func(f *probe.Fleet, t probe.TargetKey) {
			f.ObserveRun(t, vouched(later), later)
			f.ObserveUnprobed(t)
		}, true},
		"who counted nothing for long": {func(f *probe.Fleet, t probe.TargetKey) {
			s := healthy(later)
			s.Recovered = false
			f.ObserveRun(t, s, later)
		}, true},
	} {
		f := fleetOf(40)
		for i := range 6 {
			f.ObserveRun(target("a", i), turnsUnhealthy(start), start)
		}
		for i := range 6 {
			test.then(f, target("a", i))
		}
		if got := closes(f, target("a", 20), later); got == test.open {
			t.Errorf("%s: it closes: %t", name, got)
		}
	}
}

func TestABreakerIsFollowedUnlessItIsOwn(t *testing.T) {
	f := fleetOf(20)
	says := func(want string) {
		t.Helper()
		if o, _ := f.Breaker(); o.ID != want {
			t.Errorf("it is %q, want %q", o.ID, want)
		}
	}
	f.FollowBreaker(&limit.Opening{ID: "x"})
	f.FollowBreaker(&limit.Opening{ID: "y"})
	says("y")
	f.FollowBreaker(nil)
	says("")
	for i := range 3 {
		f.ObserveRun(target("a", i), turnsUnhealthy(start), start)
	}
	says("20260301t120000z")
	f.FollowBreaker(nil) // its status isn't written yet
	f.FollowBreaker(&limit.Opening{ID: "z"})
	says("20260301t120000z")
}

// Vouching and health are of the present: not of before an hour in which no answer counted.
func TestWhatCountsNothingForLongIsNeitherVouchedForNorRecovered(t *testing.T) {
	c := config(t, "")
	for name, first := range map[string]probe.Class{"vouched for": probe.Dial, "healthy": probe.OK} {
		at, s := start, probe.State{}
		run := func(internal, external probe.Class) {
			at = at.Add(10 * time.Second)
			s = s.After(c, probe.Run{Started: at, Ended: at, Internal: probe.Outcome{Class: internal}, External: &probe.Outcome{Class: external}, Witnessed: true})
		}
		for range 3 {
			run(probe.OK, first)
		}
		if !s.Vouched && !s.Recovered {
			t.Fatalf("%s: it isn't", name)
		}
		run(probe.Unauthorized, "")
		if !s.Vouched && !s.Recovered {
			t.Errorf("%s: it isn't any more after one answer that counts nothing", name)
		}
		at = at.Add(5 * time.Minute)
		run(probe.Unauthorized, "")
		if s.Vouched || s.Recovered {
			t.Errorf("%s: it still is after five minutes of such answers", name)
		}
	}
}

func TestTheThresholdOfTheBreakerIsALimit(t *testing.T) {
	for _, test := range []struct {
		most  intstr.IntOrString
		fails int
		opens bool
	}{
		{intstr.FromString("10%"), 10, false}, {intstr.FromString("10%"), 11, true},
		{intstr.FromString("50%"), 50, false}, {intstr.FromString("50%"), 51, true},
		{intstr.FromString("100%"), 100, false},
		{intstr.FromInt32(4), 4, false}, {intstr.FromInt32(4), 5, true},
		{intstr.FromInt32(0), 2, false}, {intstr.FromInt32(0), 3, true},
	} {
		limits := limit.Builtin()
		limits.MaxFailingTogether = limit.CapOf(test.most)
		f := fleetOf(100)
		f.SetLimits(limits)
		for i := range test.fails {
			f.ObserveRun(target("a", i), turnsUnhealthy(start), start)
		}
		if _, open := f.Breaker(); open != test.opens {
			t.Errorf("%s, %d fail: open: %t", &test.most, test.fails, open)
		}
	}
}

// The load balancer of many dies, and our own way out comes and goes: who is well isn't scaled down while the breaker is open, and in
// the end as many of the others are as the cap allows, without anybody's reset.
func TestWitnessesTellWhoseOutageItIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := wave(func(i int) time.Duration { return time.Duration(10+i%7) * time.Second })
		c.play(start.Add(10 * time.Minute))
		c.witnesses = true
		seconds := func(most int, what string) time.Duration {
			return time.Duration(rapid.IntRange(1, most).Draw(t, what)) * time.Second
		}
		outages := rapid.IntRange(1, 6).Draw(t, "outages")
		dies := rapid.IntRange(0, outages).Draw(t, "the load balancer dies after")
		for i := range outages + 1 {
			if i == dies {
				for _, one := range c.targets {
					one.dead = one.at.Namespace < "shoot-15" // 57 of 200
				}
			}
			if i < outages {
				c.broken = true
				c.play(c.now.Add(seconds(120, "out")))
				c.broken = false
				c.play(c.now.Add(seconds(120, "back")))
			}
		}
		c.play(c.now.Add(10 * time.Minute))
		if c.late > 0 {
			t.Fatalf("%d that are well are scaled down after the breaker opened", c.late)
		}
		for _, one := range c.targets {
			if one.down && !one.dead {
				t.Fatalf("%s is well and down", one.at.Namespace)
			}
		}
		if _, down := c.fleet.Counts(); down != 40 {
			t.Fatalf("%d are scaled down in the end, want 40", down)
		}
	})
}
