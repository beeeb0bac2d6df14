package condition_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// delete takes a node away, as an autoscaler does with one that is tainted.
func (m *manager) delete(name string) {
	m.fleet.ForgetNode(name, m.api.nodes[name].UID, moment(m.now))
	delete(m.api.nodes, name)
}

// held gives why a node doesn't get an effect now, if the message says a word; "" when it gets it.
func (m *manager) held(name string, effect corev1.TaintEffect, word string) string {
	plan, next := m.decide(name)
	if next == condition.Write {
		m.fleet.Failed(name)
	}
	for _, s := range plan.Steps {
		if s.To == effect {
			return ""
		}
	}
	for _, h := range plan.Holds {
		if strings.Contains(h.Message, word) {
			return string(h.Reason)
		}
	}
	return fmt.Sprintf("nothing that says %q: %+v", word, plan.Holds)
}

func TestANodeThatIsDeletedGivesItsPlaceBackWithTime(t *testing.T) {
	const deleted = "1 deleted since; each counts until evictPace has passed since its taint"
	own := "maxNodes: 1\n"
	for name, c := range map[string]struct {
		limits        limit.Limits
		spec          string
		effect        corev1.TaintEffect
		says, waitsOn string
	}{
		"maxTaintedNodes":    {calm("1", "5"), noExecute, "NoExecute", "maxTaintedNodes 1 allows 1 of 9 nodes, and 0 are tainted, " + deleted, "LimitReached"},
		"maxEvictingNodes":   {calm("5", "1"), noExecute, "NoExecute", "maxEvictingNodes 1 allows 1 of 9 nodes, and 0 are evicting, " + deleted, "EvictLimitReached"},
		"pace":               {calm("5", "5"), noExecute, "NoExecute", `one node of zone "" begins to evict every 5m0s; the next may at 2026-11-03T12:05:00Z`, "EvictionPace"},
		"the set's maxNodes": {calm("5", "5"), own + noExecute, "NoExecute", "maxNodes 1 allows 1 of 9 selected nodes, and 0 are tainted, " + deleted, "MaxNodesReached"},
	} {
		t.Run(name, func(t *testing.T) {
			m := manage(t, c.limits, workers(10, kubeletSick, kernelSick), newSet(t, "a", c.spec))
			if !m.settle("w00") {
				t.Fatal("the first isn't tainted")
			}
			m.now = noon.Add(10 * time.Second)
			m.delete("w00")
			for _, after := range []time.Duration{11 * time.Second, 5*time.Minute - time.Second} {
				m.now = noon.Add(after)
				if got := m.held("w01", c.effect, c.says); got != c.waitsOn {
					t.Errorf("%s later it waits for %q, want %q", after, got, c.waitsOn)
				}
			}
			m.now = noon.Add(5 * time.Minute)
			if got := m.held("w01", c.effect, ""); got != "" {
				t.Errorf("five minutes later it waits for %q", got)
			}
		})
	}
}

func TestAForgedClaimCountsNoLongerThanItsNode(t *testing.T) {
	m := manage(t, calm("1", "1"), workers(10, kernelSick), newSet(t, "a", noExecute))
	m.see("w09", kernelWell, owning("a", "corp.example/forged", "NoExecute", noon))
	if got := m.held("w00", "NoExecute", "and 1 is"); got != "LimitReached" {
		t.Errorf("beside a forged claim it waits for %q", got)
	}
	m.delete("w09")
	if got := m.held("w00", "NoExecute", "one node of zone"); got != "EvictionPace" { // no limit
		t.Errorf("without its node it waits for %q", got)
	}
}

func TestAnEvictionPacesOthersThoughItWasUndone(t *testing.T) {
	for name, undo := range map[string]func(m *manager){
		"the set observes and enforces again": func(m *manager) {
			set := newSet(t, "a", noExecute)
			m.fleet.ObserveSet(set, lifecycle.Observing, nil, "", moment(m.now))
			m.settle("w00")
			m.fleet.ObserveSet(set, lifecycle.Active, nil, "", moment(m.now))
		},
		"the set is made anew": func(m *manager) {
			m.fleet.ObserveSet(newSet(t, "a", noExecute), lifecycle.Deleted, nil, "", moment(m.now))
			m.settle("w00")
			m.fleet.ForgetSet("a-uid", moment(m.now))
			anew := newSet(t, "a", noExecute)
			anew.UID = "anew"
			m.fleet.ObserveSet(anew, lifecycle.Active, nil, "", moment(m.now))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := manage(t, calm("5", "5"), workers(10, kernelSick), newSet(t, "a", noExecute))
			m.settle("w00")
			m.now = noon.Add(10 * time.Second)
			undo(m)
			m.now = noon.Add(30 * time.Second)
			if n := len(m.api.nodes["w00"].Spec.Taints); n != 0 {
				t.Fatalf("it has %d taints still", n)
			}
			for _, node := range []string{"w00", "w01"} {
				if got := m.held(node, "NoExecute", "one node of zone"); got != "EvictionPace" {
					t.Errorf("%s waits for %q, want the pace", node, got)
				}
			}
		})
	}
}

