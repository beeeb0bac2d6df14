package actuate

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/guard"
)

// neverCurrent says that no policy is what was admitted.
type neverCurrent struct{}

func (neverCurrent) Check(context.Context, schema.GroupVersionKind, types.NamespacedName, types.UID, int64) error {
	return errors.New("it isn't")
}

// checked is a target with the condition Mine as checks write them, and Theirs as others do, of which the record claims some.
func checked(record string) *unstructured.Unstructured {
	entry := func(kind, reason, message string) map[string]any {
		return map[string]any{"type": kind, "status": "False", "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "e.org/v1", "kind": "Thing", "metadata": map[string]any{"name": "t", "namespace": "n", "uid": "u"},
		"status": map[string]any{"conditions": []any{
			entry("Mine", "HealthCheckUnsuccessful", "(0/1) Health checks successful: 1) c: broken"), entry("Theirs", "R", "m"),
		}},
	}}
	if record != "" {
		u.SetAnnotations(map[string]string{"autohealer.resourcestack.com/owned-conditions": record})
	}
	return u
}

// conditionsOn applies a write to a target in a cluster that has it, and gives what is then stored.
func conditionsOn(t *testing.T, target *unstructured.Unstructured, w ConditionWrite) (*unstructured.Unstructured, error) {
	t.Helper()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(target.GroupVersionKind(), &unstructured.Unstructured{})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(target).WithStatusSubresource(target).Build()
	stored := target.DeepCopy()
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "n", Name: "t"}, stored); err != nil {
		t.Fatal(err)
	}
	w.Target = stored
	_, err := (&Conditions{Client: c, Current: neverCurrent{}}).Apply(t.Context(), w)
	after := target.DeepCopy()
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "n", Name: "t"}, after); err != nil {
		t.Fatal(err)
	}
	return after, err
}

func TestWhatMayBeDoneToConditionsWithoutAnAdmission(t *testing.T) {
	decider := []*registration.Registration{{Name: "r", UID: "r", Generation: 1}}
	healing := health.Step{Condition: health.Condition{Type: "Mine", Status: health.True, Reason: "R"}, Previous: health.False}
	failing := health.Step{Condition: health.Condition{Type: "Mine", Status: health.Unknown, Reason: "R"}, Previous: health.False}
	for name, c := range map[string]struct {
		record   string
		step     health.Step
		deciders []*registration.Registration
		want     error // nil: it is done
	}{
		"to heal what is ours":                  {"Mine", healing, decider, nil},
		"to remove what is ours":                {"Mine", health.Step{Condition: health.Condition{Type: "Mine"}, Remove: true}, nil, nil},
		"to write something else":               {"Mine", failing, decider, ErrNotValidated},
		"to heal what isn't ours":               {"", healing, decider, ErrNotValidated},
		"to remove what isn't ours":             {"Mine", health.Step{Condition: health.Condition{Type: "Theirs"}, Remove: true}, nil, ErrNotValidated},
		"to remove what nobody says of":         {"", health.Step{Condition: health.Condition{Type: "Theirs"}, Remove: true}, decider, ErrNotValidated},
		"to remove what a forged record claims": {"Mine,Theirs", health.Step{Condition: health.Condition{Type: "Theirs"}, Remove: true}, nil, ErrNotValidated},
		"to heal what a forged record claims":   {"Mine,Theirs", health.Step{Condition: health.Condition{Type: "Theirs", Status: health.True}, Previous: health.False}, decider, ErrNotValidated},
		"to write what nobody decides":          {"", health.Step{Condition: health.Condition{Type: "New", Status: health.True}}, nil, ErrNotValidated},
		"to write what is not admitted":         {"", health.Step{Condition: health.Condition{Type: "New", Status: health.True}}, decider, ErrNotValidated},
		"to write over what others wrote":       {"Mine", health.Step{Condition: health.Condition{Type: "Theirs", Status: health.True}, Previous: health.False}, decider, ErrNotValidated},
		"to turn false what others turned":      {"", health.Step{Condition: health.Condition{Type: "Theirs", Status: health.False}, Previous: health.True}, decider, ErrNotValidated},
	} {
		t.Run(name, func(t *testing.T) {
			target := checked(c.record)
			after, err := conditionsOn(t, target, ConditionWrite{Step: c.step, Deciders: c.deciders, Layout: health.Layout{Shape: health.Conditions}})
			if !errors.Is(err, c.want) {
				t.Fatalf("it gave %v instead of %v", err, c.want)
			}
			mine, theirs := health.Find(after, "Mine"), health.Find(after, "Theirs")
			switch {
			case theirs == nil || theirs.Status != health.False:
				t.Errorf("what is others' is %+v", theirs)
			case c.want != nil && (mine == nil || mine.Status != health.False || health.Claim(after, "", false) != c.record):
				t.Errorf("it is refused, and yet Mine is %+v and the record %q", mine, health.Owned(after))
			case c.want == nil && c.step.Remove && (mine != nil || len(health.Owned(after)) > 0):
				t.Errorf("removed, Mine is %+v and the record %q", mine, health.Owned(after))
			case c.want == nil && !c.step.Remove && mine.Status != health.True:
				t.Errorf("healed, Mine is %+v", mine)
			}
		})
	}
}

