package healthcheck

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

var (
	gadget     = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gadget"}
	definition = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	ofG        = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "a", Name: "g"}}
)

// reconcilerOf gives the reconciler of a registration about Gadgets, of which one is stored: a/g.
func reconcilerOf(registration *Registration, funcs interceptor.Funcs) (*reconciler, client.Client) {
	g := untyped(gadget)
	g.SetNamespace("a")
	g.SetName("g")
	g.SetUID("g-1")
	scheme := runtime.NewScheme()
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(gadget, meta.RESTScopeNamespace)
	kinds.Add(definition, meta.RESTScopeRoot)
	kinds.Add(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, meta.RESTScopeNamespace)
	stored := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(kinds).WithObjects(g).WithStatusSubresource(g).WithInterceptorFuncs(funcs).Build()
	r := &reconciler{
		Registration: registration, reader: stored, scheme: scheme,
		runner: &runner{timeout: registration.checkTimeout, seed: stored, shoots: theShoot{}, refs: &refs{
			scheme: scheme, kinds: kinds, watch: func(source.Source) error { return nil },
			watched: sets.New[schema.GroupVersionKind](),
		}},
		writer: &writer{client: stored, live: stored, shape: health.Gardener, clock: registration.clock},
	}
	r.writer.breaker = &breaker{
		listTargets: r.targets, checked: r.checked, checks: r.checks, clock: r.clock,
	}
	return r, stored
}

// conditionOf the stored Gadget, as "status: message".
func conditionOf(t *testing.T, stored client.Client, conditionType string) string {
	t.Helper()
	g := untyped(gadget)
	if err := stored.Get(t.Context(), ofG.NamespacedName, g); err != nil {
		t.Fatal(err)
	}
	list, _, _ := unstructured.NestedSlice(g.Object, "status", "conditions")
	for _, item := range list {
		if entry := item.(map[string]any); entry["type"] == conditionType {
			return entry["status"].(string) + ": " + entry["message"].(string)
		}
	}
	return "none"
}

func fine() HealthCheck {
	return checkFunc(func(context.Context) (*SingleCheckResult, error) {
		return &SingleCheckResult{Status: ConditionTrue}, nil
	})
}

// referring is a check that is True, with references of the test's.
type referring struct {
	checkFunc
	refs func(types.NamespacedName) []client.Object
}

// Refs gives them.
func (r referring) Refs(target types.NamespacedName) []client.Object { return r.refs(target) }

func referringTo(refs func(types.NamespacedName) []client.Object) func() HealthCheck {
	return func() HealthCheck { return referring{fine().(checkFunc), refs} }
}

func TestReferencesThatFailCostTheirOwnConditionOnly(t *testing.T) {
	var release chan struct{}
	for name, tt := range map[string]struct {
		newCheck func() HealthCheck
		want     string
	}{
		"a client that isn't injected yet": {referringTo(func(types.NamespacedName) []client.Object {
			var none *seedObject
			return none.Refs(ofG.NamespacedName)
		}), "refs: the check panicked"},
		"no object":        {referringTo(func(types.NamespacedName) []client.Object { return []client.Object{nil} }), "refs: find the kind of what a check refers to"},
		"an unknown type":  {referringTo(func(types.NamespacedName) []client.Object { return []client.Object{&corev1.Secret{}} }), "refs: find the kind of what a check refers to"},
		"they never come":  {referringTo(func(types.NamespacedName) []client.Object { <-release; return nil }), "refs: the check gave no result within 10s"},
		"no constructor":   {func() HealthCheck { panic("no") }, "refs: the check panicked"},
		"it never returns": {func() HealthCheck { <-release; return nil }, "refs: the check gave no result within 10s"},
		"no references":    {referringTo(func(types.NamespacedName) []client.Object { return nil }), "True: (1/1)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release = make(chan struct{})
				r, stored := reconcilerOf(For(gadget).Check("Refers", "refs", tt.newCheck).Check("Fine", "fine", fine), interceptor.Funcs{})
				for range 2 {
					result, err := r.Reconcile(t.Context(), ofG)
					if err != nil || result.RequeueAfter < 30*time.Second || result.RequeueAfter > 33*time.Second {
						t.Errorf("%+v, %v", result, err)
					}
				}
				if got := conditionOf(t, stored, "Refers"); !strings.Contains(got, tt.want) || !strings.HasPrefix(tt.want, "True") && !strings.HasPrefix(got, "Unknown: ") {
					t.Errorf("its own condition is %s", got)
				}
				if got := conditionOf(t, stored, "Fine"); !strings.HasPrefix(got, "True: ") {
					t.Errorf("the other condition is %s", got)
				}
				close(release)
				synctest.Wait()
			})
		})
	}
}

