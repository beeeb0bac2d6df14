package probeconfig

import (
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// permitsOthers says whether a target of another config may be scaled down, beside those of this environment.
func (w *env) permitsOthers() probe.Permit {
	w.t.Helper()
	other := probe.TargetKey{Config: "other-uid", Namespace: "other"}
	w.Observer.fleet().Add(other, false)
	w.Observer.fleet().ObserveDown(other, false)
	return w.Observer.fleet().AcquireScaleDown(other, w.clock.Now())
}

func (w *env) namespaceObject(name string) *corev1.Namespace {
	w.t.Helper()
	ns := &corev1.Namespace{}
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Name: name}, ns); err != nil {
		w.t.Fatal(err)
	}
	return ns
}

// A tenant's config has its namespace as target, whatever is known of that.
func TestATargetWhoseNamespaceIsSeenLateIsReadThen(t *testing.T) {
	w := newEnv(t, 1, func(pc *v1alpha1.ProbeConfig) { pc.Namespace, pc.Spec.NamespaceSelector = "shoot-0", nil })
	ns := w.namespaceObject("shoot-0")
	w.Observer.namespaceGone(ns)
	w.settle()
	w.Observer.namespaceSeen(ns)
	w.settle()
	w.probe("shoot-0", probe.OK, probe.OK)
	if permit := w.permitsOthers(); !permit.Allowed {
		t.Errorf("others are held back: %s", permit.Message)
	}
	w.fail("shoot-0")
	w.want("shoot-0", "3 3", "the other has the only place")
	w.Observer.fleet().Forget(probe.TargetKey{Config: "other-uid", Namespace: "other"})
	w.probe("shoot-0", probe.OK, probe.Timeout)
	w.want("shoot-0", "0r 0r", "then it is free")
}

// What the informer tells later is no trouble.
func TestNothingIsScaledDownInANamespaceThatIsGone(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.probe("shoot-0", probe.OK, probe.OK)
	if err := w.api.Delete(t.Context(), w.namespaceObject("shoot-0")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.probe("shoot-0", probe.OK, probe.Timeout)
	}
	w.want("shoot-0", "3 3", "its namespace is gone")
}

// A namespace may come just after it was found missing.
func TestATargetWhoseNamespaceComesBackJustThenStays(t *testing.T) {
	w := newEnv(t, 1, func(pc *v1alpha1.ProbeConfig) { pc.Namespace, pc.Spec.NamespaceSelector = "shoot-0", nil })
	w.endTarget(w.keyOf("shoot-0"))
	w.settle()
	w.fail("shoot-0")
	w.want("shoot-0", "0r 0r", "it is there")
}

// A target is dropped in several steps, between which its config may ask for it again.
func TestATargetThatIsAskedForAgainWhileItIsDroppedStays(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	w.edit(w.deployment("kcm"), `{"metadata":{"annotations":{"autohealer.resourcestack.com/ignore-scaling":"true"}}}`)
	selected := w.namespaceObject("shoot-0")
	w.told.meanwhile = func(reason string) {
		if reason == v1alpha1.ReasonNotRestored { // as it is dropped
			w.told.meanwhile = nil
			w.Observer.namespaceSeen(selected)
		}
	}
	w.edit(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shoot-0"}}, `{"metadata":{"labels":{"role":null}}}`)
	w.settle()
	if w.told.meanwhile != nil {
		t.Fatal("nothing was left")
	}
	if w.Observer.targets.find(w.keyOf("shoot-0")) == nil {
		t.Fatal("it is dropped")
	}
	w.edit(w.namespaceObject("shoot-0"), `{"metadata":{"labels":{"role":"hosted"}}}`)
	w.edit(w.deployment("kcm"), `{"metadata":{"annotations":{"autohealer.resourcestack.com/ignore-scaling":null}}}`)
	w.clock.Step(3 * time.Minute)
	w.fail("shoot-0")
	w.want("shoot-0", "0r 0r", "it still is a target")
}

// A record may be found just when the last of those that were known is given back.
func TestARecordThatIsFoundWhileATargetIsDroppedIsGivenBack(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	var kcm appsv1.Deployment
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(w.deployment("kcm")), &kcm); err != nil {
		t.Fatal(err)
	}
	other := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shoot-0", Name: "other", UID: "other-uid", Generation: 2, Labels: kcm.Labels, Annotations: kcm.Annotations},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](0)},
	}
	w.edit(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shoot-0"}}, `{"metadata":{"labels":{"role":null}}}`)
	if _, err := w.Reconcile(t.Context(), requestFor(w.keyOf("shoot-0"))); err != nil {
		t.Fatal(err)
	}
	w.want("shoot-0", "3 3", "what was known")
	w.api.meanwhile = sync.OnceFunc(func() {
		if err := w.api.Create(t.Context(), other); err != nil {
			t.Error(err)
		}
		j, _ := w.Observer.policies.Get(client.ObjectKeyFromObject(w.stored()))
		if n, err := w.keeper.findRecords(t.Context(), j); n != 1 || err != nil {
			t.Errorf("%d records are found, %v", n, err)
		}
	})
	w.settle()
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(*other.Spec.Replicas, len(other.Annotations)); got != "3 0" {
		t.Errorf("replicas and annotations of what was found are %s, want 3 0", got)
	}
	if w.Observer.targets.find(w.keyOf("shoot-0")) != nil {
		t.Error("the target stays")
	}
}

// What is remembered of a config goes with it, also when someone took its finalizer.
func TestNothingIsRememberedOfAConfigThatIsGone(t *testing.T) {
	w := newEnv(t, 1, nil)
	gone := w.stored()
	w.edit(w.stored(), `{"metadata":{"finalizers":null}}`)
	if err := w.api.Delete(t.Context(), w.stored()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.configs.Reconcile(t.Context(), requestOf(gone)); err != nil {
		t.Fatal(err)
	}
	w.keeper.recordsFoundFor.Range(func(key, _ any) bool {
		t.Errorf("%v is remembered", key)
		return true
	})
}

// A target that is scaled down, and doesn't fail, is scaled up only if it is known to be healthy.
func TestWhatATargetThatIsScaledDownWaitsFor(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	worst := func() string {
		w.keep()
		if all := w.stored().Status.WorstTargets; len(all) > 0 {
			return all[0].Message
		}
		return ""
	}
	w.manage(fixedAuthorizer{allowed: true})
	if got := worst(); got != "The target isn't known to be healthy again." {
		t.Errorf("a new manager says %q", got)
	}
	w.probe("shoot-0", probe.OK, probe.OK)
	if got := worst(); got != "The target is healthy. Its dependents are scaled up once it has been healthy for a minute and its turn comes." {
		t.Errorf("healthy: %q", got)
	}
	w.edit(w.namespaceObject("shoot-0"), `{"metadata":{"annotations":{"autohealer.resourcestack.com/hibernated":"true"}}}`)
	w.settle()
	if got := worst(); got != "The target's namespace is hibernated." {
		t.Errorf("hibernated: %q", got)
	}
}
