package undo

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
)

// patched is an API server with an EnvoyPatchPolicy for a policy that is stored, and with one of somebody else that has a copy of its record.
func patched(t *testing.T, funcs interceptor.Funcs, finalizers ...string) client.Client {
	t.Helper()
	known := runtime.NewScheme()
	known.AddKnownTypeWithName(actuate.PatchesKind, &unstructured.Unstructured{})
	known.AddKnownTypeWithName(actuate.PatchesKind.GroupVersion().WithKind("EnvoyPatchPolicyList"), &unstructured.UnstructuredList{})
	if err := errors.Join(scheme.AddToScheme(known), v1alpha1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	object := func(name string) client.Object {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"jsonPatches": []any{
			map[string]any{"name": "a", "operation": map[string]any{"path": "/outlier_detection"}}, map[string]any{"name": "b", "operation": map[string]any{"path": "/outlier_detection"}},
		}}}}
		u.SetGroupVersionKind(actuate.PatchesKind)
		u.SetNamespace("edge")
		u.SetName(name)
		u.SetUID(types.UID(name))
		u.SetAnnotations(map[string]string{v1alpha1.AnnotationPatchedFor: `{"a": [{"namespace": "shop", "name": "web", "uid": "p"}], "b": [{"namespace": "shop", "name": "web", "uid": "p"}]}`})
		return u
	}
	op := &v1alpha1.OutlierPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "p", Finalizers: finalizers}}
	return fake.NewClientBuilder().WithScheme(known).WithObjects(op, object("autohealer.web"), object("copied")).WithInterceptorFuncs(funcs).Build()
}

func undoPatches(t *testing.T, c client.Client, name string, hold time.Duration) Result {
	t.Helper()
	u := &Undoer{Client: c, Clock: clocktesting.NewFakePassiveClock(now), Hold: hold}
	return u.Undo(t.Context(), Object{Kind: actuate.PatchesKind, Key: types.NamespacedName{Namespace: "edge", Name: name}, Title: name})
}

func thereIs(t *testing.T, c client.Client, name string) bool {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(actuate.PatchesKind)
	err := c.Get(t.Context(), types.NamespacedName{Namespace: "edge", Name: name}, u)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

func TestAnEnvoyPatchPolicyIsDeletedByItsRecord(t *testing.T) {
	c := patched(t, interceptor.Funcs{})
	r := undoPatches(t, c, "autohealer.web", 0)
	if diff := cmp.Diff([]string{"deleted, which has Gateway web detect outliers in 2 clusters, for OutlierPolicy shop/web"}, r.Did); diff != "" || r.Err != nil {
		t.Error(diff, r.Err)
	}
	again := "Done again soon: by OutlierPolicy shop/web. To keep it off, take the label autohealer.resourcestack.com/envoy-patches off its Gateway, or stop all with: kubectl autohealer freeze"
	if diff := cmp.Diff(again, r.Again); diff != "" {
		t.Error(diff)
	}
	if thereIs(t, c, "autohealer.web") {
		t.Error("it is still there")
	}
	if r := undoPatches(t, c, "copied", 0); r.Err != nil || len(r.Did) > 0 || !thereIs(t, c, "copied") {
		t.Errorf("somebody else's: %v, %v", r.Did, r.Err)
	}
}

func TestAnEnvoyPatchPolicyIsNotHeld(t *testing.T) {
	c := patched(t, interceptor.Funcs{})
	r := undoPatches(t, c, "autohealer.web", time.Hour)
	if r.Err == nil || r.Err.Error() != "it can't be held; instead take the label autohealer.resourcestack.com/envoy-patches off its Gateway" || !thereIs(t, c, "autohealer.web") {
		t.Error(r.Err)
	}
}

func TestEnvoyPatchPoliciesAreFoundWhereSomethingMayBePatched(t *testing.T) {
	forbidden := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if kind := list.GetObjectKind().GroupVersionKind(); kind.Group == actuate.PatchesKind.Group {
			return apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: "envoypatchpolicies"}, "", nil)
		}
		return c.List(ctx, list, opts...)
	}}
	for name, test := range map[string]struct {
		funcs      interceptor.Funcs
		finalizers []string
		found      int
		fails      bool
	}{
		"they may be listed":                         {interceptor.Funcs{}, nil, 2, false},
		"they may not, and nothing is patched":       {forbidden, nil, 0, false},
		"they may not, and something may be patched": {forbidden, []string{v1alpha1.FinalizerUndo}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			u := &Undoer{Client: patched(t, test.funcs, test.finalizers...), Clock: clocktesting.NewFakePassiveClock(now)}
			found, err := u.Find(t.Context(), &discoveryfake.FakeDiscovery{Fake: &clienttesting.Fake{}}, "edge")
			if len(found) != test.found || (err != nil) != test.fails {
				t.Errorf("found %v: %v", found, err)
			}
		})
	}
}
