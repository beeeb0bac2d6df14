package condition_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

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
	if got := m.tainted("example.com/k"); got != nil || stillRecorded(m.fleet, "a-uid") {
		t.Errorf("tainted %v, recorded %t; want everything undone", got, stillRecorded(m.fleet, "a-uid"))
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
	if !stillRecorded(m.fleet, "a-uid") {
		t.Fatal("the record isn't known")
	}
	for _, name := range m.fleet.ObserveSet(set, withdrawn, nil, "", moment(noon)) {
		m.settle(name)
	}
	if stillRecorded(m.fleet, "a-uid") {
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
	if affected := m.fleet.ForgetSet("a-uid", moment(m.now)); !slices.Equal(affected, []string{"w00"}) {
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
	m.see("w00", kubeletWell)
	m.fleet.ForgetSet("a-uid", moment(m.now))
	restored := newSet(t, "a", noSchedule)
	restored.UID = "second-uid"
	if affected := m.fleet.ObserveSet(restored, active, nil, "", moment(noon)); !slices.Contains(affected, "w00") {
		t.Errorf("affected %v, want the node with the former record", affected)
	}
	m.see("w00", kubeletSick)
	m.settle("w00")
	if record := m.api.nodes["w00"].Annotations[recordAnnotation]; !strings.Contains(record, "second-uid") || strings.Contains(record, `"a-uid"`) {
		t.Errorf("record %s", record)
	}
	if !stillRecorded(m.fleet, "second-uid") {
		t.Error("the restored set doesn't know its record")
	}
}

// A cluster that was restored from a backup, or a set that GitOps made anew while the manager was down: the record's UID is gone.
func TestWhoTakesOverTheTaintOfASetThatIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		set     string
		key     string // that the record claims
		orphans int    // before anybody looks
		want    string // whose claims the record has in the end
	}{
		"the set of its name":                   {"a", "example.com/k", 0, "a-uid example.com/k:NoSchedule"},
		"of another name, with the key":         {"b", "example.com/k", 0, "b-uid example.com/k:NoSchedule"},
		"nobody, where no set declares the key": {"a", "example.com/former", 1, "former-uid example.com/former:NoSchedule, a-uid example.com/k:NoSchedule"},
	} {
		t.Run(name, func(t *testing.T) {
			sick := newNode("w", kubeletSick, owning("former", c.key, "NoSchedule", ago(time.Hour)))
			sick.Annotations[recordAnnotation] = strings.ReplaceAll(sick.Annotations[recordAnnotation], `"name":"former"`, `"name":"a"`)
			m := manage(t, calm("5", "5"), append(workers(10), sick), newSet(t, c.set, noSchedule))
			if got := m.fleet.Orphans(); len(got) != c.orphans {
				t.Errorf("nobody's: %v", got)
			}
			for range 2 {
				m.settle("w")
				if len(m.tainted(c.key)) != 1 {
					t.Error("the taint is missing")
				}
				m.fleet.ConfirmOrphan("former-uid") // as the controller does after a minute
			}
			o, _ := condition.ParseOwnership(m.api.nodes["w"].Annotations[recordAnnotation])
			if got := strings.Join(texts(o.Taints, claimText), ", "); got != c.want {
				t.Errorf("in the end it is of %s, want %s", got, c.want)
			}
			m.see("w", kubeletWell)
			m.settle("w")
			if left := len(m.api.nodes["w"].Spec.Taints); left != c.orphans {
				t.Errorf("%d taints left after recovery", left)
			}
		})
	}
}

func TestRelabelledNodes(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kubeletSick, labelled("pool", "a")), newSet(t, "a", "nodeSelector: {matchLabels: {pool: a}}\n"+noSchedule))
	m.settle("w00")
	if !m.see("w00", labelled("pool", "b")) {
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

func TestSummary(t *testing.T) {
	nodes := append(workers(25, kubeletSick), renamed("well", workers(10, kubeletWell))...)
	nodes = append(nodes, renamed("silent", workers(3, kubeletSilent))...)
	nodes = append(nodes, newNode("cp", controlPlane, kubeletSick), newNode("leaving", deleting, kubeletSick))
	m := manage(t, calm("2", "2"), nodes, newSet(t, "a", noSchedule))
	for _, name := range m.fleet.Nodes() {
		m.settle(name)
	}
	sum, ok := m.fleet.Summary("a-uid", moment(noon))
	if !ok || sum.Selected != 38 || sum.Matching != 28 || sum.Tainted != 2 || sum.HeldBack != 23 || sum.Doubtful != 3 {
		t.Errorf("summary %+v; want 38 selected, 28 matching, 2 tainted, 23 held back, 3 stale", sum)
	}
	if len(sum.Samples) != 20 || sum.Samples[0] != "silentw00" || sum.Samples[19] != "w16" {
		t.Errorf("samples %v; want the first 20 by name", sum.Samples)
	}
	if h := sum.Holds["LimitReached"]; h.Nodes != 23 || h.Message != "maxTaintedNodes 2 allows 2 of 38 nodes, and 2 are tainted" {
		t.Errorf("holds %+v", sum.Holds)
	}
	if _, ok := m.fleet.Summary("unknown", moment(noon)); ok {
		t.Error("a set that isn't known has a summary")
	}
}

func TestAChangedSetLetsGoOfWhatItHeld(t *testing.T) {
	m := manage(t, calm("1", "1"), workers(10, kubeletSick), newSet(t, "a", noSchedule), newSet(t, "o", otherKey))
	m.settle("w00")
	m.decide("w01")
	changed := newSet(t, "a", "effect: NoSchedule\ntaintKey: example.com/k\nconditions: {NTPProblem: {status: true}}")
	changed.Generation = 2
	if affected := m.fleet.ObserveSet(changed, active, nil, "", moment(noon)); !slices.Contains(affected, "w01") {
		t.Errorf("affected %v, want also what matched before", affected)
	}
}

func TestDirtySetsAreToldOnce(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10), newSet(t, "a", noSchedule), newSet(t, "b", noExecute))
	m.fleet.DrainDirty()
	m.see("w00", kubeletSick)
	if got := m.fleet.DrainDirty(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("dirty %v, want only the set that reads the condition", got)
	}
	if got := m.fleet.DrainDirty(); got != nil {
		t.Errorf("dirty %v a second time", got)
	}
}

