package condition_test

import (
	"slices"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

func policy(limits limit.Limits, change ...func(*condition.Policy)) condition.Policy {
	p := condition.Policy{Limits: limits}
	for _, c := range change {
		c(&p)
	}
	return p
}

func TestALimitThatShrinksUndoesNothingAndHoldsBackWhatIsNew(t *testing.T) {
	m := manage(t, calm("4", "4"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	for _, name := range []string{"w00", "w01", "w02"} {
		m.settle(name)
	}
	m.fleet.SetPolicy(policy(calm("1", "1")), moment(noon))
	for _, name := range m.fleet.Nodes() {
		if m.settle(name) {
			t.Errorf("%s is written", name)
		}
	}
	if got := m.tainted("example.com/k"); len(got) != 3 {
		t.Errorf("tainted %v, want the three as they were", got)
	}
	if sum, _ := m.fleet.Summary("a-uid", moment(noon)); sum.Holds["LimitReached"].Nodes != 7 {
		t.Errorf("holds %v, want seven by the limit", sum.Holds)
	}
	m.see("w00", kubeletWell)
	if !m.settle("w00") {
		t.Error("a limit below what is used stops an undo")
	}
}

func TestALimitThatGrowsWakesTheLongestWaiting(t *testing.T) {
	m := manage(t, calm("1", "1"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	for _, name := range m.fleet.Nodes() {
		m.settle(name)
	}
	woken := m.fleet.SetPolicy(policy(calm("3", "1")), moment(noon))
	if !slices.Contains(woken, "w01") || !slices.Contains(woken, "w02") {
		t.Fatalf("woken %v, want those who wait", woken)
	}
	for _, name := range woken {
		m.settle(name)
	}
	if got := m.tainted("example.com/k"); !slices.Equal(got, []string{"w00", "w01", "w02"}) {
		t.Errorf("tainted %v, want three", got)
	}
	if again := m.fleet.SetPolicy(policy(calm("3", "1")), moment(noon)); len(again) > 0 {
		t.Errorf("the same policy wakes %v", again)
	}
}

func TestAPauseHoldsBackWhatIsNewAndUndoGoesOn(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(6, kubeletSick), newSet(t, "a", noSchedule))
	m.settle("w00")
	m.settle("w01")
	paused := policy(calm("5", "5"), func(p *condition.Policy) { p.Paused = "Guardrail freeze pauses all new acts" })
	if look := m.fleet.SetPolicy(paused, moment(noon)); len(look) != 6 {
		t.Errorf("%v are to be looked at, want all six that match", look)
	}
	plan, next := m.decide("w02")
	if next != condition.Nothing || len(plan.Holds) != 1 || plan.Holds[0].Reason != "Paused" || plan.Holds[0].Message != "Guardrail freeze pauses all new acts" {
		t.Errorf("next %d, holds %+v", next, plan.Holds)
	}
	m.see("w00", kubeletWell)
	if !m.settle("w00") {
		t.Error("a pause stops an undo")
	}
	if look := m.fleet.SetPolicy(policy(calm("5", "5")), moment(noon)); !slices.Contains(look, "w02") || !m.settle("w02") {
		t.Errorf("to be looked at after the pause: %v", look)
	}
}

func TestAFreezeStopsUndoToo(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(6, kubeletSick), newSet(t, "a", noSchedule))
	m.settle("w00")
	m.settle("w01")
	frozen := policy(calm("5", "5"), func(p *condition.Policy) {
		p.Paused, p.Frozen = "Guardrail stop freezes everything, undo included", true
	})
	m.fleet.SetPolicy(frozen, moment(noon))
	m.see("w00", kubeletWell)
	if plan, next := m.decide("w00"); next != condition.Nothing || len(plan.Steps) > 0 || len(plan.Frozen) != 1 || plan.Frozen[0].Verb != "Untaint" {
		t.Errorf("a node that recovered: next %d, steps %v, frozen %v", next, plan.Steps, plan.Frozen)
	}
	if plan, next := m.decide("w02"); next != condition.Nothing || len(plan.Holds) != 1 || plan.Holds[0].Reason != "Paused" || len(plan.Frozen) > 0 {
		t.Errorf("a sick node: next %d, holds %v, frozen %v", next, plan.Holds, plan.Frozen)
	}
	if look := m.fleet.SetPolicy(policy(calm("5", "5")), moment(noon)); !slices.Contains(look, "w00") || !m.settle("w00") || !m.settle("w02") {
		t.Errorf("to be looked at after the thaw: %v", look)
	}
}

// TestAThawUndoesWhatNoSetKnows: the record of a set that is gone is looked at again, too.
func TestAThawUndoesWhatNoSetKnows(t *testing.T) {
	set := newSet(t, "a", noSchedule)
	m := manage(t, calm("5", "5"), workers(3, kubeletSick), set)
	m.settle("w00")
	m.fleet.SetPolicy(policy(calm("5", "5"), func(p *condition.Policy) { p.Paused, p.Frozen = "frozen", true }), moment(noon))
	m.fleet.ForgetSet(set.UID, moment(m.now))
	if look := m.fleet.SetPolicy(policy(calm("5", "5")), moment(noon)); !slices.Equal(look, []string{"w00"}) {
		t.Errorf("to be looked at after the thaw: %v, want the node with a record", look)
	}
}

func TestAPauseHoldsBackAnEviction(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(6, kernelSick), newSet(t, "a", "evictAfter: 10m\n"+noExecute))
	m.settle("w00")
	m.fleet.SetPolicy(policy(calm("5", "5"), func(p *condition.Policy) { p.Paused = "Guardrails can't be read" }), moment(noon))
	m.now = noon.Add(11 * time.Minute)
	m.see("w00", reportsAt("KernelDeadlock", "True", ago(time.Hour), m.now))
	if m.settle("w00") {
		t.Errorf("written: %v", m.api.nodes["w00"].Spec.Taints)
	}
}

func TestThePrecedenceMayChange(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(6, kubeletSick), newSet(t, "a", noSchedule),
		newSet(t, "b", "effect: PreferNoSchedule\ntaintKey: example.com/other\nconditions: {KubeletUnhealthy: {status: true}}"))
	m.settle("w00")
	byNode := policy(calm("5", "5"), func(p *condition.Policy) { p.Precedence = condition.PrecedenceNode })
	if look := m.fleet.SetPolicy(byNode, moment(noon)); !slices.Contains(look, "w00") {
		t.Errorf("to be looked at: %v", look)
	}
	m.settle("w00")
	if got := texts(m.api.nodes["w00"].Spec.Taints, taintText); !slices.Equal(got, []string{"example.com/k:NoSchedule"}) {
		t.Errorf("taints %v by node, want the highest effect alone", got)
	}
	m.fleet.SetPolicy(policy(calm("5", "5")), moment(noon))
	m.settle("w00")
	if got := m.api.nodes["w00"].Spec.Taints; len(got) != 2 {
		t.Errorf("taints %v by key, want both", texts(got, taintText))
	}
}

func TestABreakerIsJudgedByTheLimitsInForce(t *testing.T) {
	m := manage(t, calm("100%", "100%"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	m.fleet.SetPolicy(policy(breakerLimits()), moment(noon))
	if sum, _ := m.fleet.Summary("a-uid", moment(noon)); sum.Breaker == nil || m.settle("w00") {
		t.Error("ten of ten match, and the breaker isn't open")
	}
}

func TestADeclaredTypeIsNotUnreported(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(6), newSet(t, "a", noSchedule))
	m.fleet.SetPolicy(policy(calm("5", "5"), func(p *condition.Policy) { p.DeclaredTypes = []string{"Custom"} }), moment(noon))
	p := forecast(t, m, "new", "effect: NoSchedule\ntaintKey: example.com/k\nconditions: {Custom: {status: true}, Other: {status: true}}")
	if !slices.Equal(p.UnreportedTypes, []string{"Other"}) {
		t.Errorf("unreported %v, want Other", p.UnreportedTypes)
	}
}
