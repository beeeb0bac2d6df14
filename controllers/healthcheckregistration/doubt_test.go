package healthcheckregistration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// builtin has the rules that come with Autohealer, compiled once.
var builtin = sync.OnceValues(func() (*guard.Guard, error) {
	return guard.New(guard.Options{Clock: testingclock.NewFakePassiveClock(noon)})
})

// knowing gives an observer that knows what Guardrails say: nothing.
func knowing(t *testing.T) *Observer {
	t.Helper()
	clock := testingclock.NewFakePassiveClock(noon)
	g, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	o := &Observer{Facts: &kube.Facts{Clock: testingclock.NewFakeClock(noon)}}
	o.initPolicies(g, clock, &kube.Rejections{})
	o.policies.Pause(guardrail.Merge(limit.Builtin(), nil))
	return o
}

// suspended is a stored registration about Workers of all kinds that checks nothing now, and would decide a condition.
func suspended(name, version, conditionType string) *v1alpha1.HealthCheckRegistration {
	return &v1alpha1.HealthCheckRegistration{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1, Finalizers: []string{"autohealer.resourcestack.com/undo"}},
		Spec: v1alpha1.HealthCheckRegistrationSpec{
			Target:      v1alpha1.HealthCheckTarget{APIVersion: "extensions.gardener.cloud/" + version, Kind: "Worker"},
			SuspendWhen: "has(target.metadata)",
			Checks: []v1alpha1.HealthCheck{{
				Name: "c", ConditionType: conditionType, Object: &v1alpha1.HealthCheckObject{APIVersion: "v1", Kind: "ConfigMap", Name: "'c'"},
				Evaluate: v1alpha1.HealthCheckEvaluator{Status: &v1alpha1.StatusCheck{}},
			}},
		},
	}
}

// claimed is a Worker with conditions of ours, and a claim of one that isn't there.
func claimed(conditionTypes ...string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "w", "namespace": "n", "uid": "w"}}}
	o.SetGroupVersionKind(worker)
	record := "Gone"
	var list []any
	for _, t := range conditionTypes {
		record += "," + t
		list = append(list, map[string]any{"type": t, "status": "True", "reason": "HealthCheckSuccessful", "message": "(1/1) Health checks successful"})
	}
	o.SetAnnotations(map[string]string{"autohealer.resourcestack.com/owned-conditions": record})
	o.Object["status"] = map[string]any{"conditions": list}
	return o
}

// planned says what is taken off a target now.
func planned(t *testing.T, o *Observer, object *unstructured.Unstructured) string {
	t.Helper()
	return plannedBy(t, lookedAt(t, o, object))
}

// allEvaluated begins a look at a target.
func lookedAt(t *testing.T, o *Observer, object *unstructured.Unstructured) *evaluation {
	t.Helper()
	target := checking.Target{Kind: worker.GroupKind(), Key: types.NamespacedName{Namespace: "n", Name: "w"}}
	same := versions{"v1alpha1": object, "v1": object}
	return (&TargetReconciler{Observer: o, Checker: &checking.Checker{}}).newEvaluation(target, object, same, nil)
}

func plannedBy(t *testing.T, l *evaluation) string {
	t.Helper()
	p := l.plan(t.Context(), health.Layout{Shape: health.Gardener}, nil)
	for _, s := range p.Steps {
		if !s.Remove {
			t.Errorf("%s is written", s.Condition.Type)
		}
		if l.stopped(s) {
			t.Errorf("the removal of %s is planned and would be stopped", s.Condition.Type)
		}
	}
	var removed []string
	for _, s := range p.Steps {
		removed = append(removed, s.Condition.Type)
	}
	return fmt.Sprint(removed, p.ReleaseClaims)
}

