package probe_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

func target(config string, i int) probe.TargetKey {
	return probe.TargetKey{Config: types.UID(config), Namespace: fmt.Sprint("shoot-", i)}
}

func healthy(at time.Time) *probe.State {
	return &probe.State{At: at, HealthySince: at, Recovered: true, External: probe.Counts{Successes: 1, CountedAt: at}}
}

func turnsUnhealthy(at time.Time) *probe.State {
	return &probe.State{At: at, UnhealthySince: at, Direction: probe.Down, External: probe.Counts{Errors: 3, CountedAt: at}}
}

// fleetOf has so many healthy targets of one config.
func fleetOf(n int) *probe.Fleet {
	f := probe.NewFleet(limit.Builtin())
	for i := range n {
		join(f, target("a", i), start)
	}
	return f
}

// join takes in a healthy target of which nothing is down.
func join(f *probe.Fleet, t probe.TargetKey, at time.Time) {
	f.Add(t, false)
	f.SetActive(t, true, at)
	f.ObserveDown(t, false)
	f.ObserveRun(t, healthy(at), at)
}

func TestTheCapOnTargetsThatAreDown(t *testing.T) {
	f := fleetOf(15)
	for i := range 3 {
		if p := f.AcquireScaleDown(target("a", i), start); !p.Allowed {
			t.Fatalf("target %d of 3: %+v", i, p)
		}
	}
	p := f.AcquireScaleDown(target("a", 3), start)
	if p.Allowed || p.Reason != "TooManyScaledDown" || p.Message != "3 of 15 targets are scaled down, and maxScaledDownTargets 20% allows 3" {
		t.Errorf("a fourth: %+v", p)
	}
	if p := f.AcquireScaleDown(target("a", 0), start); !p.Allowed {
		t.Errorf("one that has its place: %+v", p)
	}
	f.ObserveDown(target("a", 0), false)
	if p := f.AcquireScaleDown(target("a", 3), start); !p.Allowed {
		t.Errorf("after one came back: %+v", p)
	}
	f.ObserveUnprobed(target("a", 1)) // hibernated while it is down: it keeps its place
	if _, down := f.Counts(); down != 3 {
		t.Errorf("%d are down, want 3", down)
	}
	limits := limit.Builtin()
	limits.MaxScaledDownTargets = limit.CapOf(intstr.FromInt32(0))
	f.SetLimits(limits)
	if p := f.AcquireScaleDown(target("a", 9), start); p.Allowed {
		t.Errorf("with a cap of 0: %+v", p)
	}
}

// A manager that takes over learns what is down target by target.
func TestTargetsThatWerentReadCountAsDown(t *testing.T) {
	f := fleetOf(15)
	for i := range 3 {
		f.Add(target("b", i), false)
	}
	p := f.AcquireScaleDown(target("a", 0), start)
	if p.Allowed || p.Reason != "TooManyScaledDown" || p.Message != "0 of 15 targets are scaled down, and maxScaledDownTargets 20% allows 3; of 3 it isn't known yet" {
		t.Errorf("before they are read: %+v", p)
	}
	f.ObserveDown(target("b", 0), false)
	if p := f.AcquireScaleDown(target("a", 0), start); !p.Allowed {
		t.Errorf("once one of them was read, and is up: %+v", p)
	}
}

func TestNothingIsScaledDownWhileTheClockIsntTrusted(t *testing.T) {
	f := fleetOf(15)
	f.SuspendScaleDown(start.Add(time.Minute))
	f.SuspendScaleDown(start)
	if p := f.AcquireScaleDown(target("a", 0), start.Add(59*time.Second)); p.Allowed || p.Reason != "ClockStepped" || !p.RequeueAt.Equal(start.Add(time.Minute)) {
		t.Errorf("before: %+v", p)
	}
	if p := f.AcquireScaleDown(target("a", 0), start.Add(time.Minute)); !p.Allowed {
		t.Errorf("after: %+v", p)
	}
}

func TestTheOnlyTargetMayBeScaledDown(t *testing.T) {
	if p := fleetOf(1).AcquireScaleDown(target("a", 0), start); !p.Allowed {
		t.Errorf("%+v", p)
	}
}