func TestRecordedEvictionsCountAfterARestart(t *testing.T) {
	m := manage(t, calm("5", "1"), workers(10, kernelSick), newSet(t, "a", noExecute))
	gone := limit.Act{UID: "gone", Name: "w99", Zone: "", Began: noon.Add(-time.Minute)}
	if !m.fleet.Recall([]limit.Act{gone}, moment(noon)) {
		t.Error("it is no news")
	}
	if m.fleet.Recall([]limit.Act{gone, {UID: "old", Began: noon.Add(-time.Hour)}, {UID: "forged", Began: noon.Add(time.Hour)}}, moment(noon)) {
		t.Error("what is known, over, or not yet is news")
	}
	if got := m.held("w00", "NoExecute", "one node of zone"); got != "EvictionPace" {
		t.Errorf("it waits for %q", got)
	}
	m.now = noon.Add(4 * time.Minute)
	if got := m.held("w00", "NoExecute", ""); got != "" {
		t.Errorf("later it waits for %q", got)
	}
}

func TestAPlanOfBeforeARecallIsStale(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kernelSick), newSet(t, "a", noExecute))
	plan, _ := m.decide("w00")
	if m.fleet.Stale(plan) {
		t.Error("it is stale at once")
	}
	m.fleet.Recall([]limit.Act{{UID: "old", Began: noon.Add(-time.Hour)}}, moment(noon))
	if m.fleet.Stale(plan) {
		t.Error("it is stale though nothing was news")
	}
	m.fleet.Recall([]limit.Act{{UID: "gone", Began: noon.Add(-time.Minute)}}, moment(noon))
	if !m.fleet.Stale(plan) {
		t.Error("it isn't stale")
	}
}

func TestAControlPlaneNodeThatIsDeletedHoldsTheNext(t *testing.T) {
	nodes := append(workers(30), newNode("cp1", kernelSick, controlPlane, inZone("x")), newNode("cp2", kernelSick, controlPlane, inZone("y")), newNode("cp3", controlPlane))
	m := manage(t, calm("5", "5"), nodes, newSet(t, "a", "includeControlPlane: true\n"+noExecute))
	if !m.settle("cp1") {
		t.Fatal("the first isn't tainted")
	}
	m.delete("cp1")
	if got := m.held("cp2", "NoExecute", "another control-plane node"); got != "OtherControlPlaneNodeTainted" {
		t.Errorf("the second waits for %q", got)
	}
	if m.now = noon.Add(5 * time.Minute); m.held("cp2", "NoExecute", "") != "" {
		t.Error("it waits for ever")
	}
}

func TestAClockThatIsSetBackHoldsNoPlaceForLong(t *testing.T) {
	m := manage(t, calm("1", "5"), workers(10, kernelSick), newSet(t, "a", noExecute))
	m.now = noon.Add(6 * time.Hour)
	m.see("w00", reportsAt("KernelDeadlock", "True", m.now, m.now))
	if !m.settle("w00") {
		t.Fatal("it isn't tainted")
	}
	m.delete("w00")
	if m.now = noon; m.held("w01", "NoExecute", "") != "" {
		t.Error("a place is taken until the clock is there again")
	}
}

func TestAForgedTimeHidesNoEviction(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kernelSick), newSet(t, "a", noExecute))
	m.see("w00", recorded(`{"history":[{"set":"a-uid","at":"2099-01-01T00:00:00Z","evicted":"2099-01-01T00:00:00Z"}]}`))
	m.fleet.Recall([]limit.Act{{UID: m.api.nodes["w00"].UID, Name: "w00", Began: noon.Add(24 * time.Hour)}}, moment(noon))
	if !m.settle("w00") {
		t.Fatal("it isn't tainted")
	}
	m.delete("w00")
	if got := m.held("w01", "NoExecute", "one node of zone"); got != "EvictionPace" {
		t.Errorf("the next waits for %q", got)
	}
}

func TestANodeWhoseRecordCannotBeReadCountsWhenItIsDeleted(t *testing.T) {
	m := manage(t, calm("1", "1"), workers(10, kernelSick), newSet(t, "a", noExecute))
	m.settle("w00")
	m.see("w00", recorded("{"))
	m.delete("w00")
	if got := m.held("w01", "NoExecute", "1 deleted since"); got != "LimitReached" {
		t.Errorf("the next waits for %q", got)
	}
	if acts := m.fleet.Evictions(); len(acts) != 1 {
		t.Errorf("remembered: %+v", acts)
	}
}

func TestARecordedEvictionOfANodeThatIsThereTakesNoSecondPlace(t *testing.T) {
	m := manage(t, calm("5", "2"), workers(10, kernelSick, inZone("x")), newSet(t, "a", noExecute))
	other := newNode("y00", kernelSick, inZone("y"))
	m.fleet.ObserveNode(m.api.put(other), moment(noon))
	m.settle("w00")
	m.fleet.Recall([]limit.Act{{UID: m.api.nodes["w00"].UID, Name: "w00", Zone: "x", Began: noon.Add(time.Second)}}, moment(noon.Add(time.Second)))
	m.now = noon.Add(2 * time.Second)
	if got := m.held("y00", "NoExecute", ""); got != "" {
		t.Errorf("the second of two waits for %q", got)
	}
}