func TestNothingIsTakenOffInDoubt(t *testing.T) {
	target := claimed("Mine", "Other")
	for name, c := range map[string]struct {
		doubt func(t *testing.T, o *Observer)
		want  string
	}{
		"no registration at all": {func(*testing.T, *Observer) {}, "[Mine Other] [Gone]"},
		"one that isn't judged yet": {func(t *testing.T, o *Observer) {
			o.policies.Seen(t.Context(), suspended("r", "v1alpha1", "Mine"))
		}, "[] []"},
		"one that isn't judged yet, in another version": {func(t *testing.T, o *Observer) {
			o.policies.Seen(t.Context(), suspended("r", "v1", "Mine"))
		}, "[] []"},
		"one of another kind that isn't judged yet": {func(t *testing.T, o *Observer) {
			r := suspended("r", "v1alpha1", "Mine")
			r.Spec.Target.Kind = "Infrastructure"
			o.policies.Seen(t.Context(), r)
		}, "[Mine Other] [Gone]"},
		"one that is judged": {func(t *testing.T, o *Observer) {
			o.policies.Seen(t.Context(), suspended("r", "v1alpha1", "Mine"))
			o.policies.Judge(t.Context(), types.NamespacedName{Name: "r"})
		}, "[Other] [Gone]"},
		"one that is judged, in another version": {func(t *testing.T, o *Observer) {
			o.policies.Seen(t.Context(), suspended("r", "v1", "Mine"))
			o.policies.Judge(t.Context(), types.NamespacedName{Name: "r"})
		}, "[Other] [Gone]"},
		"one that changed since it was judged": {func(t *testing.T, o *Observer) {
			o.policies.Seen(t.Context(), suspended("r", "v1alpha1", "Mine"))
			o.policies.Judge(t.Context(), types.NamespacedName{Name: "r"})
			changed := suspended("r", "v1alpha1", "Other")
			changed.Generation = 2
			o.policies.Seen(t.Context(), changed)
		}, "[] []"},
		"one that is being deleted": {func(t *testing.T, o *Observer) {
			o.policies.Seen(t.Context(), suspended("r", "v1alpha1", "Mine"))
			o.policies.Judge(t.Context(), types.NamespacedName{Name: "r"})
			going := suspended("r", "v1alpha1", "Mine")
			going.Generation, going.DeletionTimestamp = 2, &metav1.Time{Time: noon}
			o.policies.Seen(t.Context(), going)
		}, "[Mine Other] [Gone]"},
		"a freeze": {func(_ *testing.T, o *Observer) {
			o.policies.Pause(guardrail.Policy{PausedBy: []string{"f"}, FrozenBy: []string{"f"}})
		}, "[] []"},
		"a pause, under which undo goes on": {func(_ *testing.T, o *Observer) {
			o.policies.Pause(guardrail.Policy{PausedBy: []string{"p"}})
		}, "[Mine Other] [Gone]"},
		"Guardrails that aren't read": {func(_ *testing.T, o *Observer) {
			o.policies.Pause(guardrail.Unread(limit.Builtin()))
		}, "[] []"},
	} {
		t.Run(name, func(t *testing.T) {
			o := knowing(t)
			c.doubt(t, o)
			if got := planned(t, o, target); got != c.want {
				t.Errorf("removed and disclaimed are %s, not %s", got, c.want)
			}
		})
	}
}

func TestWhatIsJudgedWhileChecksRunLosesNothing(t *testing.T) {
	o := knowing(t)
	o.policies.Seen(t.Context(), suspended("r", "v1alpha1", "Mine"))
	l := lookedAt(t, o, claimed("Mine", "Other"))
	o.policies.Judge(t.Context(), types.NamespacedName{Name: "r"})
	if got, want := plannedBy(t, l), "[] []"; got != want {
		t.Errorf("removed and disclaimed are %s, not %s", got, want)
	}
}

func TestWhatIsClaimedAndNotOursStays(t *testing.T) {
	target := claimed("Mine", "Theirs")
	list, _, _ := unstructured.NestedSlice(target.Object, "status", "conditions")
	list[1].(map[string]any)["reason"] = "TheirOwn"
	target.Object["status"] = map[string]any{"conditions": list}
	if got, want := planned(t, knowing(t), target), "[Mine] [Gone Theirs]"; got != want {
		t.Errorf("removed and disclaimed are %s, not %s", got, want)
	}
}

