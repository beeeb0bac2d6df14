package condition_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

func breakerLimits() limit.Limits {
	l := calm("100%", "100%")
	l.BreakerPercent, l.BreakerMin = 20, 3
	return l
}

func TestTheBreaker(t *testing.T) {
	set := newSet(t, "a", noSchedule)
	m := manage(t, breakerLimits(), workers(14), set)
	m.see("w00", kubeletSick)
	m.settle("w00")
	m.see("w01", kubeletSick)
	summary := func() condition.Summary {
		sum, _ := m.fleet.Summary("a-uid", moment(m.now))
		return sum
	}
	if summary().Breaker != nil {
		t.Fatal("open at two of fourteen")
	}
	m.now = noon.Add(time.Minute)
	m.see("w02", kubeletSick)
	if b := summary().Breaker; b == nil || b.ID != "20261103t120100z" || !b.OpenedAt.Equal(m.now) || b.Reset {
		t.Fatalf("breaker %+v at three of fourteen", b)
	}
	if m.settle("w01") || m.settle("w02") {
		t.Error("acted though the breaker is open")
	}
	if summary().Holds["BreakerOpen"].Nodes != 2 {
		t.Errorf("held %v, want two by the breaker", summary().Holds)
	}
	m.see("w02", kubeletWell)
	m.see("w01", kubeletWell)
	if b := summary().Breaker; b == nil || b.Reset {
		t.Error("closed by itself")
	}
	m.see("w00", kubeletWell)
	if !m.settle("w00") {
		t.Error("the open breaker stops an undo")
	}
	m.see("w03", kubeletSick)
	if m.fleet.ObserveSet(set, active, nil, "20200101t000000z", moment(m.now)); m.settle("w03") {
		t.Error("reset by another id")
	}
	if affected := m.fleet.ObserveSet(set, active, nil, "20261103t120100z", moment(m.now)); !slices.Equal(affected, []string{"w03"}) {
		t.Errorf("affected by the reset: %v", affected)
	}
	if summary().Breaker != nil || !m.settle("w03") {
		t.Error("not closed by its id with the wave over")
	}
}

func TestAResetHoldsForTheWaveThatOpenedTheBreaker(t *testing.T) {
	set := newSet(t, "a", noSchedule)
	m := manage(t, breakerLimits(), workers(12, kubeletSick), set)
	if m.settle("w00") {
		t.Fatal("acted though everything matches at the start")
	}
	m.fleet.ObserveSet(set, active, nil, "20261103t120000z", moment(noon))
	sum, _ := m.fleet.Summary("a-uid", moment(noon))
	if sum.Breaker == nil || !sum.Breaker.Reset || !m.settle("w00") {
		t.Errorf("breaker %+v; want reset, and acting", sum.Breaker)
	}
	for i := range 10 {
		m.see(fmt.Sprintf("w%02d", i), kubeletWell)
	}
	if sum, _ = m.fleet.Summary("a-uid", moment(noon)); sum.Breaker != nil {
		t.Errorf("breaker %+v after the wave, want none", sum.Breaker)
	}
	m.now = noon.Add(time.Hour)
	for i := range 10 {
		m.see(fmt.Sprintf("w%02d", i), reports("KubeletUnhealthy", "True", m.now))
	}
	if sum, _ = m.fleet.Summary("a-uid", moment(m.now)); sum.Breaker == nil || sum.Breaker.Reset || sum.Breaker.ID != "20261103t130000z" {
		t.Errorf("breaker %+v at the next wave, want it open under a new id", sum.Breaker)
	}
}

func TestAStoredBreakerStaysOpenOverARestart(t *testing.T) {
	f := condition.NewFleet(breakerLimits())
	for _, n := range workers(10) {
		f.ObserveNode(n, moment(noon))
	}
	f.ObserveNode(newNode("sick", kubeletSick), moment(noon))
	f.ObserveSet(newSet(t, "a", noSchedule), active, &limit.Opening{ID: "x", OpenedAt: ago(time.Hour)}, "", moment(noon))
	f.MarkSynced(moment(noon))
	if plan, next := f.Decide("sick", moment(noon), nil); next != condition.Nothing || plan.Holds[0].Reason != "BreakerOpen" {
		t.Errorf("next %d, holds %v", next, plan.Holds)
	}
}

func TestABreakerIsNotJudgedWhileNodesAreStillComingIn(t *testing.T) {
	f := condition.NewFleet(breakerLimits())
	f.ObserveSet(newSet(t, "a", noSchedule), active, nil, "", moment(noon))
	for _, n := range append(workers(3, kubeletSick), renamed("well", workers(30))...) {
		f.ObserveNode(n, moment(noon))
	}
	f.MarkSynced(moment(noon))
	if sum, _ := f.Summary("a-uid", moment(noon)); sum.Breaker != nil {
		t.Errorf("breaker %+v though 3 of 33 match", sum.Breaker)
	}
}

func TestAnObservingSetHasNoBreaker(t *testing.T) {
	m := manage(t, breakerLimits(), workers(12, kubeletSick), newSet(t, "a", "mode: Observe\n"+noSchedule))
	if sum, _ := m.fleet.Summary("a-uid", moment(noon)); sum.Breaker != nil {
		t.Errorf("breaker %+v of a set that does nothing", sum.Breaker)
	}
}

func TestABreakerIsResetWhileItsSetObserves(t *testing.T) {
	m := manage(t, breakerLimits(), workers(12, kubeletSick), newSet(t, "a", noSchedule))
	observing := newSet(t, "a", "mode: Observe\n"+noSchedule)
	observing.Generation = 2
	m.fleet.ObserveSet(observing, withdrawn, nil, "", moment(noon))
	if sum, _ := m.fleet.Summary("a-uid", moment(noon)); sum.Breaker == nil || sum.Breaker.Reset {
		t.Fatalf("breaker %+v; observing resets nothing", sum.Breaker)
	}
	m.fleet.ObserveSet(observing, withdrawn, nil, "20261103t120000z", moment(noon))
	if sum, _ := m.fleet.Summary("a-uid", moment(noon)); sum.Breaker == nil || !sum.Breaker.Reset {
		t.Errorf("breaker %+v; want it reset", sum.Breaker)
	}
}

func TestABreakerCountsWhatMayNotBeActedOnYet(t *testing.T) {
	tests := map[string]struct {
		spec string
		sick nodeOption
	}{
		"for hasn't passed":    {"for: 1h\n" + noSchedule, reports("KubeletUnhealthy", "True", ago(time.Second))},
		"the reporter is gone": {noSchedule, kubeletSilent},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := manage(t, breakerLimits(), workers(14), newSet(t, "a", tt.spec))
			for _, node := range []string{"w00", "w01", "w02"} {
				m.see(node, tt.sick)
			}
			if sum, _ := m.fleet.Summary("a-uid", moment(m.now)); sum.Breaker == nil {
				t.Error("three of fourteen match, and the breaker isn't open")
			}
		})
	}
}
