package probe_test

import (
	"testing"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// Who probes a server of its own can make it fail. That must cost something before it stops everybody's protection.
func TestWhoRisksNothingDoesntOpenTheBreaker(t *testing.T) {
	for name, tt := range map[string]struct {
		join  func(f *probe.Fleet, i int) probe.TargetKey
		opens bool
	}{
		"three observe only": {func(f *probe.Fleet, i int) probe.TargetKey {
			at := target("tenant", 100+i)
			join(f, at, start)
			f.SetActive(at, false, start)
			return at
		}, false},
		"three probe one namespace": {func(f *probe.Fleet, i int) probe.TargetKey {
			at := target(string(rune('b'+i)), 100)
			join(f, at, start)
			return at
		}, false},
		"three namespaces, in force": {func(f *probe.Fleet, i int) probe.TargetKey {
			at := target("tenant", 100+i)
			join(f, at, start)
			return at
		}, true},
	} {
		f := fleetOf(20)
		for i := range 3 {
			at := tt.join(f, i)
			f.ObserveRun(at, turnsUnhealthy(start), start)
		}
		if _, open := f.Breaker(); open != tt.opens {
			t.Errorf("%s: the breaker is open: %t, want %t", name, open, tt.opens)
		}
	}
}

// Nor does it make what everybody shares larger.
func TestWhoOnlyObservesRaisesNoLimit(t *testing.T) {
	f := fleetOf(20)
	for i := range 100 {
		at := target("tenant", 100+i)
		join(f, at, start)
		f.SetActive(at, false, start)
	}
	for i := range 4 {
		if p := f.AcquireScaleDown(target("a", i), start); !p.Allowed {
			t.Fatalf("target %d of 4: %+v", i, p)
		}
	}
	if p := f.AcquireScaleDown(target("a", 4), start); p.Allowed {
		t.Error("a fifth of 20 targets is scaled down with a cap of 20%: those that observe count")
	}
	for i := range 3 {
		f.ObserveRun(target("a", 10+i), turnsUnhealthy(start), start)
	}
	if _, open := f.Breaker(); !open {
		t.Error("3 of 20 don't open the breaker: those that observe count")
	}
}

// A config that is taken into force in the middle of an outage has seen it already.
func TestWhatTurnedWhileItObservedCountsOnceItActs(t *testing.T) {
	f := fleetOf(20)
	for i := range 3 {
		f.SetActive(target("a", i), false, start)
		f.ObserveRun(target("a", i), turnsUnhealthy(start), start)
	}
	if f.SetActive(target("a", 0), true, start) || f.SetActive(target("a", 1), true, start) || !f.SetActive(target("a", 2), true, start) {
		t.Error("the breaker doesn't open with the third")
	}
}
