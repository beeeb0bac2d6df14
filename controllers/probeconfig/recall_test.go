package probeconfig

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// manyDown has two objects scaled down in each of so many namespaces, which fail one after the other.
func manyDown(t *testing.T, namespaces int) *env {
	t.Helper()
	w := newEnv(t, namespaces, nil)
	w.guard.SetGuardrails([]*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.GuardrailSpec{Limits: &v1alpha1.GuardrailLimits{
		MaxScaledDownTargets: ptr.To(intstr.FromString("100%")),
	}}}})
	for i := range namespaces {
		w.clock.Step(5 * time.Minute)
		w.see()
		w.fail(shoot(i))
		w.want(shoot(i), "0r 0r", "before")
	}
	w.keep()
	if n := len(w.stored().Status.Scaled); n != 20 {
		t.Fatalf("status tells of %d objects, want 20", n)
	}
	return w
}

const (
	otherDependents = `{"metadata":{"generation":2},"spec":{"dependentResourceInfos":[{"ref":{"apiVersion":"apps/v1","kind":"StatefulSet","name":"other"},"optional":true,"scaleUp":{"level":0},"scaleDown":{"level":0}}]}}`
	otherNamespaces = `{"metadata":{"generation":2},"spec":{"namespaceSelector":{"matchLabels":{"role":"other"}}}}`
	unreadableSpec  = `{"metadata":{"generation":2},"spec":{"probeInterval":"soon"}}`
)

// What is scaled down is found again by the records on the objects, whatever became of the config while no manager ran: its
// status tells of some only.
func TestNoRecordIsForgottenThatAConfigDoesntNameAnyMore(t *testing.T) {
	const namespaces = 13
	for name, patch := range map[string]string{
		"other dependents": otherDependents, "other namespaces": otherNamespaces, "a spec that can't be read": unreadableSpec,
	} {
		t.Run(name, func(t *testing.T) {
			w := manyDown(t, namespaces)
			pc := w.stored()
			if err := w.api.Patch(t.Context(), pc, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
				t.Fatal(err)
			}
			w.manage(fixedAuthorizer{allowed: true})
			if name == "a spec that can't be read" {
				w.want(shoot(12), "0r 0r", "not before it can be read")
			} else {
				for i := range namespaces {
					w.want(shoot(i), "3 3", "the config doesn't ask for it any more")
				}
			}
			if err := w.api.Delete(t.Context(), w.stored()); err != nil {
				t.Fatal(err)
			}
			w.manage(fixedAuthorizer{allowed: true})
			w.finish()
			for i := range namespaces {
				w.want(shoot(i), "3 3", "the config is deleted")
			}
		})
	}
}

// finish lets a deleted config go.
func (w *env) finish() {
	w.t.Helper()
	for range 5 {
		if w.stored() == nil {
			return
		}
		w.keep()
		w.settle()
	}
	w.t.Error("the config isn't let go")
}

func TestADeletedConfigStaysUntilItsRecordsCanBeLookedFor(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	if err := w.api.Delete(t.Context(), w.stored()); err != nil {
		t.Fatal(err)
	}
	w.see()
	w.settle()
	w.want("shoot-0", "3 3", "given back")
	w.api.unlisted = true
	w.clock.Step(2 * time.Second)
	if _, err := w.configs.Reconcile(t.Context(), requestOf(w.stored())); err == nil {
		t.Error("it isn't tried again")
	}
	w.see()
	if w.stored() == nil {
		t.Fatal("it is let go")
	}
	w.clock.Step(2 * time.Second)
	_, _ = w.configs.Reconcile(t.Context(), requestOf(w.stored()))
	w.see()
	if c := meta.FindStatusCondition(w.stored().Status.Conditions, "Stalled"); c == nil || c.Status != "True" || !strings.Contains(c.Message, "scaled-down") {
		t.Errorf("Stalled is %+v", c)
	}
	w.api.unlisted = false
	w.finish()
}

// A kind must be told in the status before the first object of it is scaled down: nothing else tells the next manager where
// to look.
func TestNothingIsScaledDownOfAKindThatTheStatusDoesntTell(t *testing.T) {
	w := newEnv(t, 1, nil)
	pc := w.stored()
	pc.Status.DependentKinds = nil
	if err := w.api.Status().Update(t.Context(), pc); err != nil {
		t.Fatal(err)
	}
	w.see()
	w.fail("shoot-0")
	w.want("shoot-0", "3 3", "before it is told")
	w.keep()
	w.settle()
	w.want("shoot-0", "0r 0r", "once it is")
}

func TestKindsAreToldUntilNothingOfThemIsScaledDown(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	w.guard.SetGuardrails([]*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "stop"}, Spec: v1alpha1.GuardrailSpec{Frozen: true}}})
	w.edit(w.stored(), otherDependents)
	w.keep()
	if got := len(w.stored().Status.DependentKinds); got != 2 {
		t.Errorf("%d kinds are told while the Deployments are scaled down, want 2", got)
	}
	w.guard.SetGuardrails(nil)
	w.see()
	w.settle()
	w.want("shoot-0", "3 3", "given back")
	w.keep()
	if got := w.stored().Status.DependentKinds; len(got) != 1 || got[0].Kind != "StatefulSet" {
		t.Errorf("kinds %v are told, want StatefulSet", got)
	}
}

// The label comes and goes with the record.
func TestWhatIsScaledDownCanBeListed(t *testing.T) {
	w := newEnv(t, 1, nil)
	labelled := func() int {
		var all appsv1.DeploymentList
		if err := w.api.List(t.Context(), &all, client.HasLabels{"autohealer.resourcestack.com/scaled-down"}); err != nil {
			t.Fatal(err)
		}
		return len(all.Items)
	}
	w.fail("shoot-0")
	if n := labelled(); n != 2 {
		t.Errorf("%d objects are labelled, want 2", n)
	}
	for range 7 {
		w.probe("shoot-0", probe.OK, probe.OK)
	}
	if n := labelled(); n != 0 {
		t.Errorf("%d objects are labelled after they were given back", n)
	}
}

// What people asked to leave alone keeps its record, and the config goes all the same, also when it was found by its label.
func TestWhatIsLeftAloneKeepsNoConfig(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	w.edit(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot-0", Name: "kcm"}}, `{"metadata":{"annotations":{"autohealer.resourcestack.com/ignore-scaling":"true"}}}`)
	pc := w.stored()
	if err := w.api.Patch(t.Context(), pc, client.RawPatch("application/merge-patch+json", []byte(otherNamespaces))); err != nil {
		t.Fatal(err)
	}
	w.manage(fixedAuthorizer{allowed: true})
	w.want("shoot-0", "0r 3", "given back but for what asks to be left alone")
	if err := w.api.Delete(t.Context(), w.stored()); err != nil {
		t.Fatal(err)
	}
	w.manage(fixedAuthorizer{allowed: true})
	w.finish()
	w.want("shoot-0", "0r 3", "the config is deleted")
}

func TestANamespaceThatEndsKeepsNoConfig(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	w.edit(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shoot-0"}}, `{"metadata":{"finalizers":["example.com/held"]}}`)
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shoot-0"}}, w.stored()} {
		if err := w.api.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	w.see()
	w.settle()
	w.finish()
}
