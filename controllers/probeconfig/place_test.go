package probeconfig

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// late is the answer to a question that is asked just before replicas are taken; meanwhile something happens.
type late struct {
	meanwhile func()
	why       string
	err       error
}

func (l *late) Protected(context.Context, string, []string, probe.Ref) (string, error) {
	if l.meanwhile != nil {
		l.meanwhile()
	}
	return l.why, l.err
}

// A target that was permitted and then not scaled down must not hold back the others.
func TestWhatIsntScaledDownAfterAllTakesNoPlaceUnderTheCap(t *testing.T) {
	for name, doubt := range map[string]func(*env){
		"it serves the probed API server": func(w *env) { w.Protection = &late{why: "it serves it"} },
		"that can't be found out":         func(w *env) { w.Protection = &late{err: errors.New("away")} },
		"a Secret changed since": func(w *env) {
			w.edit(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot-0", Name: "external"}}, w.rotated("external"))
		},
		"its namespace is hibernated, of which no watch told": func(w *env) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shoot-0", Labels: map[string]string{"role": "hosted"}, Annotations: map[string]string{"autohealer.resourcestack.com/hibernated": "true"}}}
			if err := w.api.Update(w.t.Context(), ns); err != nil {
				w.t.Fatal(err)
			}
		},
		"the status doesn't tell its kind": func(w *env) { w.forgetKinds() },
		"nothing admits it any more": func(w *env) {
			w.Protection = &late{meanwhile: func() {
				w.guard.SetGuardrails([]*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "org"}, Spec: v1alpha1.GuardrailSpec{
					Rules: []v1alpha1.GuardrailRule{{Name: "no", Kinds: []string{"ProbeConfig"}, Severity: "Deny", Expression: "object.metadata.name == 'other'"}},
				}}})
			}}
		},
		"someone else writes first": func(w *env) {
			w.Protection = &late{meanwhile: func() {
				if err := w.api.Patch(w.t.Context(), w.deployment("mcm"), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"by":"others"}}}`))); err != nil {
					w.t.Error(err)
				}
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, 2, nil)
			for i := range 2 {
				w.probe(shoot(i), probe.OK, probe.OK)
			}
			w.probe("shoot-0", probe.OK, probe.Timeout)
			w.probe("shoot-0", probe.OK, probe.Timeout)
			doubt(w)
			w.breakOnce("shoot-0")
			w.Protection = nil
			w.forgive("shoot-0")
			w.want("shoot-0", "3 3", "in doubt")
			if _, down := w.Observer.fleet().Counts(); down != 0 {
				t.Errorf("%d targets count as scaled down, want none", down)
			}
			w.keep()
			if s := w.stored().Status; len(s.Scaled) != 0 || s.Targets.ScaledDown != 0 {
				t.Errorf("status tells of %d targets that are scaled down, %v", s.Targets.ScaledDown, s.Scaled)
			}
			w.guard.SetGuardrails(nil)
			w.see()
			w.keep()
			w.clock.Step(3 * time.Minute)
			w.fail("shoot-1")
			w.want("shoot-1", "0r 0r", "the cap of one is free")
		})
	}
}

// breakOnce lets the external probe fail, and the target be looked at once.
func (w *env) breakOnce(namespace string) {
	w.t.Helper()
	w.clock.Step(10 * time.Second)
	key := w.keyOf(namespace)
	w.runs.Observe(key, probe.Run{Started: w.clock.Now(), Ended: w.clock.Now(), Internal: probe.Outcome{Class: probe.OK}, External: &probe.Outcome{Class: probe.Timeout}})
	_, _ = w.Reconcile(w.t.Context(), requestFor(key))
}

// forgive lets the internal probe fail from then on: nothing is to be scaled either way.
func (w *env) forgive(namespace string) {
	w.t.Helper()
	for range 3 {
		w.probe(namespace, probe.Timeout, "")
	}
}

// forgetKinds lets the stored status tell no kinds.
func (w *env) forgetKinds() {
	w.t.Helper()
	pc := w.stored()
	pc.Status.DependentKinds = nil
	if err := w.api.Status().Update(w.t.Context(), pc); err != nil {
		w.t.Fatal(err)
	}
	w.see()
}

func TestWhatWasScaledDownBeforeADoubtKeepsItsPlace(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.probe("shoot-0", probe.OK, probe.OK)
	w.probe("shoot-0", probe.OK, probe.Timeout)
	w.probe("shoot-0", probe.OK, probe.Timeout)
	w.breakOnce("shoot-0")
	w.want("shoot-0", "3 0r", "the first level")
	w.api.endPods(t)
	w.Protection = &late{err: errors.New("away")}
	w.breakOnce("shoot-0")
	w.want("shoot-0", "3 0r", "in doubt")
	if _, down := w.Observer.fleet().Counts(); down != 1 {
		t.Errorf("%d targets count as scaled down, want 1", down)
	}
}
