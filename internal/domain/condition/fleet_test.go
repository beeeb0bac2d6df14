package condition_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
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
	if wake := m.fleet.Failed("w00"); !slices.Contains(wake, "w01") {
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
			wake := m.fleet.ObserveLive(m.api.nodes["w00"], moment(noon))
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
	if wake := m.fleet.Written("w00", n.ResourceVersion); !slices.Contains(wake, "w01") {
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
	if changed, _ := m.fleet.ObserveNode(old, moment(noon)); changed {
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
	changed, _ := m.fleet.ObserveNode(m.api.put(replacement), moment(noon))
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
	m.fleet.TakeDirty()
	for i := range 5 {
		m.now = noon.Add(time.Duration(i) * 10 * time.Second)
		if changed, wake := m.see("w00", reportsAt("KubeletUnhealthy", "True", ago(30*time.Minute), m.now)); changed || wake != nil {
			t.Fatalf("a heartbeat changed %t, woke %v", changed, wake)
		}
	}
	if dirty := m.fleet.TakeDirty(); dirty != nil {
		t.Errorf("dirty %v", dirty)
	}
}

func TestAHeartbeatThatEndsADoubtChangesThePlan(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, reportsAt("KubeletUnhealthy", "True", ago(9*time.Hour), ago(9*time.Hour))), newSet(t, "a", noSchedule))
	if m.settle("w00") {
		t.Fatal("tainted by an unproven condition")
	}
	if changed, _ := m.see("w00", reportsAt("KubeletUnhealthy", "True", ago(9*time.Hour), ago(8*time.Hour))); !changed {
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
	if !m.settle("w00") {
		t.Error("not tainted though the Lease is fresh")
	}
	if changed := m.fleet.ObserveLease("unknown", noon, moment(noon)); changed {
		t.Error("a Lease of a node that isn't known changes something")
	}
}

func TestTheCaps(t *testing.T) {
	plane := func(n int) []*corev1.Node {
		var nodes []*corev1.Node
		for i := range n {
			nodes = append(nodes, newNode(fmt.Sprintf("cp%d", i), controlPlane))
		}
		return nodes
	}
	going := func(n int) []*corev1.Node {
		var nodes []*corev1.Node
		for i := range n {
			nodes = append(nodes, newNode(fmt.Sprintf("going%d", i), deleting))
		}
		return nodes
	}
	zoned := func(n int, zones ...string) []*corev1.Node {
		nodes := workers(n, kubeletSick)
		for i, w := range nodes {
			inZone(zones[i%len(zones)])(w)
		}
		return nodes
	}
	tests := []struct {
		name  string
		nodes []*corev1.Node
		want  int
	}{
		{"10% of 30", workers(30, kubeletSick), 3},
		{"10% of 29 rounds down", workers(29, kubeletSick), 2},
		{"one of three", workers(3, kubeletSick), 1},
		{"none of two", workers(2, kubeletSick), 0},
		{"control-plane nodes don't count", append(workers(19, kubeletSick), plane(5)...), 1},
		{"nodes that are being deleted don't count", append(workers(19, kubeletSick), going(5)...), 1},
		{"two zones have no cap of their own", zoned(30, "a", "b"), 3},
		{"three zones do", zoned(30, "a", "b", "c"), 3},
		{"the cap of a zone holds before the cluster's", append(zoned(20, "a"), append(renamed("b", zoned(30, "b")), renamed("c", zoned(30, "c"))...)...), 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := manage(t, calm("10%", "5%"), tt.nodes, newSet(t, "a", noSchedule))
			for _, name := range m.fleet.Nodes() {
				m.settle(name)
			}
			if got := m.tainted("example.com/k"); len(got) != tt.want {
				t.Errorf("%d tainted (%v), want %d", len(got), got, tt.want)
			}
		})
	}
}

func renamed(prefix string, nodes []*corev1.Node) []*corev1.Node {
	for _, n := range nodes {
		n.Name, n.UID = prefix+n.Name, types.UID(prefix)+n.UID
	}
	return nodes
}

func TestAZonesCapHoldsThoughTheClusterHasRoom(t *testing.T) {
	nodes := renamed("a", workers(10, kubeletSick, inZone("a")))
	nodes = append(nodes, renamed("b", workers(10, inZone("b")))...)
	nodes = append(nodes, renamed("c", workers(10, inZone("c")))...)
	m := manage(t, calm("10%", "5%"), nodes, newSet(t, "a", noSchedule))
	m.settle("aw00")
	plan, _ := m.decide("aw01")
	if len(plan.Holds) != 1 || plan.Holds[0].Message != `maxTaintedNodes 10% allows 1 of 10 nodes of zone "a", and 1 are` {
		t.Errorf("holds %+v", plan.Holds)
	}
}

