package undo

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

var now = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)

// record of a node that the ConditionSet broken tainted.
const record = `{"taints":[{"key":"example.com/broken","effect":"NoSchedule","set":"u","name":"broken","generation":1,"since":"2026-11-21T02:00:00Z"}]}`

// world is an API server with one node, one that a set matches and tainted, and with what fails.
func world(t *testing.T, annotations map[string]string, funcs interceptor.Funcs) client.Client {
	t.Helper()
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), v1alpha1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "worker", UID: "n", Annotations: annotations},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "example.com/broken", Effect: corev1.TaintEffectNoSchedule}}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "Broken", Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(now)}}},
	}
	set := &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: "broken", UID: "u"}}
	set.Spec.Type, set.Spec.TaintKey, set.Spec.Effect = "Broken", "example.com/broken", corev1.TaintEffectNoSchedule
	set.Spec.Conditions = map[string]v1alpha1.MemberCondition{"Broken": {Status: v1alpha1.RequiredStatus{JSON: "true"}}}
	return fake.NewClientBuilder().WithScheme(known).WithObjects(node, set).WithInterceptorFuncs(funcs).Build()
}

func undoNode(t *testing.T, c client.Client, held time.Duration) Result {
	t.Helper()
	u := &Undoer{Client: c, Clock: clocktesting.NewFakePassiveClock(now), Hold: held}
	return u.Undo(t.Context(), Object{Kind: nodeKind, Key: types.NamespacedName{Name: "worker"}, Title: "node/worker"})
}

func stored(t *testing.T, c client.Client) string {
	t.Helper()
	var node corev1.Node
	if err := c.Get(t.Context(), client.ObjectKey{Name: "worker"}, &node); err != nil {
		t.Fatal(err)
	}
	return node.Annotations[v1alpha1.AnnotationHoldUntil]
}

func TestAHoldIsNeverShortenedAndOneThatCantBeReadIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		before string
		hold   time.Duration
		after  string
		again  string
	}{
		"none":                                  {"", 0, "", "Done again soon: by ConditionSet broken, which matches it. Keep it off with --hold=2h, or stop all with: kubectl autohealer freeze"},
		"none, and one is asked for":            {"", time.Hour, "2026-11-21T04:00:00Z", "Done again after 2026-11-21T04:00:00Z: by ConditionSet broken, which matches it"},
		"a shorter one":                         {"2026-11-21T03:30:00Z", time.Hour, "2026-11-21T04:00:00Z", "Done again after 2026-11-21T04:00:00Z: by ConditionSet broken, which matches it"},
		"a longer one":                          {"2026-11-21T08:00:00Z", time.Hour, "2026-11-21T08:00:00Z", "Done again after 2026-11-21T08:00:00Z: by ConditionSet broken, which matches it"},
		"one longer than seven days":            {"2026-12-24T00:00:00Z", time.Hour, "2026-12-24T00:00:00Z", "Done again after 2026-12-24T00:00:00Z: by ConditionSet broken, which matches it"},
		"one that can't be read":                {"tomorrow", 0, "tomorrow", "Done again when the hold is corrected or removed: by ConditionSet broken, which matches it"},
		"one that can't be read, and one asked": {"tomorrow", time.Hour, "2026-11-21T04:00:00Z", "Done again after 2026-11-21T04:00:00Z: by ConditionSet broken, which matches it"},
		"one that is over":                      {"2026-11-21T02:00:00Z", 0, "2026-11-21T02:00:00Z", "Done again soon: by ConditionSet broken, which matches it. Keep it off with --hold=2h, or stop all with: kubectl autohealer freeze"},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{v1alpha1.AnnotationOwnedTaints: record}
			if c.before != "" {
				annotations[v1alpha1.AnnotationHoldUntil] = c.before
			}
			cluster := world(t, annotations, interceptor.Funcs{})
			r := undoNode(t, cluster, c.hold)
			if r.Err != nil || len(r.Did) != 1 {
				t.Fatalf("did %q: %v", r.Did, r.Err)
			}
			if diff := cmp.Diff(c.again, r.Again); diff != "" {
				t.Error(diff)
			}
			if got := stored(t, cluster); got != c.after {
				t.Errorf("held until %q, want %q", got, c.after)
			}
		})
	}
}

