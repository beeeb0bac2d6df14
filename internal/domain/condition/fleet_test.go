package condition_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

func TestNothingIsDoneBeforeEverythingWasObserved(t *testing.T) {
	f := condition.NewFleet(calm("10%", "5%"))
	for _, n := range workers(10, kubeletSick) {
		f.ObserveNode(n, moment(noon))
	}
	f.ObserveSet(newSet(t, "a", noSchedule), active, nil, "", moment(noon))
	if _, next := f.Decide("w00", moment(noon), nil); next != condition.Nothing {
		t.Errorf("next %d before the fleet is synced, want nothing", next)
	}
	f.MarkSynced(moment(noon))
	if _, next := f.Decide("w00", moment(noon), nil); next != condition.Write {
		t.Errorf("next %d once it is, want a write", next)
	}
	if _, next := f.Decide("unknown", moment(noon), nil); next != condition.Nothing {
		t.Errorf("next %d for a node that isn't known, want nothing", next)
	}
}

func TestAWriteInFlightTakesItsPlace(t *testing.T) {
	m := manage(t, calm("1", "1"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	first, next := m.decide("w00")
	if next != condition.Write {
		t.Fatalf("next %d, want a write", next)
	}
	if plan, next := m.decide("w01"); next != condition.Nothing || plan.Holds[0].Reason != "LimitReached" {
		t.Errorf("next %d with holds %v while the only place is reserved", next, plan.Holds)
	}
	if _, next := m.decide("w00"); next != condition.ReadLive {
		t.Errorf("next %d while the write's outcome is open, want a live read", next)
	}
	n, err := m.api.patch(first)
	if err != nil {
		t.Fatal(err)
	}
	m.fleet.Written("w00", n.ResourceVersion)
	if _, next := m.decide("w00"); next != condition.Wait {
		t.Errorf("next %d while the write isn't visible, want to wait", next)
	}
	if _, next := m.decide("w01"); next != condition.Nothing {
		t.Errorf("next %d while the write isn't visible", next)
	}
	m.fleet.ObserveNode(n, moment(noon))
	if _, next := m.decide("w00"); next != condition.Nothing {
		t.Errorf("next %d once it is, want nothing", next)
	}
	if _, next := m.decide("w01"); next != condition.Nothing {
		t.Errorf("next %d with the cap used up", next)
	}
}

func TestAFailedWriteGivesItsPlaceBack(t *testing.T) {
	m := manage(t, calm("1", "1"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	m.decide("w00")
	m.decide("w01")
	if wake := m.woken(func() { m.fleet.Failed("w00") }); !slices.Contains(wake, "w01") {
		t.Errorf("wakes %v, want the node that waits", wake)
	}
	if !m.settle("w01") {
		t.Error("the place isn't free after a failure")
	}
	if got := m.tainted("example.com/k"); len(got) != 1 {
		t.Errorf("tainted %v, want one", got)
	}
}

func TestAFailedEvictionDoesNotUseUpThePace(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kernelSick), newSet(t, "a", noExecute))
	if _, next := m.decide("w00"); next != condition.Write {
		t.Fatalf("next %d, want a write", next)
	}
	m.fleet.Failed("w00")
	plan, next := m.decide("w00")
	if next != condition.Write || plan.Taints[0].Effect != "NoExecute" {
		t.Errorf("next %d, taints %v after a failure; want the eviction again", next, plan.Taints)
	}
}

func TestAnUncertainWriteCountsUntilALiveReadShowsItsOutcome(t *testing.T) {
	for name, landed := range map[string]bool{"it landed": true, "it didn't": false} {
		t.Run(name, func(t *testing.T) {
			m := manage(t, calm("1", "1"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
			plan, _ := m.decide("w00")
			m.decide("w01")
			if landed {
				if _, err := m.api.patch(plan); err != nil {
					t.Fatal(err)
				}
			}
			if _, next := m.decide("w01"); next != condition.Nothing {
				t.Errorf("next %d while the outcome is uncertain", next)
			}
			wake := m.woken(func() { m.fleet.ObserveLive(m.api.nodes["w00"], moment(noon)) })
			sum, _ := m.fleet.Summary("a-uid", moment(noon))
			if want := map[bool]int{true: 1, false: 0}[landed]; sum.Tainted != want {
				t.Errorf("%d tainted after the live read, want %d", sum.Tainted, want)
			}
			if slices.Contains(wake, "w01") == landed {
				t.Errorf("wakes %v", wake)
			}
			if wrote := m.settle("w01"); wrote == landed {
				t.Errorf("the other node was written: %t", wrote)
			}
		})
	}
}

func TestAWatchFasterThanTheWritesAnswer(t *testing.T) {
	m := manage(t, calm("1", "1"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	plan, _ := m.decide("w00")
	m.decide("w01") // waits
	n, err := m.api.patch(plan)
	if err != nil {
		t.Fatal(err)
	}
	m.fleet.ObserveNode(n, moment(noon))
	if _, next := m.decide("w00"); next != condition.ReadLive {
		t.Errorf("next %d before the write's answer came, want a live read", next)
	}
	m.see("w00", func(n *corev1.Node) { n.Spec.Taints = nil }) // someone else, at once
	if _, next := m.decide("w01"); next != condition.Nothing {
		t.Errorf("next %d: the place was given away before the write's answer came", next)
	}
	if wake := m.woken(func() { m.fleet.Written("w00", n.ResourceVersion) }); !slices.Contains(wake, "w01") {
		t.Errorf("wakes %v, want the node that waits", wake)
	}
	if !m.settle("w01") {
		t.Error("the place isn't free once the write is known to be over")
	}
}

func TestOlderNewsIsIgnored(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10), newSet(t, "a", noSchedule))
	old := m.api.nodes["w00"].DeepCopy()
	m.see("w00", kubeletSick)
	if m.fleet.ObserveNode(old, moment(noon)) {
		t.Error("older news changed something")
	}
	if !m.settle("w00") {
		t.Error("older news undid newer news")
	}
	former := old.DeepCopy()
	former.UID = "former-uid"
	m.fleet.ObserveNode(former, moment(noon))
	if plan, next := m.decide("w00"); next != condition.Nothing || plan.Node.UID != "w00-uid" {
		t.Errorf("next %d for node %s: news of a former node of the same name was taken in", next, plan.Node.UID)
	}
}

func TestANodeReplacedUnderItsName(t *testing.T) {
	m := manage(t, calm("1", "1"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	m.settle("w00")
	replacement := newNode("w00", kubeletWell)
	replacement.UID = "second-uid"
	changed := m.fleet.ObserveNode(m.api.put(replacement), moment(noon))
	sum, _ := m.fleet.Summary("a-uid", moment(noon))
	if !changed || sum.Tainted != 0 || sum.Selected != 10 || sum.Matching != 9 {
		t.Errorf("changed %t, summary %+v; want 0 tainted, 10 selected, 9 matching", changed, sum)
	}
	if !m.settle("w01") {
		t.Error("the former node still takes its place")
	}
}

func TestHeartbeatsChangeNothing(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	m.settle("w00")
	m.fleet.DrainDirty()
	for i := range 5 {
		m.now = noon.Add(time.Duration(i) * 10 * time.Second)
		changed := false
		wake := m.woken(func() { changed = m.see("w00", reportsAt("KubeletUnhealthy", "True", ago(30*time.Minute), m.now)) })
		if changed || len(wake) > 0 {
			t.Fatalf("a heartbeat changed %t, woke %v", changed, wake)
		}
	}
	if dirty := m.fleet.DrainDirty(); dirty != nil {
		t.Errorf("dirty %v", dirty)
	}
}

func TestWhatElseChangesANodesPlan(t *testing.T) {
	for name, change := range map[string]nodeOption{
		"a transition without a new status": reports("KubeletUnhealthy", "True", ago(time.Minute)),
		"a new status":                      kubeletWell,
		"a condition more":                  kernelSick,
		"a condition less":                  gone("KubeletUnhealthy"),
		"a label":                           labelled("a", "b"),
		"a taint":                           tainted("foreign", "NoSchedule"),
		"the record":                        recorded(`{"history":[]}`),
		"its deletion":                      deleting,
		"a hold":                            heldUntil(later),
	} {
		t.Run(name, func(t *testing.T) {
			m := manage(t, calm("5", "5"), workers(10, kubeletSick, recorded("{}")), newSet(t, "a", noSchedule))
			if !m.see("w00", change) {
				t.Error("the plan isn't asked again")
			}
		})
	}
}

func TestAReplacedNodeIsObservedAnew(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kubeletSick), newSet(t, "a", "for: 5m\n"+noSchedule))
	m.now = noon.Add(10 * time.Minute)
	replacement := newNode("w00", kubeletSick)
	replacement.UID = "second-uid"
	m.fleet.ObserveNode(m.api.put(replacement), moment(m.now))
	plan, next := m.decide("w00")
	if want := noon.Add(11 * time.Minute); next != condition.Nothing || !plan.RequeueAt.Equal(want) {
		t.Errorf("next %d, looks again at %s; want nothing before %s", next, plan.RequeueAt, want)
	}
}

func TestAHeartbeatThatEndsADoubtChangesThePlan(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, reportsAt("KubeletUnhealthy", "True", ago(9*time.Hour), ago(9*time.Hour))), newSet(t, "a", noSchedule))
	if m.settle("w00") {
		t.Fatal("tainted by an unproven condition")
	}
	if !m.see("w00", reportsAt("KubeletUnhealthy", "True", ago(9*time.Hour), ago(8*time.Hour))) {
		t.Error("the plan isn't asked again though the reporter has spoken")
	}
	if !m.settle("w00") {
		t.Error("not tainted by a proven condition")
	}
}

func TestALeaseThatEndsADoubtChangesThePlan(t *testing.T) {
	set := newSet(t, "a", "effect: NoSchedule\ntaintKey: example.com/k\nconditions: {NetworkUnavailable: {status: true}}")
	m := manage(t, calm("5", "5"), workers(10, reportsAt("NetworkUnavailable", "True", ago(9*time.Hour), ago(9*time.Hour))), set)
	if !m.fleet.UsesLease() {
		t.Error("the set doesn't ask for Leases")
	}
	if m.settle("w00") {
		t.Fatal("tainted without a sign of life")
	}
	if !m.fleet.ObserveLease("w00", ago(5*time.Second), moment(noon)) {
		t.Error("a renewed Lease changes nothing")
	}
	if m.fleet.ObserveLease("w00", noon, moment(noon)) {
		t.Error("the next renewal changes something")
	}
	if m.see("w00") { // which must not forget the Lease
		t.Error("an update of nothing changes something")
	}
	if !m.settle("w00") {
		t.Error("not tainted though the Lease is fresh")
	}
	if changed := m.fleet.ObserveLease("unknown", noon, moment(noon)); changed {
		t.Error("a Lease of a node that isn't known changes something")
	}
}

func TestALiveReadBehindTheWatchStillEndsTheUncertainty(t *testing.T) {
	m := manage(t, calm("1", "1"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	m.decide("w00") // nothing is heard of this write
	read := m.api.nodes["w00"]
	m.see("w00", kubeletWell)
	m.fleet.ObserveLive(read, moment(noon))
	if _, next := m.decide("w00"); next != condition.Nothing {
		t.Errorf("next %d, want nothing", next)
	}
	if !m.settle("w01") {
		t.Error("the place isn't free")
	}
}

func TestAClockStepHoldsTheWholeFleet(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	m.fleet.DeferActsUntil(noon.Add(5 * time.Minute))
	m.fleet.DeferActsUntil(noon.Add(time.Minute)) // shortens nothing
	m.now = noon.Add(5*time.Minute - time.Second)
	if m.settle("w00") {
		t.Error("acted before the clock is trusted again")
	}
	m.now = noon.Add(5 * time.Minute)
	if !m.settle("w00") {
		t.Error("doesn't act once the clock is trusted again")
	}
}

func TestTheOrderOfConditionsIsNoNews(t *testing.T) {
	fleet := condition.NewFleet(calm("1", "1"))
	n := newNode("a", reports("KernelDeadlock", "False", ago(time.Hour)), reports("ReadonlyFilesystem", "False", ago(time.Hour)))
	fleet.ObserveNode(n, moment(noon))
	turned := n.DeepCopy()
	turned.ResourceVersion = "2"
	slices.Reverse(turned.Status.Conditions)
	if fleet.ObserveNode(turned, moment(noon.Add(time.Second))) {
		t.Error("a node whose conditions come in another order has changed")
	}
}
