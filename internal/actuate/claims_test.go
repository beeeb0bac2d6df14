package actuate

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// Each change of the record has the target looked at again, so that a refused write would be tried as fast as the API server answers.
// A claim that stayed would make ours what somebody else writes there.
func TestARefusedWriteLeavesTheRecordAlone(t *testing.T) {
	bare := checked("")
	if err := unstructured.SetNestedSlice(bare.Object, nil, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	for name, layout := range map[string]health.Layout{"an atomic list": {Shape: health.Conditions}, "a map": {Shape: health.Conditions, Map: true}} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			scheme.AddKnownTypeWithName(bare.GroupVersionKind(), &unstructured.Unstructured{})
			no := apierrors.NewForbidden(schema.GroupResource{Resource: "workers/status"}, "t", errors.New("no"))
			claims := 0
			refusing := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(bare.DeepCopy()).WithStatusSubresource(bare).Build(), interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
					claims++
					return c.Patch(ctx, o, patch, options...)
				},
				SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
					return no
				},
				SubResourceApply: func(context.Context, client.Client, string, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
					return no
				},
			})
			for range 3 {
				target := bare.DeepCopy()
				if err := refusing.Get(t.Context(), client.ObjectKeyFromObject(bare), target); err != nil {
					t.Fatal(err)
				}
				_, err := (&Conditions{Client: refusing, Live: refusing, Current: admitting{}}).Apply(t.Context(), ConditionWrite{
					Target: target, Layout: layout, Step: health.Step{Condition: health.Condition{Type: "Mine", Status: health.True, Reason: "R"}},
					Deciders: []*registration.Registration{{Name: "r", UID: "r", Generation: 1}}, Admitted: []AdmittedChecks{enforced(t)},
				})
				if !apierrors.IsForbidden(err) {
					t.Fatalf("it gave %v", err)
				}
			}
			if claims != 0 {
				t.Errorf("the record was written %d times", claims)
			}
		})
	}
}

// An admission webhook with side effects refuses dry runs, and only these.
func TestAnAPIServerThatTakesNoDryRunsGetsTheWrite(t *testing.T) {
	bare := checked("")
	if err := unstructured.SetNestedSlice(bare.Object, nil, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(bare.GroupVersionKind(), &unstructured.Unstructured{})
	base := fake.NewClientBuilder().WithScheme(scheme).WithObjects(bare).WithStatusSubresource(bare).Build()
	picky := interceptor.NewClient(base, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if asked := (&client.SubResourcePatchOptions{}).ApplyOptions(options); len(asked.DryRun) > 0 {
				return apierrors.NewBadRequest(`admission webhook "x" does not support dry run`)
			}
			return c.SubResource(sub).Patch(ctx, o, patch, options...)
		},
	})
	target := bare.DeepCopy()
	if err := base.Get(t.Context(), client.ObjectKeyFromObject(bare), target); err != nil {
		t.Fatal(err)
	}
	after, err := (&Conditions{Client: picky, Current: admitting{}}).Apply(t.Context(), ConditionWrite{
		Target: target, Layout: health.Layout{Shape: health.Conditions}, Step: health.Step{Condition: health.Condition{Type: "Mine", Status: health.True, Reason: "R"}},
		Deciders: []*registration.Registration{{Name: "r", UID: "r", Generation: 1}}, Admitted: []AdmittedChecks{enforced(t)},
	})
	if err != nil || health.Find(after, "Mine") == nil || !health.Owns(after, "Mine") {
		t.Errorf("it gave %v, and wrote %v", err, after.Object)
	}
}

// The cache may show a claim, and not yet the condition that was written after it.
func TestWhatWasWrittenAndIsNotSeenYetIsNotForgotten(t *testing.T) {
	claimed := checked("Mine")
	if err := unstructured.SetNestedSlice(claimed.Object, nil, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	base, read := clusterWith(t, claimed)
	seen := read()
	now := read()
	now.Object["status"] = checked("").Object["status"]
	if err := base.Status().Update(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Conditions{Client: base, Live: base}).Unclaim(t.Context(), seen, "Mine"); !errors.Is(err, ErrStale) {
		t.Errorf("it gave %v", err)
	}
	if after := read(); !health.Ours(after, "Mine") {
		t.Errorf("it is forgotten: %v", health.Owned(after))
	}
}

// What others change beside it is no reason to keep a claim.
func TestAClaimIsDroppedThoughOthersWrite(t *testing.T) {
	claimed := checked("Gone,Mine")
	base, read := clusterWith(t, claimed)
	seen := read()
	now := read()
	now.SetLabels(map[string]string{"a": "b"})
	if err := base.Update(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Conditions{Client: base, Live: base}).Unclaim(t.Context(), seen, "Gone"); err != nil {
		t.Errorf("it gave %v", err)
	}
	if after := read(); health.Owns(after, "Gone") || !health.Owns(after, "Mine") || after.GetLabels()["a"] != "b" {
		t.Errorf("it is now %v", after.Object)
	}
}

// A proxy, or a client, may send a write again whose answer was lost: the second one meets what the first one did.
func TestAWriteThatCameAboutKeepsItsClaim(t *testing.T) {
	bare := checked("")
	if err := unstructured.SetNestedSlice(bare.Object, nil, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	base, read := clusterWith(t, bare)
	twice := interceptor.NewClient(base, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if err := c.SubResource(sub).Patch(ctx, o, patch, options...); err != nil || len((&client.SubResourcePatchOptions{}).ApplyOptions(options).DryRun) > 0 {
				return err
			}
			return apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "t", errors.New("it changed"))
		},
	})
	_, err := (&Conditions{Client: twice, Live: twice, Current: admitting{}}).Apply(t.Context(), ConditionWrite{
		Target: read(), Layout: health.Layout{Shape: health.Conditions},
		Step:     health.Step{Condition: health.Condition{Type: "Mine", Status: health.True, Reason: "HealthCheckSuccessful", Message: "(1/1) Health checks successful"}},
		Deciders: []*registration.Registration{{Name: "r", UID: "r", Generation: 1}}, Admitted: []AdmittedChecks{enforced(t)},
	})
	if !errors.Is(err, ErrStale) {
		t.Errorf("it gave %v", err)
	}
	if after := read(); !health.Ours(after, "Mine") {
		t.Errorf("it is nobody's: %v", after.Object)
	}
}

// clusterWith is an API server that has a target, and what reads that.
func clusterWith(t *testing.T, target *unstructured.Unstructured) (c client.WithWatch, read func() *unstructured.Unstructured) {
	t.Helper()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(target.GroupVersionKind(), &unstructured.Unstructured{})
	c = fake.NewClientBuilder().WithScheme(scheme).WithObjects(target.DeepCopy()).WithStatusSubresource(target).Build()
	return c, func() *unstructured.Unstructured {
		t.Helper()
		o := target.DeepCopy()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(target), o); err != nil {
			t.Fatal(err)
		}
		return o
	}
}