func TestAHeldTargetGetsNothingNew(t *testing.T) {
	o := knowing(t)
	o.policies.Seen(t.Context(), suspended("r", "v1alpha1", "Mine"))
	o.policies.Judge(t.Context(), types.NamespacedName{Name: "r"})
	j, _ := o.policies.Get(types.NamespacedName{Name: "r"})
	for name, c := range map[string]struct {
		annotations map[string]string
		want        lifecycle.State
	}{
		"no hold":               {nil, lifecycle.Active},
		"a hold":                {map[string]string{"autohealer.resourcestack.com/hold-until": "2026-11-22T13:00:00Z"}, lifecycle.Paused},
		"a hold that is over":   {map[string]string{"autohealer.resourcestack.com/hold-until": "2026-11-22T11:00:00Z"}, lifecycle.Active},
		"a hold without a time": {map[string]string{"autohealer.resourcestack.com/hold-until": "soon"}, lifecycle.Paused},
	} {
		t.Run(name, func(t *testing.T) {
			if !j.Admitted.Valid() {
				t.Fatalf("the rules refuse the registration: %s", j.Verdict.Message())
			}
			target := claimed("Mine")
			target.SetAnnotations(c.annotations)
			deciders := o.activeRegistrations(target, versions{worker.Version: target}, nil)
			if len(deciders) != 1 || deciders[0].State != c.want {
				t.Errorf("it gave %+v", deciders)
			}
		})
	}
}

func TestARegistrationWhoseVersionCantBeReadIsFrozen(t *testing.T) {
	o := knowing(t)
	for _, r := range []*v1alpha1.HealthCheckRegistration{suspended("a", "v1alpha1", "Mine"), suspended("b", "v1beta1", "Other")} {
		o.policies.Seen(t.Context(), r)
		o.policies.Judge(t.Context(), types.NamespacedName{Name: r.Name})
	}
	if got := fmt.Sprint(o.versionsOf(worker.GroupKind())); got != "[v1beta1 v1alpha1]" {
		t.Errorf("versions are %s", got)
	}
	target := claimed("Mine", "Other")
	deciders := o.activeRegistrations(target, versions{worker.Version: target}, nil)
	if len(deciders) != 2 || deciders[0].State.IsFrozen() || !deciders[1].State.IsFrozen() {
		t.Errorf("it gave %+v", deciders)
	}
}

func TestWhatATargetHasInDoubtIsBelievedAfterAReset(t *testing.T) {
	for reason, want := range map[string]health.Status{health.ReasonInDoubt: health.False, health.ReasonCheckError: health.Unknown, health.ReasonSuccessful: health.Unknown} {
		o := knowing(t)
		o.Watches = checking.WatchesOf(&informertest.FakeInformers{}, func(checking.Target) {}, testingclock.NewFakePassiveClock(noon))
		hcr := suspended("r", "v1alpha1", "Mine")
		hcr.Spec.SuspendWhen = "" // and what it looks at isn't there
		hcr.Status.Breaker = &v1alpha1.Breaker{ID: "x"}
		hcr.Annotations = map[string]string{"autohealer.resourcestack.com/reset-breaker": "x"}
		o.policies.Seen(t.Context(), hcr)
		o.policies.Judge(t.Context(), types.NamespacedName{Name: "r"})
		o.results.update(hcr, noon)
		for _, other := range []string{"a", "b"} {
			o.results.mayFail("r", targetNamed(other), "Mine", false, 3, noon)
		}
		target := claimed("Mine")
		is := map[string]any{"type": "Mine", "status": "Unknown", "reason": reason, "message": "(0/1) Health checks successful: 1) c: it isn't there"}
		if reason == health.ReasonSuccessful {
			is["status"], is["message"] = "True", "(1/1) Health checks successful"
		}
		target.Object["status"] = map[string]any{"conditions": []any{is}}
		l := lookedAt(t, o, target)
		l.r.Checker = readsLive()
		p := l.plan(t.Context(), health.Layout{Shape: health.Gardener}, sets.New("Mine"))
		if len(p.Steps) != 1 || p.Steps[0].Condition.Status != want {
			t.Errorf("after the reset what was %s becomes %+v", reason, p.Steps)
		}
	}
}

// versioned is a cache with one Worker in each version; "" where it has none.
type versioned struct {
	informertest.FakeInformers

	uids map[string]types.UID
	// unread is a version whose objects aren't all read.
	unread string
}

func (c *versioned) GetInformer(ctx context.Context, of client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	if of.GetObjectKind().GroupVersionKind().Version == c.unread {
		return controllertest.NewFakeInformer(), nil
	}
	return c.FakeInformers.GetInformer(ctx, of, options...)
}

func (c *versioned) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	uid := c.uids[into.GetObjectKind().GroupVersionKind().Version]
	if uid == "" {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "workers"}, key.Name)
	}
	into.SetName(key.Name)
	into.SetUID(uid)
	return nil
}

