package weederconfig

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

func TestARecoveryAndADeletionAreToldOnBothSides(t *testing.T) {
	w := newWorld(t)
	w.observe(t.Context(), stored("wc", func(s *v1alpha1.WeederConfigSpec) { s.WatchDuration = "1m" }))
	w.attach(newQueue(t), nil)
	w.recover()
	w.clock.Step(2 * time.Second)
	w.Report.deleted(w.decided(t, crashing("api-1")), w.clock.Now())
	recovery := "Service autohealer-system/etcd turned Ready at 12:00:00Z; WeederConfig autohealer-system/wc deletes pods that depend on it and crash-loop until 12:01:00Z"
	deletion := "WeederConfig autohealer-system/wc deletes pod autohealer-system/api-1: Service etcd recovered at 12:00:00Z, and container main exited with code 1 after 4 restarts"
	want := []event{
		{"Service autohealer-system/etcd", "WeederConfig autohealer-system/wc", "ServiceRecovered", "Watch", recovery},
		{"WeederConfig autohealer-system/wc", "Service autohealer-system/etcd", "ServiceRecovered", "Watch", recovery},
		{"ReplicaSet autohealer-system/api", "WeederConfig autohealer-system/wc", "PodDeleted", "Delete", deletion},
		{"WeederConfig autohealer-system/wc", "ReplicaSet autohealer-system/api", "PodDeleted", "Delete", deletion},
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
	plan.Delete.Repeat = true
	w.Report.deleted(plan, w.clock.Now())
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
	w.attach(newQueue(t), nil)
	if len(w.heard.all) != 2 {
		t.Errorf("the new leader told %q", w.heard.all)
	}

	w = newWorld(t)
	w.observe(t.Context(), wc)
	w.recover()
	st := state{synced: true}
	st.summary, _ = w.yard().Summary(wc.UID, w.moment())
	byLeader := wc.DeepCopy()
	byLeader.Status = statusOf(wc, st)
	w.config(byLeader)
	w.attach(newQueue(t), nil)
	if len(w.heard.all) != 0 {
		t.Errorf("what the former leader had told was told again: %q", w.heard.all)
	}
}