func TestWhatACheckRefersToIsFollowedUntilItsTargetIsGone(t *testing.T) {
	secret := untyped(schema.GroupVersionKind{Version: "v1", Kind: "Secret"})
	secret.SetNamespace("a")
	secret.SetName("s")
	refersTo := func(objects ...client.Object) func() HealthCheck {
		return referringTo(func(types.NamespacedName) []client.Object { return objects })
	}
	r, stored := reconcilerOf(For(gadget).Check("X", "a", refersTo(secret)).Check("Y", "a", refersTo(secret)).Check("Z", "a", refersTo()), interceptor.Funcs{})
	affected := func() []reconcile.Request {
		return r.runner.refs.affected(secret.GroupVersionKind(), client.ObjectKeyFromObject(secret))
	}
	if _, err := r.Reconcile(t.Context(), ofG); err != nil || len(affected()) != 1 || affected()[0] != ofG {
		t.Errorf("%v; news affects %v", err, affected())
	}
	g := untyped(gadget)
	g.SetNamespace("a")
	g.SetName("g")
	if err := stored.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(t.Context(), ofG); err != nil || len(affected()) != 0 {
		t.Errorf("once it is gone: %v; news affects %v", err, affected())
	}
}

func TestWhatIsInNoNamespaceIsFollowedAndReadAllTheSame(t *testing.T) {
	var namespace *string
	seen := interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, options ...client.ListOption) error {
		namespace = &(&client.ListOptions{}).ApplyOptions(options).Namespace
		return nil
	}}
	r, stored := reconcilerOf(For(gadget).Check("X", "x", CheckSeedObject(definition, "d.example.org")), seen)
	if _, err := r.Reconcile(t.Context(), ofG); err != nil {
		t.Fatal(err)
	}
	if got := conditionOf(t, stored, "X"); !strings.HasSuffix(got, "x: CustomResourceDefinition d.example.org doesn't exist") {
		t.Errorf("it is %s", got)
	}
	if got := r.runner.refs.affected(definition, types.NamespacedName{Name: "d.example.org"}); len(got) != 1 || got[0] != ofG {
		t.Errorf("news affects %v", got)
	}
	seed := rightsChecked{stored, &watchRights{kinds: meta.NewDefaultRESTMapper(nil)}}
	for kind, want := range map[schema.GroupVersionKind]string{definition: "", gadget: "a"} {
		all := &unstructured.UnstructuredList{}
		all.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := seed.List(t.Context(), all, client.InNamespace("a")); err != nil || *namespace != want {
			t.Errorf("%s: %v; the cache is asked for namespace %q", kind.Kind, err, *namespace)
		}
	}
}

func TestWhatOnlyThePeriodAsksForComesLast(t *testing.T) {
	slow := func() HealthCheck {
		return checkFunc(func(context.Context) (*SingleCheckResult, error) {
			threshold := time.Second
			return &SingleCheckResult{Status: ConditionProgressing, ProgressingThreshold: &threshold}, nil
		})
	}
	asleep := WithSuspended(func(client.Object) bool { return true })
	for name, c := range map[string]struct {
		of   *Registration
		want *int
	}{
		"well":              {For(gadget).Check("X", "x", fine), new(handler.LowPriority)},
		"suspended":         {For(gadget, asleep).Check("X", "x", fine), new(handler.LowPriority)},
		"before a deadline": {For(gadget).Check("X", "x", slow), nil},
	} {
		r, _ := reconcilerOf(c.of, interceptor.Funcs{})
		if result, err := r.Reconcile(t.Context(), ofG); err != nil || !reflect.DeepEqual(result.Priority, c.want) {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
	}
}
