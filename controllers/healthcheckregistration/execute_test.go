package healthcheckregistration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/policy"
)

// current says that every registration is what was admitted.
type current struct{}

func (current) Check(context.Context, schema.GroupVersionKind, types.NamespacedName, types.UID, int64) error {
	return nil
}

// storing is an API server that has a Worker, and answers writes that say "it is bad" with an error. Applies it takes in, and
// changes nothing.
func storing(worker *unstructured.Unstructured, bad error, owners *[]string) client.WithWatch {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(worker.GroupVersionKind(), &unstructured.Unstructured{})
	return interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(worker).WithStatusSubresource(worker).Build(), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if data, err := patch.Data(o); err != nil || bad != nil && strings.Contains(string(data), "it is bad") {
				return errors.Join(err, bad)
			}
			return c.SubResource(sub).Patch(ctx, o, patch, options...)
		},
		SubResourceApply: func(ctx context.Context, c client.Client, _ string, applied runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
			owner := (&client.SubResourceApplyOptions{}).ApplyOpts(options).FieldManager
			if *owners = append(*owners, owner); owner == "autohealer-Bad" && bad != nil {
				return bad
			}
			stored := worker.DeepCopy()
			err := c.Get(ctx, client.ObjectKeyFromObject(stored), stored)
			applied.(runtime.Unstructured).SetUnstructuredContent(stored.Object)
			return err
		},
	})
}

// twoDecide is an observer that knows two registrations, one about Bad and one about Good.
func twoDecide(t *testing.T) *Observer {
	t.Helper()
	o := knowing(t)
	for _, r := range []*v1alpha1.HealthCheckRegistration{suspended("bad", "v1alpha1", "Bad"), suspended("good", "v1alpha1", "Good")} {
		o.policies.Seen(t.Context(), r)
		o.policies.Judge(t.Context(), client.ObjectKeyFromObject(r))
	}
	return o
}

// turning is a look at a Worker whose conditions Bad and Good turn False, by a registration each, while Old is to go and a claim is in
// vain.
func turning(t *testing.T, api client.WithWatch) (*evaluation, plan) {
	t.Helper()
	o := twoDecide(t)
	l := lookedAt(t, o, claimed("Bad", "Good", "Old"))
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(l.object), l.object); err != nil {
		t.Fatal(err)
	}
	l.r.Conditions, l.r.Layouts = &actuate.Conditions{Client: api, Current: current{}, Acts: logr.Discard()}, checking.NewLayouts(nil, nil, testingclock.NewFakePassiveClock(noon))
	l.r.Errors, l.r.Report = &policy.ErrorTracker{}, NewReporter(&recorder{})
	p := plan{TargetPlan: registration.TargetPlan{DecidedBy: map[string][]int{"Bad": {0}, "Good": {1}}, ReleaseClaims: []string{"Gone"}}}
	p.Verdicts = map[string]health.Verdict{"Bad": {}, "Good": {}}
	for _, conditionType := range []string{"Bad", "Good"} {
		turned := health.Condition{Type: conditionType, Status: health.False, Reason: health.ReasonUnsuccessful, Message: "(0/1) Health checks successful: 1) c: it is " + strings.ToLower(conditionType)}
		p.Steps = append(p.Steps, health.Step{Condition: turned, Previous: health.True, Counted: true})
		o.results.mayFail(types.UID(strings.ToLower(conditionType)), l.target, conditionType, false, 10, noon)
	}
	p.Steps = append(p.Steps, health.Step{Condition: health.Condition{Type: "Old"}, Previous: health.True, Remove: true})
	return l, p
}

// stored says which conditions a target has, and which are claimed.
func stored(t *testing.T, api client.WithWatch, target *unstructured.Unstructured) string {
	t.Helper()
	now := target.DeepCopy()
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(target), now); err != nil {
		t.Fatal(err)
	}
	var is []string
	for _, conditionType := range []string{"Bad", "Good", "Old"} {
		if c := health.Find(now, conditionType); c != nil {
			is = append(is, conditionType+" "+string(c.Status))
		}
	}
	return fmt.Sprint(is, health.Owned(now))
}

// breaks says whether two more targets open a registration's breaker, because it counts one already.
func breaks(b *resultStore, uid types.UID) bool {
	return !b.mayFail(uid, targetNamed("a"), "X", false, 10, noon) || !b.mayFail(uid, targetNamed("b"), "X", false, 10, noon)
}