func TestAHoldStandsWhenTheUndoFails(t *testing.T) {
	refused := errors.New("refused")
	r := undoNode(t, world(t, map[string]string{v1alpha1.AnnotationOwnedTaints: record}, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if data, err := patch.Data(o); err != nil || strings.Contains(string(data), "/spec/taints") {
				return refused
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	}), time.Hour)
	if !errors.Is(r.Err, refused) || r.Held == nil || !r.Held.Until.Equal(now.Add(time.Hour)) {
		t.Errorf("failed with %v, held %v", r.Err, r.Held)
	}
}

func TestWhatCantBeReadOfPoliciesIsToldOnlyWhereItMatters(t *testing.T) {
	kind := schema.GroupResource{Group: "autohealer.resourcestack.com"}
	for name, c := range map[string]struct {
		annotations map[string]string
		unread      client.ObjectList
		err         error
		again       string
	}{
		"ProbeConfigs do nothing to nodes": {
			map[string]string{v1alpha1.AnnotationOwnedTaints: record}, &v1alpha1.ProbeConfigList{}, apierrors.NewForbidden(kind, "", nil),
			"Done again soon: by ConditionSet broken, which matches it. Keep it off with --hold=2h, or stop all with: kubectl autohealer freeze",
		},
		"nothing was undone": {nil, &v1alpha1.ConditionSetList{}, apierrors.NewForbidden(kind, "", nil), ""},
		"the kind went just now": {
			map[string]string{v1alpha1.AnnotationOwnedTaints: record}, &v1alpha1.ConditionSetList{}, apierrors.NewNotFound(kind, ""), "",
		},
		"ConditionSets taint nodes": {
			map[string]string{v1alpha1.AnnotationOwnedTaints: record}, &v1alpha1.ConditionSetList{}, errors.New("silence"),
			"Whether a policy does it again isn't known: silence",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := world(t, c.annotations, interceptor.Funcs{
				List: func(ctx context.Context, all client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if reflect.TypeOf(list) == reflect.TypeOf(c.unread) {
						return c.err
					}
					return all.List(ctx, list, opts...)
				},
			})
			r := undoNode(t, cluster, 0)
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			if diff := cmp.Diff(c.again, r.Again); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatUndoScaledItselfIsntSaidToBeSomeoneElses(t *testing.T) {
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), v1alpha1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	taken := probe.Record{Replicas: 2, Policy: "shoot/main", Owner: "u", Since: metav1.NewTime(now)}
	ca := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shoot", Name: "ca", UID: "c", Annotations: map[string]string{v1alpha1.AnnotationOriginalReplicas: taken.String()}},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](0)},
	}
	conflicts := 1 // its controller writes the status, between the scale and the record
	cluster := fake.NewClientBuilder().WithScheme(known).WithRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(known)).WithObjects(ca).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceGet: func(ctx context.Context, c client.Client, _ string, o, scale client.Object, _ ...client.SubResourceGetOption) error {
			var stored appsv1.StatefulSet
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), &stored); err != nil {
				return err
			}
			content := scale.(*unstructured.Unstructured)
			content.SetUID(stored.UID)
			content.SetResourceVersion(stored.ResourceVersion)
			content.Object["spec"] = map[string]any{"replicas": int64(*stored.Spec.Replicas)}
			content.Object["status"] = map[string]any{"replicas": int64(0)}
			return nil
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, _ string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			var stored appsv1.StatefulSet
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), &stored); err != nil {
				return err
			}
			scale := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts).SubResourceBody.(*unstructured.Unstructured)
			wanted, _, err := unstructured.NestedInt64(scale.Object, "spec", "replicas")
			if err != nil {
				return err
			}
			stored.Spec.Replicas = ptr.To(int32(wanted))
			err = c.Update(ctx, &stored)
			scale.SetResourceVersion(stored.ResourceVersion)
			return err
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if conflicts--; conflicts >= 0 {
				return apierrors.NewConflict(schema.GroupResource{Group: "apps", Resource: "statefulsets"}, o.GetName(), errors.New("it was modified"))
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	}).Build()
	u := &Undoer{Client: cluster, Clock: clocktesting.NewFakePassiveClock(now)}
	r := u.Undo(t.Context(), Object{Kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), Key: types.NamespacedName{Namespace: "shoot", Name: "ca"}, Title: "statefulset/ca in namespace shoot"})
	if want := []string{"scaled from 0 to 2 replicas, which ProbeConfig shoot/main took 2026-11-21T03:00:00Z"}; r.Err != nil || !slices.Equal(r.Did, want) {
		t.Errorf("did %q, %v", r.Did, r.Err)
	}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(ca), ca); err != nil || *ca.Spec.Replicas != 2 || ca.Annotations[v1alpha1.AnnotationOriginalReplicas] != "" {
		t.Errorf("left %d replicas, annotated %v: %v", *ca.Spec.Replicas, ca.Annotations, err)
	}
}

