package probeconfig

import (
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

func (w *env) deployment(name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot-0", Name: name}}
}

// delete deletes the config, and lets everything follow for a while.
func (w *env) delete() {
	w.t.Helper()
	if err := w.api.Delete(w.t.Context(), w.stored()); err != nil {
		w.t.Fatal(err)
	}
	w.see()
	w.pass(time.Second)
}

// pass lets some time pass.
func (w *env) pass(d time.Duration) {
	w.t.Helper()
	w.clock.Step(d)
	w.settle()
	if w.stored() != nil {
		w.keep()
	}
}

func (w *env) message(kind string) string {
	w.t.Helper()
	c := meta.FindStatusCondition(w.stored().Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return c.Message
}

func TestOneThatMayNotBeReadHoldsNoOthersBack(t *testing.T) {
	for name, hide := range map[string]func(*storedClient){
		"its scale":  func(m *storedClient) { m.unreadable = "kcm" },
		"all of it":  func(m *storedClient) { m.invisible = "kcm" },
		"the others": func(m *storedClient) { m.unreadable = "mcm" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, 1, nil)
			w.fail("shoot-0")
			w.want("shoot-0", "0r 0r", "before")
			hide(w.api)
			for range 12 { // a minute, and the time of the level in which it is
				w.probe("shoot-0", probe.OK, probe.OK)
			}
			held := w.api.invisible == "kcm" || w.api.unreadable == "kcm"
			w.api.invisible = ""
			if held {
				w.want("shoot-0", "0r 3", "what can be read has what was taken")
			} else {
				w.want("shoot-0", "3 0r", "what can be read has what was taken")
			}
			w.api.unreadable = ""
			w.probe("shoot-0", probe.OK, probe.OK)
			w.want("shoot-0", "3 3", "once it may be read")
		})
	}
}

func TestNothingIsTakenUponHalfAView(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.probe("shoot-0", probe.OK, probe.OK)
	w.api.unreadable, w.api.denied = "kcm", "" // and mcm is on the lower level
	for range 3 {
		w.clock.Step(10 * time.Second)
		run := probe.Run{Started: w.clock.Now(), Ended: w.clock.Now(), Internal: probe.Outcome{Class: probe.OK}, External: &probe.Outcome{Class: probe.Timeout}}
		w.runs.Observe(w.Observer.targets.keys()[0], run)
	}
	if _, err := w.Reconcile(t.Context(), request(w)); err == nil {
		t.Error("it isn't tried again")
	}
	w.want("shoot-0", "3 3", "one can't be read")
}

func TestADeletionSaysWhatIsInItsWayAndEnds(t *testing.T) {
	for name, hide := range map[string]func(*storedClient){
		"its scale may not be read": func(m *storedClient) { m.unreadable = "kcm" },
		"it may not be read at all": func(m *storedClient) { m.invisible = "kcm" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, 1, nil)
			w.fail("shoot-0")
			hide(w.api)
			w.delete()
			w.pass(time.Minute)
			hidden := w.api.invisible
			w.api.invisible = ""
			w.want("shoot-0", "0r 3", "the other one is given back")
			w.api.invisible = hidden
			if w.stored() == nil {
				t.Fatal("it is let go, and nobody knows of kcm any more")
			}
			w.keep()
			for _, want := range []string{"shoot-0", "Deployment/kcm in shoot-0: it had 3 replicas before it was scaled down: read", "is forbidden"} {
				if got := w.message("Reconciling"); !strings.Contains(got, want) {
					t.Errorf("Reconciling says %q, want %q", got, want)
				}
			}
			w.api.unreadable, w.api.invisible = "", ""
			w.pass(10 * time.Second)
			w.want("shoot-0", "3 3", "once it may be read")
			if w.stored() != nil {
				t.Error("it isn't let go")
			}
		})
	}
}

// A RoleBinding is often deleted together with the config that it was for.
func TestADeletionDoesntWaitForWhatWasNeverTaken(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.probe("shoot-0", probe.OK, probe.OK)
	w.api.invisible = "kcm"
	w.delete()
	w.pass(time.Minute)
	if w.stored() != nil {
		t.Errorf("it waits: %s", w.message("Reconciling"))
	}
}

func TestADeletionLeavesTheRecordOfWhatAsksToBeIgnored(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	w.edit(w.deployment("kcm"), `{"metadata":{"annotations":{"autohealer.resourcestack.com/ignore-scaling":"true"}}}`)
	w.delete()
	w.pass(time.Minute)
	w.want("shoot-0", "0r 3", "its record is all that tells what it had")
	if w.stored() != nil {
		t.Errorf("it waits: %s", w.message("Reconciling"))
	}
	if got := w.told.String(); !strings.Contains(got, "NotRestored ProbeConfig autohealer-system/protect leaves Deployment shoot-0/kcm as it is: its annotation ignore-scaling forbids scaling; it had 3 replicas before it was scaled down.") {
		t.Errorf("told: %s", got)
	}
}

func TestWhatAskedToBeIgnoredIsGivenBackLater(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	w.edit(w.deployment("kcm"), `{"metadata":{"annotations":{"autohealer.resourcestack.com/ignore-scaling":"true"}}}`)
	w.edit(w.stored(), `{"metadata":{"generation":2},"spec":{"mode":"Observe"}}`)
	w.pass(time.Minute)
	w.want("shoot-0", "0r 3", "while it asks")
	if got := w.message("Ready"); !strings.Contains(got, "Deployment/kcm in shoot-0: its annotation ignore-scaling forbids scaling") {
		t.Errorf("Ready says %q", got)
	}
	w.edit(w.deployment("kcm"), `{"metadata":{"annotations":{"autohealer.resourcestack.com/ignore-scaling":null}}}`)
	w.pass(10 * time.Second)
	w.want("shoot-0", "3 3", "when it doesn't any more")
}

// On the way up what can't be read is passed, and nothing is taken upon such a view: where to scale may change while it is looked.
func TestNothingIsTakenUponWhatWasLookedAtToGiveBack(t *testing.T) {
	w := newEnv(t, 1, func(pc *v1alpha1.ProbeConfig) { pc.Spec.FailureThreshold = ptr.To[int32](1) })
	w.fail("shoot-0")
	w.api.unreadable = "kcm"
	for range 12 {
		w.probe("shoot-0", probe.OK, probe.OK)
	}
	w.want("shoot-0", "0r 3", "the others don't wait for it")
	w.clock.Step(10 * time.Second)
	w.api.meanwhile = sync.OnceFunc(func() {
		w.runs.Observe(w.keyOf("shoot-0"), probe.Run{
			Started: w.clock.Now(), Ended: w.clock.Now(), Internal: probe.Outcome{Class: probe.OK}, External: &probe.Outcome{Class: probe.Timeout},
		})
	})
	w.settle()
	if want := w.target("shoot-0").State.Direction; want != probe.Down {
		t.Fatalf("the run says %s", want)
	}
	w.want("shoot-0", "0r 3", "of one it isn't known whether it runs")
	w.api.unreadable = ""
	w.settle()
	w.want("shoot-0", "0r 0r", "all is known")
}