func TestARefusedConditionHoldsUpNoOther(t *testing.T) {
	workers := schema.GroupResource{Group: worker.Group, Resource: "workers"}
	const all, others, none = "[Bad False Good False] [Bad Good]", "[Bad True Good False] [Bad Good]", "[Bad True Good True Old True] [Bad Gone Good Old]"
	for name, c := range map[string]struct {
		bad  error
		want string
		// ended is why the others aren't tried.
		ended error
	}{
		"nothing is wrong":   {nil, all, nil},
		"forbidden":          {apierrors.NewForbidden(workers, "w", errors.New("no")), others, nil},
		"invalid":            {apierrors.NewInvalid(worker.GroupKind(), "w", field.ErrorList{field.Invalid(field.NewPath("status"), 1, "no")}), others, nil},
		"a bad request":      {apierrors.NewBadRequest("no"), others, nil},
		"too large":          {apierrors.NewRequestEntityTooLargeError("no"), others, nil},
		"of an older state":  {apierrors.NewConflict(workers, "w", errors.New("no")), none, actuate.ErrStale},
		"the target is gone": {apierrors.NewNotFound(workers, "w"), none, actuate.ErrStale},
		"no answer":          {context.DeadlineExceeded, none, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			api := storing(claimed("Bad", "Good", "Old"), c.bad, nil)
			l, p := turning(t, api)
			is := l.execute(t.Context(), health.Layout{Shape: health.Gardener}, p)
			if got := stored(t, api, l.object); got != c.want {
				t.Errorf("the target has %s, not %s", got, c.want)
			}
			if !errors.Is(is.stoppedBy, c.ended) || (len(is.refused) > 0) != (c.want == others) || !is.hasUnrefused(p) {
				t.Errorf("it gave %+v", is)
			}
			if bad, good := l.r.Errors.Get("bad"), l.r.Errors.Get("good"); good != nil || (bad != nil) != (c.bad != nil && !errors.Is(c.ended, actuate.ErrStale)) {
				t.Errorf("trouble is %+v of Bad, %+v of Good", bad, good)
			}
			if bad, good := breaks(&l.r.Observer.results, "bad"), breaks(&l.r.Observer.results, "good"); bad != (c.want == all) || good != (c.want != none) {
				t.Errorf("breakers count Bad %t, Good %t", bad, good)
			}
		})
	}
}

func TestAConflictOfApplyHoldsUpNoOtherCondition(t *testing.T) {
	const all, none = "[autohealer-Bad autohealer-Bad autohealer-Good]", "[autohealer-Bad]"
	for name, c := range map[string]struct {
		bad     error
		want    string
		refused int
	}{
		"of fields":      {apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict}}, "no"), all, 1},
		"of the targets": {apierrors.NewConflict(schema.GroupResource{Resource: "workers"}, "w", errors.New("the UID is another")), none, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var applied []string
			l, p := turning(t, storing(claimed("Bad", "Good", "Old"), c.bad, &applied))
			is := l.execute(t.Context(), health.Layout{Shape: health.Conditions, Map: true}, p)
			if fmt.Sprint(applied) != c.want || len(is.refused) != c.refused || (is.stoppedBy != nil) != (c.refused == 0) {
				t.Errorf("it applied %v, and gave %+v", applied, is)
			}
		})
	}
}

// The first write of a plan gives the target as it is by then. A look that begins right after another has an older one, without what that wrote.
func TestAPlanIsMadeAnewWhereItsEarlierWritesFindAnotherCondition(t *testing.T) {
	target, others := claimed("Bad", "Good", "Old"), false
	api := storing(target, nil, nil)
	api = interceptor.NewClient(api, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if !others { // before the write of Bad
				others = true
				now := target.DeepCopy()
				if err := c.Get(ctx, client.ObjectKeyFromObject(target), now); err != nil {
					return err
				}
				list, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
				for _, item := range list {
					if entry := item.(map[string]any); entry["type"] == "Good" {
						entry["status"], entry["reason"], entry["message"] = "Unknown", health.ReasonCheckError, "(0/1) Health checks successful: 1) c: newer"
					}
				}
				if err := unstructured.SetNestedSlice(now.Object, list, "status", "conditions"); err != nil {
					return err
				}
				if err := c.Status().Update(ctx, now); err != nil {
					return err
				}
			}
			return c.SubResource(sub).Patch(ctx, o, patch, options...)
		},
	})
	l, p := turning(t, api)
	is := l.execute(t.Context(), health.Layout{Shape: health.Gardener}, p)
	if got, want := stored(t, api, l.object), "[Bad False Good Unknown Old True] [Bad Gone Good Old]"; got != want || !errors.Is(is.stoppedBy, actuate.ErrStale) {
		t.Errorf("the target has %s, not %s; it gave %+v", got, want, is)
	}
}

func TestADeletedRegistrationTellsWhatMayNotBeTakenOffATarget(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: worker.Group, Resource: "workers"}, "w", errors.New("no"))
	for name, c := range map[string]struct {
		refuses interceptor.Funcs
		steps   int
	}{
		"a condition": {interceptor.Funcs{SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return forbidden
		}}, 1},
		"a claim": {interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return forbidden
		}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l, p := turning(t, interceptor.NewClient(storing(claimed("Bad", "Good", "Old"), nil, nil), c.refuses))
			l.registrations[0].State = lifecycle.Deleted
			p.Steps = p.Steps[len(p.Steps)-c.steps:]
			l.execute(t.Context(), health.Layout{Shape: health.Gardener}, p)
			if deleted, other := l.r.Errors.Get("bad"), l.r.Errors.Get("good"); !deleted.Forbidden() || other != nil {
				t.Errorf("trouble is %+v of the one that is deleted, %+v of the other", deleted, other)
			}
		})
	}
}

// A claim that is in vain is taken back by a write, too, and the checks before it take their time.
func TestNothingIsDisclaimedOnceAllIsFrozen(t *testing.T) {
	for frozen, want := range map[bool]string{false: "[Bad True Good True Old True] [Bad Good Old]", true: "[Bad True Good True Old True] [Bad Gone Good Old]"} {
		api := storing(claimed("Bad", "Good", "Old"), nil, nil)
		l, p := turning(t, api)
		p.Steps = nil
		if frozen {
			l.r.Observer.policies.Pause(guardrail.Policy{PausedBy: []string{"rail"}, FrozenBy: []string{"rail"}})
		}
		l.execute(t.Context(), health.Layout{Shape: health.Gardener}, p)
		if got := stored(t, api, l.object); got != want {
			t.Errorf("frozen %t: the target has %s, not %s", frozen, got, want)
		}
	}
}