func TestTheCapsMessageHasTheNumbers(t *testing.T) {
	m := manage(t, calm("10%", "5%"), workers(25, kubeletSick), newSet(t, "a", noSchedule))
	m.settle("w00")
	m.settle("w01")
	plan, _ := m.decide("w02")
	if len(plan.Holds) != 1 || plan.Holds[0].Message != "maxTaintedNodes 10% allows 2 of 25 nodes, and 2 are" {
		t.Errorf("holds %+v", plan.Holds)
	}
}

func TestThoseWhoWaitedLongestGoFirst(t *testing.T) {
	nodes := workers(10)
	for i, sickSince := range map[int]time.Duration{3: 50, 5: 40, 7: 30} {
		reports("KubeletUnhealthy", "True", ago(sickSince*time.Minute))(nodes[i])
	}
	kubeletSick(nodes[0])
	m := manage(t, calm("1", "1"), nodes, newSet(t, "a", "for: 5m\n"+noSchedule))
	m.now = noon.Add(time.Minute) // our own observation
	m.settle("w00")
	for _, name := range []string{"w07", "w05", "w03"} {
		m.decide(name)
	}
	_, wake := m.see("w00", kubeletWell)
	m.settle("w00")
	if _, next := m.decide("w07"); next != condition.Nothing {
		t.Errorf("the last in the queue went first")
	}
	if !m.settle("w03") {
		t.Errorf("the first in the queue didn't go (woken %v)", wake)
	}
}

