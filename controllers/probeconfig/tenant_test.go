package probeconfig

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// A tenant's word must not lift what protects the others from one cause that looks like many.
func TestATenantDoesntResetTheBreakerOfAll(t *testing.T) {
	w := newEnv(t, 2, func(pc *v1alpha1.ProbeConfig) { pc.Namespace, pc.Spec.NamespaceSelector = "shoot-0", nil })
	const id = "20260301t115900z"
	w.Observer.fleet().FollowBreaker(&limit.Opening{ID: id, OpenedAt: noon})
	w.keep()
	w.edit(w.stored(), `{"metadata":{"annotations":{"autohealer.resourcestack.com/reset-breaker":"`+id+`"}}}`)
	if _, open := w.Observer.fleet().Breaker(); !open {
		t.Error("a reset on a tenant's config closed it")
	}
	w.manage(fixedAuthorizer{allowed: true})
	if _, open := w.Observer.fleet().Breaker(); !open {
		t.Fatal("a reset on a tenant's config closed it for the next manager")
	}
	w.keep()
	c := meta.FindStatusCondition(w.stored().Status.Conditions, v1alpha1.ConditionBreakerOpen)
	const command = "kubectl annotate namespace autohealer-system autohealer.resourcestack.com/reset-breaker=20260301t115900z --overwrite"
	if c == nil || !strings.HasSuffix(c.Message, command) {
		t.Errorf("its condition is %+v, want the command %q", c, command)
	}

	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ownNamespace}}
	if err := w.api.Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	w.edit(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shoot-1"}}, `{"metadata":{"annotations":{"autohealer.resourcestack.com/reset-breaker":"`+id+`"}}}`)
	if _, open := w.Observer.fleet().Breaker(); !open {
		t.Error("an annotation on a tenant's namespace closed it")
	}
	w.edit(own, `{"metadata":{"annotations":{"autohealer.resourcestack.com/reset-breaker":"`+id+`"}}}`)
	if b, open := w.Observer.fleet().Breaker(); open {
		t.Errorf("the command that the condition names didn't close it: %+v", b)
	}
	w.manage(fixedAuthorizer{allowed: true})
	if b, open := w.Observer.fleet().Breaker(); open {
		t.Errorf("the next manager opened it again: %+v", b)
	}
}

func TestTargetsThatAreOnlyObservedDontOpenTheBreaker(t *testing.T) {
	for mode, want := range map[v1alpha1.Mode]bool{v1alpha1.Observe: false, v1alpha1.Enforce: true} {
		w := newEnv(t, 4, func(pc *v1alpha1.ProbeConfig) { pc.Spec.Mode = mode })
		for i := range 3 {
			w.fail(shoot(i))
		}
		if _, open := w.Observer.fleet().Breaker(); open != want {
			t.Errorf("%s: open is %t, want %t", mode, open, want)
		}
	}
}

// Who may write Deployments elsewhere can write there what a record of anybody's config looks like.
func TestARecordOfATenantsMakingHoldsNothing(t *testing.T) {
	w := newEnv(t, 2, nil)
	elsewhere := hostedObjects("elsewhere")
	elsewhere[0].SetLabels(nil)
	forged := elsewhere[len(elsewhere)-1]
	forged.SetLabels(map[string]string{v1alpha1.LabelScaledDown: "true"})
	forged.SetAnnotations(map[string]string{
		v1alpha1.AnnotationOriginalReplicas: probe.Record{Replicas: 3, Owner: "forged", Policy: ownNamespace + "/protect"}.String(),
	})
	for _, o := range elsewhere {
		if err := w.api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	w.api.denied = "elsewhere"
	w.manage(fixedAuthorizer{allowed: true})
	if keys := w.Observer.targets.keys(); len(keys) != 2 {
		t.Errorf("targets are %v", keys)
	}
	if p := w.Observer.fleet().AcquireScaleDown(probe.TargetKey{Config: "config-uid", Namespace: "shoot-0"}, w.clock.Now()); strings.Contains(p.Message, "isn't known") {
		t.Errorf("it counts under the cap: %+v", p)
	}
	if err := w.api.Delete(t.Context(), w.stored()); err != nil {
		t.Fatal(err)
	}
	w.see()
	w.settle()
	w.finish()
}

func TestATenantsTargetsHaveTheirOwnShareOfTheCap(t *testing.T) {
	for namespace, want := range map[string]string{"shoot-0": "3 3", ownNamespace: "0r 0r"} {
		w := newEnv(t, 2, func(pc *v1alpha1.ProbeConfig) {
			if pc.Namespace = namespace; namespace != ownNamespace {
				pc.Spec.NamespaceSelector = nil
			}
		})
		fleet := w.Observer.fleet()
		for i := range 12 { // a cap of two
			at := probe.TargetKey{Config: "fleet", Namespace: shoot(i)}
			if i == 0 {
				at.Config = "of the tenant"
				fleet.Add(at, true)
			}
			fleet.Add(at, false)
			fleet.ObserveDown(at, i == 0)
			fleet.SetActive(at, true, noon)
			fleet.ObserveRun(at, &probe.State{At: noon, External: probe.Counts{Successes: 1, CountedAt: noon}}, noon)
		}
		w.fail("shoot-0")
		w.want("shoot-0", want, "its namespace has its share, of a config in "+namespace)
	}
}
