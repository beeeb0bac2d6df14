package weederconfig

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

func TestARecoveryAndADeletionAreToldOnBothSides(t *testing.T) {
	w := newWorld(t)
	w.observe(t.Context(), stored("wc", func(s *v1alpha1.WeederConfigSpec) { s.WatchDuration = "1m" }))
	w.attachPods(newQueue(t))
	w.recover()
	w.clock.Step(2 * time.Second)
	w.Report.reportDeletion(w.decided(t, crashing("api-1")), w.clock.Now())
	recovery := "Service autohealer-system/etcd turned Ready; WeederConfig autohealer-system/wc deletes pods that depend on it and crash-loop within 1m0s of that"
	deletion := "WeederConfig autohealer-system/wc deletes pod autohealer-system/api-1: Service etcd recovered at 12:00:00Z, and container main exited with code 1 after 4 restarts"
	want := []event{
		{"Service autohealer-system/etcd", "WeederConfig autohealer-system/wc", "ServiceRecovered", "Watch", recovery},
		{"WeederConfig autohealer-system/wc", "Service autohealer-system/etcd", "ServiceRecovered", "Watch", recovery},
		{"ReplicaSet autohealer-system/api", "Pod autohealer-system/api-1", "PodDeleted", "Delete", deletion},
		{"WeederConfig autohealer-system/wc", "Pod autohealer-system/api-1", "PodDeleted", "Delete", deletion},
	}
	if !slices.Equal(w.heard.all, want) {
		t.Errorf("told:\n%q", w.heard.all)
	}
}

func TestAnEvictionOfAReplacementSaysSo(t *testing.T) {
	w := newWorld(t)
	w.observe(t.Context(), stored("wc", func(s *v1alpha1.WeederConfigSpec) { s.Deletion = v1alpha1.Evict }))
	w.recover()
	plan := w.decided(t, crashing("api-1"))
	plan.Delete.Before = []time.Time{{}}
	w.Report.reportDeletion(plan, w.clock.Now())
	last := w.heard.all[len(w.heard.all)-1]
	if last.action != "Evict" || !strings.Contains(last.note, "evicts pod") || !strings.HasSuffix(last.note, "; it had replaced a pod that was deleted before") {
		t.Errorf("told %q", last)
	}
}

func TestAStandbyKeepsARecoveryToItselfUntilItLeads(t *testing.T) {
	w := newWorld(t)
	wc := stored("wc", nil)
	w.observe(t.Context(), wc)
	w.recover()
	if len(w.heard.all) != 0 {
		t.Fatalf("a standby told %q", w.heard.all)
	}
	w.attachPods(newQueue(t))
	if len(w.heard.all) != 2 {
		t.Errorf("the new leader told %q", w.heard.all)
	}

	w = newWorld(t)
	w.observe(t.Context(), wc)
	w.recover()
	st := statusInput{synced: true}
	st.summary, _ = w.weeder().Summary(wc.UID, w.Facts.Moment())
	byLeader := wc.DeepCopy()
	byLeader.Status = statusOf(wc, st)
	w.policies.Seen(t.Context(), byLeader)
	w.attachPods(newQueue(t))
	if len(w.heard.all) != 0 {
		t.Errorf("what the former leader had told was told again: %q", w.heard.all)
	}
}

func TestARecoveryPromisesNothingThatTheConfigDoesNot(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.WeederConfigSpec)
		paused bool
		says   string
	}{
		"it enforces":  {nil, false, " wc deletes pods that"},
		"it observes":  {func(s *v1alpha1.WeederConfigSpec) { s.Mode = v1alpha1.Observe }, false, " wc would delete pods that"},
		"it is paused": {nil, true, " wc would delete pods that"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if c.paused {
				w.guard.SetGuardrails([]*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "platform"}, Spec: v1alpha1.GuardrailSpec{Paused: true}}})
			}
			w.observe(t.Context(), stored("wc", c.change))
			w.attachPods(newQueue(t))
			w.recover()
			if len(w.heard.all) != 2 || !strings.Contains(strings.ReplaceAll(w.heard.all[0].note, ownNamespace+"/", ""), c.says) {
				t.Errorf("told %q", w.heard.all)
			}
		})
	}
}
