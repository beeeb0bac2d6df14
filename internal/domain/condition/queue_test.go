package condition_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

func TestTheNextIsWokenWhenTheHeadLeavesTheQueueWithoutTakingItsPlace(t *testing.T) {
	m := manage(t, calm("1", "1"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	m.settle("w00")
	for _, name := range []string{"w01", "w02", "w03"} {
		m.decide(name)
	}
	m.fleet.SetPolicy(condition.Policy{Limits: calm("2", "1")}, moment(noon)) // a place is free, and w01 is first in line
	m.see("w01", kubeletWell)
	m.decide("w01")
	if woken := m.fleet.DrainRequeues(); !slices.Equal(woken, []string{"w02"}) {
		t.Fatalf("woken %v, want the next in line", woken)
	}
	if !m.settle("w02") {
		t.Error("the next doesn't take the place")
	}
	if woken := m.fleet.DrainRequeues(); !slices.Equal(woken, []string{"w03"}) {
		t.Errorf("woken %v after that, want the one behind it", woken)
	}
	if m.settle("w03") || len(m.fleet.DrainRequeues()) > 0 {
		t.Error("who stays in line wakes nobody")
	}
	m.fleet.ForgetNode("w03", "w03-uid", moment(noon))
	m.decide("w04")
	if m.fleet.ForgetNode("w04", "w04-uid", moment(noon)); len(m.fleet.DrainRequeues()) > 0 {
		t.Error("the last in line wakes somebody")
	}
}

// Its clock may be behind the API server's, so that it steps back with every decision.
func TestWhoIsAloneInALineNeverWakesItself(t *testing.T) {
	m := manage(t, calm("1", "1"), workers(2, kubeletSick), newSet(t, "a", noSchedule))
	m.settle("w00")
	m.decide("w01")
	m.fleet.DrainRequeues()
	m.see("w01", reports("KubeletUnhealthy", "True", ago(20*time.Minute)))
	m.decide("w01")
	if woken := m.fleet.DrainRequeues(); len(woken) > 0 {
		t.Errorf("woken %v", woken)
	}
}

func TestALimitThatGrowsByManyLetsThemAllGoOn(t *testing.T) {
	m := manage(t, calm("1", "1"), workers(60, kubeletSick), newSet(t, "a", noSchedule))
	for _, name := range m.fleet.Nodes() {
		m.settle(name)
	}
	m.fleet.DrainRequeues()
	for woken := m.fleet.SetPolicy(condition.Policy{Limits: calm("50", "1")}, moment(noon)); len(woken) > 0; woken = m.fleet.DrainRequeues() {
		for _, name := range woken {
			m.settle(name)
		}
	}
	if got := m.tainted("example.com/k"); len(got) != 50 {
		t.Errorf("%d tainted without waiting for a timer, want 50", len(got))
	}
}

func TestOneWriteServesAllSetsThatWaitForALimit(t *testing.T) {
	kubelet := func(d time.Duration) nodeOption { return reports("KubeletUnhealthy", "True", ago(d)) }
	m := manage(t, calm("0", "0"), append(workers(10), newNode("both", kubelet(time.Minute), reports("KernelDeadlock", "True", ago(2*time.Hour))), newNode("one", kubelet(time.Hour))),
		newSet(t, "a", noSchedule), newSet(t, "b", "effect: NoSchedule\ntaintKey: example.com/b\nconditions: {KernelDeadlock: {status: true}}"))
	m.settle("one")
	m.fleet.SetPolicy(condition.Policy{Limits: calm("1", "1")}, moment(noon))
	if m.settle("both"); len(m.api.nodes["both"].Spec.Taints) != 2 {
		t.Errorf("taints %v in the first write, want both: the place is the node's", texts(m.api.nodes["both"].Spec.Taints, taintText))
	}
}

func TestANodeRanksByTheMatchOfTheSetThatIsHeld(t *testing.T) {
	const free = "effect: PreferNoSchedule\ntaintKey: example.com/free\nconditions: {KubeletUnhealthy: {status: true}}"
	long, short := reports("KubeletUnhealthy", "True", ago(9*time.Hour)), reports("KernelDeadlock", "True", ago(time.Minute))
	m := manage(t, calm("1", "1"), append(workers(10), newNode("early", long, short), newNode("late", reports("KernelDeadlock", "True", ago(time.Hour)))),
		newSet(t, "0free", free), newSet(t, "a", "effect: NoSchedule\ntaintKey: example.com/k\nconditions: {KernelDeadlock: {status: true}}"))
	m.fleet.SetPolicy(condition.Policy{Limits: calm("0", "0")}, moment(noon))
	m.settle("late")
	m.settle("early")
	m.fleet.SetPolicy(condition.Policy{Limits: calm("1", "1")}, moment(noon))
	if m.settle("early"); len(m.tainted("example.com/k")) > 0 {
		t.Errorf("tainted %v before one that waits longer, by the match of a set that isn't held", m.tainted("example.com/k"))
	}
	if m.settle("late"); !slices.Equal(m.tainted("example.com/k"), []string{"late"}) {
		t.Errorf("tainted %v, want the one that waits longer", m.tainted("example.com/k"))
	}
}

func TestRoomThatIsFreedWakesTheQueue(t *testing.T) {
	waiting := []string{"w01", "w02"}
	free := map[string]func(m *manager){
		"the undo is seen": func(m *manager) {
			m.see("w00", kubeletWell)
			plan, _ := m.decide("w00")
			n, _ := m.api.patch(plan)
			m.fleet.Written("w00", n.ResourceVersion)
			m.fleet.ObserveNode(n, moment(noon))
		},
		"someone else removes the taint": func(m *manager) {
			m.see("w00", func(n *corev1.Node) { n.Spec.Taints = nil })
		},
		"the node is gone": func(m *manager) { m.fleet.ForgetNode("w00", "w00-uid", moment(noon)) },
		"a control-plane node becomes a worker": func(m *manager) {
			m.see("cp", func(n *corev1.Node) { delete(n.Labels, "node-role.kubernetes.io/control-plane") })
		},
		"a node joins": func(m *manager) { m.fleet.ObserveNode(m.api.put(newNode("new")), moment(noon)) },
	}
	for name, act := range free {
		t.Run(name, func(t *testing.T) {
			m := manage(t, calm("10%", "10%"), append(workers(19, kubeletSick), newNode("cp", controlPlane)), newSet(t, "a", noSchedule)) // one more of twenty
			m.settle("w00")
			for _, name := range waiting {
				m.decide(name)
			}
			if diff := cmp.Diff(waiting, m.woken(func() { act(m) })); diff != "" {
				t.Errorf("woken nodes differ:\n%s", diff)
			}
		})
	}
}

func TestAnEvictionInFlightPacesItsZone(t *testing.T) {
	m := manage(t, calm("10", "10"), workers(10, inZone("a"), kernelSick), newSet(t, "a", noExecute))
	first, _ := m.decide("w00")
	if second, _ := m.decide("w01"); first.Eviction().Began.IsZero() || !second.Eviction().Began.IsZero() {
		t.Errorf("evictions %v and %v, want the first only: its write may be there", first.Eviction(), second.Eviction())
	}
}

func TestANodeThatComesBackWakesWhoWaitsForTheSetsOwnCap(t *testing.T) {
	m := manage(t, calm("100", "100"), append(workers(19, kubeletSick), newNode("back", cordoned)), newSet(t, "a", "maxNodes: 10%\n"+noSchedule))
	m.settle("w00")
	m.decide("w01")
	m.fleet.DrainRequeues()
	m.see("back", func(n *corev1.Node) { n.Spec.Unschedulable = false })
	if woken := m.fleet.DrainRequeues(); !slices.Contains(woken, "w01") {
		t.Errorf("woken %v, want the one that waits for maxNodes", woken)
	}
}
