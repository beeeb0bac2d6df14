package probeconfig

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kube"
)

// strip removes a config with its finalizers, as people do to get rid of what hangs.
func (w *env) strip() *v1alpha1.ProbeConfig {
	w.t.Helper()
	pc := w.stored()
	pc.Finalizers = nil
	if err := w.api.Update(w.t.Context(), pc); err != nil {
		w.t.Fatal(err)
	}
	if err := w.api.Delete(w.t.Context(), pc); err != nil {
		w.t.Fatal(err)
	}
	return pc
}

// lookForOrphans looks twice, and gives the result of the second look.
func (w *env) lookForOrphans(orphans *OrphanReconciler) reconcile.Result {
	w.t.Helper()
	var result reconcile.Result
	for range 2 {
		var err error
		if result, err = orphans.Reconcile(w.t.Context(), reconcile.Request{}); err != nil {
			w.t.Fatal(err)
		}
		w.clock.Step(time.Minute)
	}
	return result
}

func TestWhatAConfigLeavesThatWasStrippedOfItsFinalizerIsGivenBack(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(w *env, pc *v1alpha1.ProbeConfig)
		want      string
	}{
		"it is gone": {want: "3 3"},
		"it is only not seen": {func(w *env, pc *v1alpha1.ProbeConfig) {
			pc = &v1alpha1.ProbeConfig{ObjectMeta: metav1.ObjectMeta{Namespace: pc.Namespace, Name: pc.Name, UID: pc.UID}, Spec: pc.Spec}
			if err := w.api.Create(w.t.Context(), pc); err != nil {
				w.t.Fatal(err)
			}
		}, "0r 0r"},
		"it was restored, with the same targets": {func(w *env, pc *v1alpha1.ProbeConfig) {
			pc = &v1alpha1.ProbeConfig{ObjectMeta: metav1.ObjectMeta{Namespace: pc.Namespace, Name: pc.Name, UID: "restored"}, Spec: pc.Spec}
			if err := w.api.Create(w.t.Context(), pc); err != nil {
				w.t.Fatal(err)
			}
			w.see()
		}, "0r 0r"},
		"it was restored, with other targets": {func(w *env, pc *v1alpha1.ProbeConfig) {
			pc = &v1alpha1.ProbeConfig{ObjectMeta: metav1.ObjectMeta{Namespace: pc.Namespace, Name: pc.Name, UID: "restored"}, Spec: pc.Spec}
			pc.Spec.NamespaceSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"role": "other"}}
			if err := w.api.Create(w.t.Context(), pc); err != nil {
				w.t.Fatal(err)
			}
			w.see()
		}, "3 3"},
		"everything is frozen": {func(w *env, _ *v1alpha1.ProbeConfig) {
			w.guard.SetGuardrails([]*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "stop"}, Spec: v1alpha1.GuardrailSpec{Frozen: true}}})
		}, "0r 0r"},
		"an object asks to be ignored": {func(w *env, _ *v1alpha1.ProbeConfig) {
			kcm := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot-0", Name: "kcm"}}
			w.edit(kcm, `{"metadata":{"annotations":{"autohealer.resourcestack.com/ignore-scaling":"true"}}}`)
		}, "0r 3"},
		"the kind may not be listed": {func(w *env, _ *v1alpha1.ProbeConfig) { w.api.unlisted = true }, "0r 0r"},
		"nothing may be written":     {func(w *env, _ *v1alpha1.ProbeConfig) { w.api.denied = "shoot-0" }, "0r 0r"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, 1, nil)
			w.fail("shoot-0")
			w.want("shoot-0", "0r 0r", "before")
			orphans := NewOrphanReconciler(w.TargetReconciler)
			if w.lookForOrphans(orphans); len(orphans.confirmed) > 0 {
				t.Fatal("a config that is there is gone")
			}
			pc := w.strip()
			w.Observer.policies.Gone(pc)
			if tt.meanwhile != nil {
				tt.meanwhile(w, pc)
			}
			result := w.lookForOrphans(orphans)
			w.want("shoot-0", tt.want, "after a minute")
			if name == "nothing may be written" && result.RequeueAfter == 0 {
				t.Error("it isn't tried again")
			}
		})
	}
}

func TestWhatCouldNotBeListedIsLookedForAgain(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	orphans := NewOrphanReconciler(w.TargetReconciler)
	w.Observer.policies.Gone(w.strip())
	w.api.unanswered = true
	if result := w.lookForOrphans(orphans); result.RequeueAfter != time.Minute {
		t.Fatalf("it looks again after %s", result.RequeueAfter)
	}
	w.want("shoot-0", "0r 0r", "while nobody answers")
	w.api.unanswered = false
	w.lookForOrphans(orphans)
	w.want("shoot-0", "3 3", "after that")

	w.api.unlisted = true
	if result := w.lookForOrphans(orphans); result.RequeueAfter != 0 {
		t.Errorf("where it may not look it looks again after %s", result.RequeueAfter)
	}
}

func TestOneLookIsntEnough(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	orphans := NewOrphanReconciler(w.TargetReconciler)
	w.Observer.policies.Gone(w.strip())
	result, err := orphans.Reconcile(t.Context(), reconcile.Request{})
	if err != nil || result.RequeueAfter < time.Minute || result.RequeueAfter > 61*time.Second {
		t.Errorf("it looks again after %s, %v", result.RequeueAfter, err)
	}
	w.want("shoot-0", "0r 0r", "at first")
}

// It is looked for when a config goes that had something scaled down, and when a manager takes over.
func TestWhenOrphansAreLookedFor(t *testing.T) {
	for _, down := range []bool{false, true} {
		w := newEnv(t, 1, nil)
		if down {
			w.fail("shoot-0")
		}
		queue := &fakeQueue{}
		w.Observer.attachOrphans(queue)
		if queue.added != 1 {
			t.Errorf("taking over: %d looks", queue.added)
		}
		w.Observer.policies.Gone(w.strip())
		if want := map[bool]int{false: 1, true: 2}[down]; queue.added != want {
			t.Errorf("with something scaled down %t: %d looks, want %d", down, queue.added, want)
		}
	}
}

type fakeQueue struct {
	kube.Queue
	added int
}

func (q *fakeQueue) AddAfter(reconcile.Request, time.Duration) { q.added++ }