// served has one kind of a CRD, which may have conditions, beside Kubernetes' own.
func served() *discoveryfake.FakeDiscovery {
	return &discoveryfake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{{
		GroupVersion: "example.org/v1",
		APIResources: []metav1.APIResource{{Name: "gadgets", Kind: "Gadget", Namespaced: true, Verbs: metav1.Verbs{"list"}}, {Name: "gadgets/status", Kind: "Gadget"}},
	}}}}
}

func TestAKindThatNoRegistrationNamesNeedntBeListed(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "example.org", Resource: "gadgets"}, "", nil)
	about := func(kind string) v1alpha1.HealthCheckRegistration {
		hcr := v1alpha1.HealthCheckRegistration{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
		hcr.Spec.Target = v1alpha1.HealthCheckTarget{APIVersion: "example.org/v1alpha1", Kind: kind}
		return hcr
	}
	for name, c := range map[string]struct {
		registrations []v1alpha1.HealthCheckRegistration
		unread        error
		gone          bool
		blind         bool
	}{
		"none":                            {nil, nil, false, false},
		"one about another kind":          {[]v1alpha1.HealthCheckRegistration{about("Widget")}, nil, false, false},
		"one about the kind":              {[]v1alpha1.HealthCheckRegistration{about("Gadget")}, nil, false, true},
		"those that may not be read":      {nil, errors.New("silence"), false, true},
		"their kind isn't there any more": {nil, nil, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := world(t, nil, interceptor.Funcs{
				List: func(ctx context.Context, all client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if registrations, ok := list.(*v1alpha1.HealthCheckRegistrationList); ok {
						if c.gone {
							return apierrors.NewNotFound(schema.GroupResource{}, "")
						}
						registrations.Items, registrations.ResourceVersion = c.registrations, "1"
						return c.unread
					}
					if list.GetObjectKind().GroupVersionKind().Kind == "GadgetList" {
						return forbidden
					}
					return all.List(ctx, list, opts...)
				},
			})
			_, err := (&Undoer{Client: cluster, Clock: clocktesting.NewFakePassiveClock(now)}).Find(t.Context(), served(), "")
			if blind := err != nil; blind != c.blind || blind && !strings.Contains(err.Error(), "look at gadgets") {
				t.Errorf("it gave %v", err)
			}
		})
	}
}

func TestATargetOfHealthChecksIsFoundWhereItIsHeld(t *testing.T) {
	held := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shoot", Name: "g", Annotations: map[string]string{v1alpha1.AnnotationHoldUntil: "2026-11-21T04:00:00Z"},
	}}
	cluster := world(t, nil, interceptor.Funcs{
		List: func(ctx context.Context, all client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if gadgets, ok := list.(*metav1.PartialObjectMetadataList); ok && gadgets.Kind == "GadgetList" {
				gadgets.Items = []metav1.PartialObjectMetadata{held}
				return nil
			}
			return all.List(ctx, list, opts...)
		},
	})
	found, err := (&Undoer{Client: cluster, Clock: clocktesting.NewFakePassiveClock(now)}).FindHeld(t.Context(), served())
	if err != nil || len(found) != 1 || found[0].Title != "gadget/g in namespace shoot" {
		t.Errorf("it found %v: %v", found, err)
	}
}