func TestASetThatIsObservedUnchangedAffectsNothing(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	if affected := m.fleet.ObserveSet(newSet(t, "a", noSchedule), active, nil, "", moment(noon)); affected != nil {
		t.Errorf("affected %v", affected)
	}
}

func TestTheEndOfANodeDoesNotTakeTheOneThatCameUnderItsName(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	again := newNode("w00", kubeletSick)
	again.UID = "second-uid"
	m.fleet.ObserveNode(m.api.put(again), moment(noon))
	m.settle("w00")
	if m.fleet.ForgetNode("w00", "w00-uid", moment(noon)); !slices.Contains(m.fleet.Nodes(), "w00") || !stillRecorded(m.fleet, "a-uid") {
		t.Error("late news of the former node's end took the present one's state")
	}
	if m.fleet.ForgetNode("w00", "second-uid", moment(noon)); slices.Contains(m.fleet.Nodes(), "w00") {
		t.Error("its own end doesn't")
	}
}

func TestANodeRelabelledOutAndInAgainIsTaintedByAnotherAct(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kubeletSick, labelled("pool", "a")), newSet(t, "a", "nodeSelector: {matchLabels: {pool: a}}\n"+noSchedule))
	plan, _ := m.decide("w00")
	first := plan.Steps[0].Trigger
	m.fleet.Failed("w00")
	if again, _ := m.decide("w00"); !again.Steps[0].Trigger.Equal(first) {
		t.Errorf("trigger %s after a failure, want %s: it is the same act", again.Steps[0].Trigger, first)
	}
	m.fleet.Failed("w00")
	m.settle("w00")
	m.now = noon.Add(time.Minute)
	m.see("w00", labelled("pool", "b"))
	m.settle("w00")
	m.see("w00", labelled("pool", "a"))
	if plan, _ = m.decide("w00"); len(plan.Steps) != 1 || !plan.Steps[0].Trigger.Equal(m.now) {
		t.Errorf("steps %+v, want one whose trigger is that the taint went at %s", plan.Steps, m.now)
	}
}

func TestATaintThatSomebodyTookAwayIsNotCounted(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	m.settle("w00")
	m.settle("w01")
	m.fleet.DrainDirty()
	m.see("w00", func(n *corev1.Node) { n.Spec.Taints = nil })
	if dirty := m.fleet.DrainDirty(); !slices.Equal(dirty, []string{"a"}) {
		t.Errorf("to be told anew: %v", dirty)
	}
	if sum, _ := m.fleet.Summary("a-uid", moment(noon)); sum.Tainted != 1 {
		t.Errorf("%d tainted, want the one that carries the taint", sum.Tainted)
	}
}

func TestARecordThatCannotBeReadIsTold(t *testing.T) {
	set := newSet(t, "a", noSchedule)
	nodes := append(workers(10), newNode("x", tainted("example.com/k", "NoSchedule")), newNode("y", tainted("corp.example/theirs", "NoSchedule"), recorded("{")))
	m := manage(t, calm("5", "5"), nodes, set)
	m.fleet.DrainDirty()
	m.see("x", recorded("{"))
	if dirty := m.fleet.DrainDirty(); !slices.Equal(dirty, []string{"a"}) {
		t.Errorf("to be told anew: %v", dirty)
	}
	if sum, _ := m.fleet.Summary("a-uid", moment(noon)); !slices.Equal(sum.Unreadable, []string{"x"}) || sum.Tainted != 0 {
		t.Errorf("unreadable %v, %d tainted; want the one that carries the set's key to be told of", sum.Unreadable, sum.Tainted)
	}
	if got := texts(m.fleet.BrokenRecords(), condition.BrokenRecord.RepairSteps); len(got) != 2 ||
		!strings.HasSuffix(got[0], ": kubectl taint node x example.com/k:NoSchedule-; kubectl annotate node x autohealer.resourcestack.com/owned-taints-") ||
		got[1] != "repair the annotation, or remove it: kubectl annotate node y autohealer.resourcestack.com/owned-taints-" {
		t.Errorf("mended by %q; want the taint named whose key a set declared", got)
	}
	m.fleet.ObserveSet(set, withdrawn, nil, "", moment(noon))
	if nodes, some := m.fleet.Recorded("a-uid"); nodes != 1 || !slices.Equal(some, []string{"x"}) || m.fleet.Undone("a-uid") {
		t.Errorf("%d nodes left, %v; want the set to stay while nobody knows whose the taint is", nodes, some)
	}
	m.see("x", func(n *corev1.Node) { delete(n.Annotations, recordAnnotation) })
	if nodes, _ := m.fleet.Recorded("a-uid"); nodes != 0 || !m.fleet.Undone("a-uid") {
		t.Errorf("%d nodes left; what has no record isn't ours", nodes)
	}
}