func TestScalingUpIsPaced(t *testing.T) {
	f := probe.NewFleet(limit.Limits{MaxScaledDownTargets: limit.CapOf(intstr.FromString("100%"))})
	for i := range 12 {
		join(f, target("a", i), start)
		f.AcquireScaleDown(target("a", i), start)
	}
	for i := range 10 {
		if p := f.AcquireScaleUp(target("a", i), start.Add(time.Duration(i)*time.Second)); !p.Allowed {
			t.Fatalf("target %d of 10: %+v", i, p)
		}
	}
	p := f.AcquireScaleUp(target("a", 10), start.Add(59*time.Second))
	if p.Allowed || p.Reason != "ScaleUpPaced" || !p.RequeueAt.Equal(start.Add(time.Minute)) {
		t.Errorf("an eleventh: %+v", p)
	}
	if p := f.AcquireScaleUp(target("a", 3), start.Add(59*time.Second)); !p.Allowed {
		t.Errorf("one that began: %+v", p)
	}
	if p := f.AcquireScaleUp(target("a", 10), start.Add(time.Minute)); !p.Allowed {
		t.Errorf("after a minute: %+v", p)
	}
}

func TestTargetsThatTurnUnhealthyTogetherAreSuspect(t *testing.T) {
	f := fleetOf(28)
	join(f, target("b", 28), start)
	for i := range 2 {
		if f.ObserveRun(target("a", i), turnsUnhealthy(start), start) || !f.AcquireScaleDown(target("a", i), start).Allowed {
			t.Fatalf("target %d opens it", i)
		}
	}
	third := start.Add(119 * time.Second)
	if !f.ObserveRun(target("b", 28), turnsUnhealthy(third), third) {
		t.Fatal("the third doesn't open it")
	}
	p := f.AcquireScaleDown(target("a", 5), start)
	if p.Allowed || p.Reason != "TooManyFailTogether" || p.Message != "3 of 29 probed namespaces turned unhealthy together at 2026-03-01T12:01:59Z; nothing is scaled down before most of them are healthy again or breaker 20260301t120159z is reset; see BreakerOpen" {
		t.Fatalf("%+v", p)
	}
	if p := f.AcquireScaleDown(target("a", 0), start); p.Allowed {
		t.Errorf("one that is down already: %+v", p)
	}
	if p := f.AcquireScaleUp(target("a", 0), third); !p.Allowed {
		t.Errorf("up: %+v", p)
	}
	join(f, target("c", 1), start)
	if p := f.AcquireScaleDown(target("c", 1), start); p.Allowed {
		t.Errorf("a config that has no part in it: %+v", p)
	}
	if f.Reset("20260301t000000z") {
		t.Error("a reset of another opening closed it")
	}
	if !f.Reset("20260301t120159z") || !f.AcquireScaleDown(target("a", 0), start).Allowed {
		t.Error("a reset didn't close it")
	}
	later := third.Add(time.Second)
	if f.ObserveRun(target("a", 5), turnsUnhealthy(later), later) {
		t.Error("what was believed opens it again")
	}
}