func TestATargetIsTheSameObjectInAllVersions(t *testing.T) {
	for name, c := range map[string]struct {
		uids map[string]types.UID
		want string
		err  error
	}{
		"in both":                       {map[string]types.UID{"v1": "w", "v1alpha1": "w"}, "[v1 v1alpha1]", nil},
		"gone, as the latest says":      {map[string]types.UID{"v1alpha1": "w"}, "[]", nil},
		"another one in the other":      {map[string]types.UID{"v1": "w", "v1alpha1": "before"}, "[]", checking.ErrNotSynced},
		"not seen yet in the other":     {map[string]types.UID{"v1": "w"}, "[]", checking.ErrNotSynced},
		"gone in all that there may be": {nil, "[]", nil},
	} {
		t.Run(name, func(t *testing.T) {
			o, objects := knowing(t), &versioned{uids: c.uids}
			objects.Scheme = runtime.NewScheme()
			o.Watches = checking.WatchesOf(objects, func(checking.Target) {}, testingclock.NewFakePassiveClock(noon))
			for _, r := range []*v1alpha1.HealthCheckRegistration{suspended("a", "v1alpha1", "Mine"), suspended("b", "v1", "Other")} {
				o.policies.Seen(t.Context(), r)
				o.policies.Judge(t.Context(), types.NamespacedName{Name: r.Name})
			}
			object, in, err := (&TargetReconciler{Observer: o}).read(t.Context(), targetNamed("w"))
			if got := fmt.Sprint(slices.Sorted(maps.Keys(in))); !errors.Is(err, c.err) || c.err == nil && (got != c.want || (object != nil) != (c.want != "[]")) {
				t.Errorf("it is read in %s, %v", got, err)
			}
		})
	}
}

// Such a version decides nothing, and may be one that never can be read.
func TestAVersionThatOnlyUnjudgedRegistrationsNameHoldsUpNoLook(t *testing.T) {
	o, objects := knowing(t), &versioned{uids: map[string]types.UID{"v1": "w", "v1alpha1": "w"}, unread: "v1alpha1"}
	objects.Scheme = runtime.NewScheme()
	o.Watches = checking.WatchesOf(objects, func(checking.Target) {}, testingclock.NewFakePassiveClock(noon))
	o.policies.Seen(t.Context(), suspended("b", "v1", "Other"))
	o.policies.Judge(t.Context(), types.NamespacedName{Name: "b"})
	o.policies.Seen(t.Context(), suspended("a", "v1alpha1", "Mine"))
	r := &TargetReconciler{Observer: o}
	if object, in, err := r.read(t.Context(), targetNamed("w")); err != nil || object == nil || len(in) != 1 {
		t.Errorf("while it isn't judged the target is %v in %d versions, %v", object, len(in), err)
	}
	o.policies.Judge(t.Context(), types.NamespacedName{Name: "a"})
	if _, _, err := r.read(t.Context(), targetNamed("w")); !errors.Is(err, checking.ErrNotSynced) {
		t.Errorf("once it is: %v", err)
	}
}

// Nothing is written on targets before, and the keeper looks again after a second.
func TestARegistrationWhoseTargetsCanBeReadGetsItsFinalizerSoon(t *testing.T) {
	for finalizer, want := range map[string]int{"": 1, v1alpha1.FinalizerUndo: 0} {
		o, hcr := knowing(t), suspended("r", "v1alpha1", "Mine")
		if hcr.Finalizers = nil; finalizer != "" {
			hcr.Finalizers = []string{finalizer}
		}
		o.policies.Seen(t.Context(), hcr)
		o.policies.Judge(t.Context(), types.NamespacedName{Name: "r"})
		asked := &soon{}
		o.policies.Statuses.Attach(asked)
		l := lookedAt(t, o, claimed())
		l.recordResults(l.plan(t.Context(), health.Layout{Shape: health.Gardener}, nil), outcome{})
		if asked.n != want {
			t.Errorf("with finalizer %q the keeper is asked %d times within a tenth of a second, want %d", finalizer, asked.n, want)
		}
	}
}

// soon is a queue that counts what is asked for within a tenth of a second.
type soon struct {
	kube.Queue
	n int
}

func (s *soon) AddAfter(_ reconcile.Request, after time.Duration) {
	if after <= 100*time.Millisecond {
		s.n++
	}
}