func TestRoomThatIsFreedWakesTheQueue(t *testing.T) {
	waiting := []string{"w01", "w02"}
	free := map[string]func(m *manager) []string{
		"the undo is seen": func(m *manager) []string {
			m.see("w00", kubeletWell)
			plan, _ := m.decide("w00")
			n, _ := m.api.patch(plan)
			m.fleet.Written("w00", n.ResourceVersion)
			_, wake := m.fleet.ObserveNode(n, moment(noon))
			return wake
		},
		"someone else removes the taint": func(m *manager) []string {
			_, wake := m.see("w00", func(n *corev1.Node) { n.Spec.Taints = nil })
			return wake
		},
		"the node is gone": func(m *manager) []string { return m.fleet.ForgetNode("w00", moment(noon)) },
		"a node joins": func(m *manager) []string {
			_, wake := m.fleet.ObserveNode(m.api.put(newNode("new")), moment(noon))
			return wake
		},
	}
	for name, act := range free {
		t.Run(name, func(t *testing.T) {
			m := manage(t, calm("1", "1"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
			m.settle("w00")
			for _, name := range waiting {
				m.decide(name)
			}
			if diff := cmp.Diff(waiting, act(m)); diff != "" {
				t.Errorf("woken nodes differ:\n%s", diff)
			}
		})
	}
}

func TestANodeThatNoLongerMatchesLeavesTheQueue(t *testing.T) {
	m := manage(t, calm("1", "1"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	m.settle("w00")
	m.decide("w01")
	m.decide("w02")
	m.see("w01", kubeletWell)
	m.settle("w01")
	sum, _ := m.fleet.Summary("a-uid", moment(noon))
	if sum.HeldBack != 1 || sum.Holds["LimitReached"].Nodes != 1 {
		t.Errorf("%d held back (%v), want only the node that still matches", sum.HeldBack, sum.Holds)
	}
	m.see("w00", kubeletWell)
	m.settle("w00")
	if !m.settle("w02") {
		t.Error("the node that left the queue still stands before another")
	}
}

func TestTheOwnCap(t *testing.T) {
	tests := []struct {
		name, maxNodes string
		want           int
	}{
		{"a number", "2", 2}, {"a percentage of the selected nodes", "30%", 3}, {"nothing", "0", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			nodes := append(workers(10, kubeletSick, labelled("pool", "a")), renamed("other", workers(30, kubeletSick))...)
			set := newSet(t, "a", "maxNodes: "+tt.maxNodes+"\nnodeSelector: {matchLabels: {pool: a}}\n"+noSchedule)
			m := manage(t, calm("100%", "100%"), nodes, set)
			for _, name := range m.fleet.Nodes() {
				m.settle(name)
			}
			if got := m.tainted("example.com/k"); len(got) != tt.want {
				t.Errorf("%d tainted, want %d", len(got), tt.want)
			}
			if sum, _ := m.fleet.Summary("a-uid", moment(noon)); sum.Holds["OwnCapReached"].Nodes != 10-tt.want {
				t.Errorf("held %v, want %d by the own cap", sum.Holds, 10-tt.want)
			}
		})
	}
}

func TestAnOwnCapThatIsFreedWakesTheQueue(t *testing.T) {
	prefer := newSet(t, "p", "maxNodes: 1\neffect: PreferNoSchedule\ntaintKey: example.com/p\nconditions: {NTPProblem: {status: true}}")
	ntp := reports("NTPProblem", "True", ago(time.Hour))
	m := manage(t, calm("5", "5"), workers(10, kubeletSick, ntp), newSet(t, "a", noSchedule), prefer)
	m.settle("w00")
	m.settle("w01") // only the first set's taint: the second's cap is used up
	m.see("w00", reports("NTPProblem", "False", noon))
	plan, _ := m.decide("w00")
	n, err := m.api.patch(plan)
	if err != nil {
		t.Fatal(err)
	}
	m.fleet.Written("w00", n.ResourceVersion)
	if _, wake := m.fleet.ObserveNode(n, moment(noon)); !slices.Contains(wake, "w01") {
		t.Errorf("wakes %v, want the node that waits for the set's own cap", wake)
	}
}

func TestOneNodeOfAZoneBeginsToEvictAtATime(t *testing.T) {
	nodes := append(renamed("a", workers(20, kernelSick, inZone("a"))), renamed("b", workers(20, kernelSick, inZone("b")))...)
	m := manage(t, calm("100%", "100%"), nodes, newSet(t, "a", noExecute))
	evicting := func() (names []string) {
		for _, name := range m.fleet.Nodes() {
			for _, taint := range m.api.nodes[name].Spec.Taints {
				if taint.Effect == "NoExecute" {
					names = append(names, name)
				}
			}
		}
		return names
	}
	all := func() {
		for _, name := range m.fleet.Nodes() {
			m.settle(name)
		}
	}
	all()
	if got := evicting(); !slices.Equal(got, []string{"aw00", "bw00"}) {
		t.Errorf("evicting %v, want one in each zone", got)
	}
	if got := m.tainted("example.com/k"); len(got) != 40 {
		t.Errorf("%d tainted, want all: the others stay at NoSchedule", len(got))
	}
	plan, _ := m.decide("aw01")
	if plan.Holds[0].Reason != "EvictionPace" || !plan.LookAgain.Equal(noon.Add(5*time.Minute)) {
		t.Errorf("holds %v, looks again at %s; want the pace, in five minutes", plan.Holds, plan.LookAgain)
	}
	m.now = noon.Add(5*time.Minute - time.Second)
	all()
	if got := len(evicting()); got != 2 {
		t.Errorf("%d evict a second early", got)
	}
	m.now = noon.Add(5 * time.Minute)
	all()
	if got := evicting(); !slices.Equal(got, []string{"aw00", "aw01", "bw00", "bw01"}) {
		t.Errorf("evicting %v after five minutes, want two in each zone", got)
	}
}

func TestThePaceOutlivesTheTaintAndARestart(t *testing.T) {
	m := manage(t, calm("100%", "100%"), workers(20, kernelSick), newSet(t, "a", noExecute))
	m.settle("w00")
	m.now = noon.Add(time.Minute)
	m.see("w00", kernelWell)
	m.settle("w00")
	var nodes []*corev1.Node
	for _, n := range m.api.nodes {
		nodes = append(nodes, n)
	}
	again := manage(t, calm("100%", "100%"), nodes, newSet(t, "a", noExecute))
	again.now = m.now
	plan, _ := again.decide("w01")
	if len(plan.Holds) != 1 || plan.Holds[0].Reason != "EvictionPace" {
		t.Errorf("holds %v a minute after an eviction that is over, want the pace", plan.Holds)
	}
}

func TestAnEvictionTimeFarAheadDoesNotStopTheZone(t *testing.T) {
	nodes := workers(20, kernelSick)
	recorded(`{"history":[{"set":"x","at":"2026-11-03T11:00:00Z","evicted":"2099-01-01T00:00:00Z"}]}`)(nodes[7])
	m := manage(t, calm("100%", "100%"), nodes, newSet(t, "a", noExecute))
	if plan, _ := m.decide("w00"); len(plan.Taints) != 1 || plan.Taints[0].Effect != "NoExecute" {
		t.Errorf("taints %v, holds %v", plan.Taints, plan.Holds)
	}
}

func TestOneControlPlaneNodeAtATime(t *testing.T) {
	nodes := workers(30)
	for i := range 3 {
		nodes = append(nodes, newNode(fmt.Sprintf("cp%d", i), controlPlane, kubeletSick))
	}
	m := manage(t, calm("10%", "5%"), nodes, newSet(t, "a", "includeControlPlane: true\n"+noSchedule))
	for _, name := range m.fleet.Nodes() {
		m.settle(name)
	}
	if got := m.tainted("example.com/k"); !slices.Equal(got, []string{"cp0"}) {
		t.Fatalf("tainted %v, want one", got)
	}
	if sum, _ := m.fleet.Summary("a-uid", moment(noon)); sum.Holds["OtherControlPlaneNodeTainted"].Nodes != 2 {
		t.Errorf("held %v, want two behind the first", sum.Holds)
	}
	m.see("cp0", kubeletWell)
	m.settle("cp0")
	m.settle("cp2")
	m.settle("cp1")
	if got := m.tainted("example.com/k"); !slices.Equal(got, []string{"cp1"}) {
		t.Errorf("tainted %v, want the next in the queue", got)
	}
}

func TestObservingAndThenEnforcing(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	m.settle("w00")
	observing := newSet(t, "a", "mode: Observe\n"+noSchedule)
	observing.Generation = 2
	affected := m.fleet.ObserveSet(observing, withdrawn, nil, "", moment(noon))
	if len(affected) != 10 {
		t.Errorf("%d nodes affected, want all that match", len(affected))
	}
	for _, name := range affected {
		m.settle(name)
	}
	if got := m.tainted("example.com/k"); got != nil || m.fleet.Recorded("a-uid") {
		t.Errorf("tainted %v, recorded %t; want everything undone", got, m.fleet.Recorded("a-uid"))
	}
	if sum, _ := m.fleet.Summary("a-uid", moment(noon)); sum.Matching != 10 || sum.Tainted != 0 || sum.HeldBack != 0 {
		t.Errorf("summary %+v; want matches to be counted", sum)
	}
}

func TestADeletedSetLeavesNoRecord(t *testing.T) {
	set := newSet(t, "a", noExecute)
	nodes := append(workers(10, kernelSick), newNode("leaving", kernelSick))
	m := manage(t, calm("5", "5"), nodes, set)
	m.settle("w00")
	m.settle("w01")
	m.settle("leaving")
	m.see("w01", kernelWell)
	m.settle("w01") // only history is left
	m.see("leaving", deleting)
	if !m.fleet.Recorded("a-uid") {
		t.Fatal("the record isn't known")
	}
	for _, name := range m.fleet.ObserveSet(set, withdrawn, nil, "", moment(noon)) {
		m.settle(name)
	}
	if m.fleet.Recorded("a-uid") {
		t.Error("a record is left")
	}
	for name, n := range m.api.nodes {
		if len(n.Spec.Taints) > 0 || n.Annotations[recordAnnotation] != "" {
			t.Errorf("%s has taints %v, record %q", name, n.Spec.Taints, n.Annotations[recordAnnotation])
		}
	}
}

func TestAnOrphanIsUndoneOnceConfirmed(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	m.settle("w00")
	if affected := m.fleet.ForgetSet("a-uid"); !slices.Equal(affected, []string{"w00"}) {
		t.Errorf("affected %v, want the node that carries its record", affected)
	}
	plan, next := m.decide("w00")
	if next != condition.Nothing || plan.Orphans["a-uid"] != "a" {
		t.Errorf("next %d, orphans %v", next, plan.Orphans)
	}
	m.fleet.ConfirmOrphan("a-uid")
	if !m.settle("w00") || len(m.tainted("example.com/k")) > 0 {
		t.Error("the orphan isn't undone")
	}
}

func TestSetsThatComeBackUnderTheirNameTakeOver(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	m.settle("w00")
	m.fleet.ForgetSet("a-uid")
	restored := newSet(t, "a", noSchedule)
	restored.UID = "second-uid"
	if affected := m.fleet.ObserveSet(restored, active, nil, "", moment(noon)); !slices.Contains(affected, "w00") {
		t.Errorf("affected %v, want the node with the former record", affected)
	}
	m.settle("w00")
	if record := m.api.nodes["w00"].Annotations[recordAnnotation]; !strings.Contains(record, "second-uid") || strings.Contains(record, `"a-uid"`) {
		t.Errorf("record %s", record)
	}
	if !m.fleet.Recorded("second-uid") {
		t.Error("the restored set doesn't know its record")
	}
}

func TestRelabelledNodes(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kubeletSick, labelled("pool", "a")), newSet(t, "a", "nodeSelector: {matchLabels: {pool: a}}\n"+noSchedule))
	m.settle("w00")
	if changed, _ := m.see("w00", labelled("pool", "b")); !changed {
		t.Error("a relabelled node isn't looked at")
	}
	m.settle("w00")
	if got := m.tainted("example.com/k"); got != nil {
		t.Errorf("tainted %v after it was relabelled", got)
	}
	if sum, _ := m.fleet.Summary("a-uid", moment(noon)); sum.Selected != 9 || sum.Matching != 9 {
		t.Errorf("summary %+v, want 9 selected and matching", sum)
	}
}

func TestAClockStepHoldsTheWholeFleet(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	m.fleet.HoldActsUntil(noon.Add(5 * time.Minute))
	m.fleet.HoldActsUntil(noon.Add(time.Minute)) // shortens nothing
	m.now = noon.Add(5*time.Minute - time.Second)
	if m.settle("w00") {
		t.Error("acted before the clock is trusted again")
	}
	m.now = noon.Add(5 * time.Minute)
	if !m.settle("w00") {
		t.Error("doesn't act once the clock is trusted again")
	}
}

func TestTheFleetCountsForMetrics(t *testing.T) {
	m := manage(t, calm("10", "10"), append(workers(10, kernelSick), newNode("p", reports("NTPProblem", "True", ago(time.Hour)))),
		newSet(t, "a", noExecute), newSet(t, "p", "effect: PreferNoSchedule\ntaintKey: example.com/p\nconditions: {NTPProblem: {status: true}}"))
	m.settle("w00")
	m.settle("w01") // NoSchedule, by the pace
	m.settle("p")   // free
	if repelling, evicting, of := m.fleet.TaintedNodes(); repelling != 2 || evicting != 1 || of != 11 {
		t.Errorf("%d repelling, %d evicting of %d; want 2, 1 of 11", repelling, evicting, of)
	}
}

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
	f.ObserveSet(newSet(t, "a", noSchedule), active, &condition.OpenBreaker{ID: "x", OpenedAt: ago(time.Hour)}, "", moment(noon))
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

func TestSummary(t *testing.T) {
	nodes := append(workers(25, kubeletSick), renamed("well", workers(10, kubeletWell))...)
	nodes = append(nodes, renamed("silent", workers(3, kubeletSilent))...)
	nodes = append(nodes, newNode("cp", controlPlane, kubeletSick), newNode("leaving", deleting, kubeletSick))
	m := manage(t, calm("2", "2"), nodes, newSet(t, "a", noSchedule))
	for _, name := range m.fleet.Nodes() {
		m.settle(name)
	}
	sum, ok := m.fleet.Summary("a-uid", moment(noon))
	if !ok || sum.Selected != 38 || sum.Matching != 28 || sum.Tainted != 2 || sum.HeldBack != 23 || sum.Stale != 3 {
		t.Errorf("summary %+v; want 38 selected, 28 matching, 2 tainted, 23 held back, 3 stale", sum)
	}
	if len(sum.Samples) != 20 || sum.Samples[0] != "silentw00" || sum.Samples[19] != "w16" {
		t.Errorf("samples %v; want the first 20 by name", sum.Samples)
	}
	if h := sum.Holds["LimitReached"]; h.Nodes != 23 || h.Message != "maxTaintedNodes 2 allows 2 of 38 nodes, and 2 are" {
		t.Errorf("holds %+v", sum.Holds)
	}
	if _, ok := m.fleet.Summary("unknown", moment(noon)); ok {
		t.Error("a set that isn't known has a summary")
	}
}

func TestDirtySetsAreToldOnce(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10), newSet(t, "a", noSchedule), newSet(t, "b", noExecute))
	m.fleet.TakeDirty()
	m.see("w00", kubeletSick)
	if got := m.fleet.TakeDirty(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("dirty %v, want only the set that reads the condition", got)
	}
	if got := m.fleet.TakeDirty(); got != nil {
		t.Errorf("dirty %v a second time", got)
	}
}

func TestASetThatIsObservedUnchangedAffectsNothing(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	if affected := m.fleet.ObserveSet(newSet(t, "a", noSchedule), active, nil, "", moment(noon)); affected != nil {
		t.Errorf("affected %v", affected)
	}
}