func TestWhatIsNoWave(t *testing.T) {
	for name, observe := range map[string]func(f *probe.Fleet, i int){
		"more than two minutes apart": func(f *probe.Fleet, i int) {
			at := start.Add(time.Duration(i) * 131 * time.Second)
			f.ObserveRun(target("a", i), healthy(at.Add(-10*time.Second)), at.Add(-10*time.Second))
			f.ObserveRun(target("a", i), turnsUnhealthy(at), at)
		},
		"unhealthy before": func(f *probe.Fleet, i int) {
			s := turnsUnhealthy(start)
			s.UnhealthySince = start.Add(-time.Hour)
			f.ObserveRun(target("a", i), s, start)
		},
		"down before a restart": func(f *probe.Fleet, i int) {
			f.ObserveDown(target("a", i), true)
			f.ObserveRun(target("a", i), turnsUnhealthy(start), start)
		},
		"healthy again": func(f *probe.Fleet, i int) {
			f.ObserveRun(target("a", i), turnsUnhealthy(start), start)
			f.ObserveRun(target("a", i), healthy(start), start)
		},
		"not probed any more": func(f *probe.Fleet, i int) {
			f.ObserveRun(target("a", i), turnsUnhealthy(start), start)
			f.ObserveUnprobed(target("a", i))
			f.ObserveRun(target("a", i), healthy(start), start)
		},
	} {
		f := fleetOf(20)
		for i := range 8 {
			observe(f, i)
		}
		if b, open := f.Breaker(); open {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

func TestARestartKeepsABreakerOpen(t *testing.T) {
	f := fleetOf(3)
	f.FollowBreaker(&limit.Opening{ID: "x", OpenedAt: start})
	if p := f.AcquireScaleDown(target("a", 0), start); p.Allowed || p.Message != "too many targets turned unhealthy together at 2026-03-01T12:00:00Z; nothing is scaled down before most of them are healthy again or breaker x is reset; see BreakerOpen" {
		t.Errorf("%+v", p)
	}
	f.ForgetConfig("a")
	if _, open := f.Breaker(); open {
		t.Error("it is open, and nobody is left")
	}
	if probed, _ := f.Counts(); probed != 0 {
		t.Errorf("%d targets of a config that is gone are probed", probed)
	}
}

// A run may end, and a scaling be asked for, after its target was forgotten.
func TestLateNewsOfATargetThatIsGoneCountNothing(t *testing.T) {
	f := fleetOf(10)
	gone := target("a", 3)
	f.Forget(gone)
	f.ObserveRun(gone, turnsUnhealthy(start), start)
	f.ObserveDown(gone, true)
	f.ObserveUnprobed(gone)
	if p := f.AcquireScaleDown(gone, start); p.Allowed || p.Reason != "TargetGone" {
		t.Errorf("it may be scaled down: %+v", p)
	}
	if p := f.AcquireScaleUp(gone, start); !p.Allowed {
		t.Errorf("it may not be given back: %+v", p)
	}
	if probed, down := f.Counts(); probed != 9 || down != 0 {
		t.Errorf("%d are probed and %d down, want 9 and 0", probed, down)
	}
}

func TestWhatAConfigMayDo(t *testing.T) {
	for name, tt := range map[string]struct {
		state     lifecycle.State
		direction probe.Direction
		late      bool
		want      string
	}{
		"active, down":        {lifecycle.Active, probe.Down, false, "down false"},
		"active, up":          {lifecycle.Active, probe.Up, false, "up false"},
		"active, stale":       {lifecycle.Active, probe.Down, true, "hold false"},
		"active, up, stale":   {lifecycle.Active, probe.Up, true, "hold false"},
		"held, down":          {lifecycle.Refused, probe.Down, false, "hold false"},
		"held, up":            {lifecycle.Refused, probe.Up, false, "up false"},
		"frozen, down":        {lifecycle.NotJudged, probe.Down, false, "hold false"},
		"frozen, up":          {lifecycle.NotJudged, probe.Up, false, "hold false"},
		"withdrawn, down":     {lifecycle.Deleted, probe.Down, false, "up true"},
		"withdrawn, stale":    {lifecycle.Deleted, probe.Hold, true, "up true"},
		"nobody said: frozen": {0, probe.Down, false, "hold false"},
	} {
		s, now := probe.State{Direction: tt.direction, ValidUntil: start}, start
		if tt.late {
			now = start.Add(time.Second)
		}
		want, withdrawn := s.Want(tt.state, now)
		if got := fmt.Sprint(want, withdrawn); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// TestTheCapHoldsOverAnySequence: what is down is never made more than the cap of that moment.
func TestTheCapHoldsOverAnySequence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		percent := rapid.SampledFrom([]string{"0%", "10%", "20%", "100%"}).Draw(t, "cap")
		limits := limit.Builtin()
		limits.MaxScaledDownTargets = limit.CapOf(intstr.FromString(percent))
		f := probe.NewFleet(limits)
		members := map[probe.TargetKey]bool{}
		now := start
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
			at := target(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "config"), rapid.IntRange(0, 14).Draw(t, "target"))
			if _, joined := members[at]; !joined {
				members[at] = true
				f.Add(at, false)
				f.SetActive(at, true, now)
				f.ObserveDown(at, false)
			}
			_, before := f.Counts()
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				f.ObserveRun(at, healthy(now), now)
			case 2:
				f.ObserveRun(at, turnsUnhealthy(now), now)
			case 3:
				p := f.AcquireScaleDown(at, start)
				probed, after := f.Counts()
				if after > before && (after > limits.ScaledDownTargets(probed) || !p.Allowed) {
					t.Fatalf("%d of %d are down with a cap of %s", after, probed, percent)
				}
				if _, open := f.Breaker(); open && p.Allowed {
					t.Fatalf("allowed through an open breaker: %+v", at)
				}
			case 4:
				f.ObserveDown(at, false)
			case 5:
				f.AcquireScaleUp(at, now)
			}
		}
	})
}