func TestAClaimIsDroppedOnlyWithoutItsCondition(t *testing.T) {
	_, err := (&Conditions{}).Unclaim(t.Context(), checked("Mine"), "Mine")
	if !errors.Is(err, ErrNotValidated) {
		t.Errorf("the claim of a condition that is there was dropped: %v", err)
	}
}

// admitting says that every policy is what was admitted.
type admitting struct{}

func (admitting) Check(context.Context, schema.GroupVersionKind, types.NamespacedName, types.UID, int64) error {
	return nil
}

func TestAConditionThatOthersWriteMeanwhileIsTheirs(t *testing.T) {
	bare := checked("")
	if err := unstructured.SetNestedSlice(bare.Object, nil, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(bare.GroupVersionKind(), &unstructured.Unstructured{})
	base := fake.NewClientBuilder().WithScheme(scheme).WithObjects(bare).WithStatusSubresource(bare).Build()
	read := func() *unstructured.Unstructured {
		t.Helper()
		o := bare.DeepCopy()
		if err := base.Get(t.Context(), client.ObjectKeyFromObject(bare), o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	theirs := map[string]any{"type": "Mine", "status": "True", "reason": "R", "message": "of somebody else"}
	raced := false
	racing := interceptor.NewClient(base, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if !raced { // the claim; their write comes before it
				raced = true
				now := read()
				if err := unstructured.SetNestedSlice(now.Object, []any{theirs}, "status", "conditions"); err != nil {
					return err
				}
				if err := base.Status().Update(ctx, now); err != nil {
					return err
				}
			}
			return c.Patch(ctx, o, patch, options...)
		},
	})
	step := health.Step{Condition: health.Condition{Type: "Mine", Status: health.True, Reason: "HealthCheckSuccessful", Message: "(1/1) Health checks successful"}}
	_, err := (&Conditions{Client: racing, Live: racing, Current: admitting{}}).Apply(t.Context(), ConditionWrite{
		Target: read(), Layout: health.Layout{Shape: health.Conditions}, Step: step,
		Deciders: []*registration.Registration{{Name: "r", UID: "r", Generation: 1}}, Admitted: []AdmittedChecks{enforced(t)},
	})
	if !errors.Is(err, ErrStale) {
		t.Errorf("it gave %v", err)
	}
	after := read()
	if is := health.Find(after, "Mine"); is == nil || is.Reason != "R" {
		t.Errorf("what somebody else wrote is now %+v", is)
	}
	if record := health.Owned(after); len(record) > 0 {
		t.Errorf("it is claimed: %v", record)
	}
}

func TestAWriteIsMadeAgainWhenOthersChangedTheList(t *testing.T) {
	target := checked("Mine")
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(target.GroupVersionKind(), &unstructured.Unstructured{})
	base := fake.NewClientBuilder().WithScheme(scheme).WithObjects(target).WithStatusSubresource(target).Build()
	seen, now := target.DeepCopy(), target.DeepCopy()
	for _, o := range []*unstructured.Unstructured{seen, now} {
		if err := base.Get(t.Context(), client.ObjectKeyFromObject(target), o); err != nil {
			t.Fatal(err)
		}
	}
	list, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
	if err := unstructured.SetNestedSlice(now.Object, append([]any{map[string]any{"type": "New", "status": "True"}}, list...), "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	if err := base.Status().Update(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	asServer := interceptor.NewClient(base, interceptor.Funcs{ // of a test that fails
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if err := c.SubResource(sub).Patch(ctx, o, patch, options...); err != nil {
				return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
			}
			return nil
		},
	})
	_, err := (&Conditions{Client: asServer, Live: base, Current: admitting{}}).Apply(t.Context(), ConditionWrite{
		Target: seen, Layout: health.Layout{Shape: health.Conditions}, Step: health.Step{Condition: health.Condition{Type: "Mine", Status: health.True, Reason: "R"}, Previous: health.False},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := base.Get(t.Context(), client.ObjectKeyFromObject(target), now); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]health.Status{"Mine": health.True, "Theirs": health.False, "New": health.True} {
		if is := health.Find(now, kind); is == nil || is.Status != want {
			t.Errorf("%s is %+v", kind, is)
		}
	}
}

// enforced is a registration that the rules admitted.
func enforced(t *testing.T) AdmittedChecks {
	t.Helper()
	g, err := guard.New(guard.Options{Clock: testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))})
	if err != nil {
		t.Fatal(err)
	}
	hcr := &v1alpha1.HealthCheckRegistration{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r", Generation: 1}}
	hcr.Spec.Target = v1alpha1.HealthCheckTarget{APIVersion: "e.org/v1", Kind: "Thing", Type: "t"}
	hcr.Spec.Checks = []v1alpha1.HealthCheck{{
		Name: "c", ConditionType: "Mine", Object: &v1alpha1.HealthCheckObject{APIVersion: "v1", Kind: "ConfigMap", Name: "'c'"},
		Evaluate: v1alpha1.HealthCheckEvaluator{Status: &v1alpha1.StatusCheck{}},
	}}
	admitted, verdict := guard.Admit(t.Context(), g, hcr)
	if !admitted.Valid() {
		t.Fatalf("the rules refuse it: %s", verdict.Message())
	}
	return admitted
}
