package checking

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// odd is an API server of which some objects can't be read in the ways that bugs and networks have.
type odd struct{ client.Reader }

func (odd) Get(ctx context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	switch key.Name {
	case "panics":
		panic("of a bug")
	case "hangs":
		<-ctx.Done()
		return ctx.Err()
	case "unread":
		return ErrNotSynced
	}
	return nil
}

func TestACheckCostsItsOwnConditionOnly(t *testing.T) {
	hcr := &v1alpha1.HealthCheckRegistration{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	hcr.Spec.Target = v1alpha1.HealthCheckTarget{APIVersion: "e.org/v1", Kind: "Thing"}
	hcr.Spec.CheckTimeout = "50ms"
	for _, name := range []string{"panics", "hangs", "unread", "fine"} {
		hcr.Spec.Checks = append(hcr.Spec.Checks, v1alpha1.HealthCheck{
			Name: name, ConditionType: name, Object: &v1alpha1.HealthCheckObject{APIVersion: "v1", Kind: "ConfigMap", Name: "'" + name + "'"},
			Evaluate: v1alpha1.HealthCheckEvaluator{Status: &v1alpha1.StatusCheck{}},
		})
	}
	reg, problems := registration.Read(hcr)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	c := &Checker{Watches: WatchesOf(nil, nil, clock.RealClock{}), Live: odd{}, Clock: testingclock.NewFakePassiveClock(time.Time{})}
	by, unread := c.Results(t.Context(), reg, &unstructured.Unstructured{Object: map[string]any{}}, sets.New("panics", "hangs", "unread", "fine"))
	if len(unread) != 1 || unread[0] != "unread" || len(by) != 3 {
		t.Fatalf("results are %v, and unread %v", by, unread)
	}
	for name, want := range map[string]health.Result{
		"panics": {Check: "panics", Status: health.Unknown, Detail: "the check panicked; the manager's log has the stack"},
		"hangs":  {Check: "hangs", Status: health.Unknown, Detail: "the check gave no result within 50ms"},
		"fine":   {Check: "fine", Status: health.True},
	} {
		if got := by[name]; len(got) != 1 || got[0].Status != want.Status || got[0].Detail != want.Detail {
			t.Errorf("%s gave %+v", name, got)
		}
	}
}

func TestNodesAndWhatTheyAreComparedWithAreFollowed(t *testing.T) {
	hcr := &v1alpha1.HealthCheckRegistration{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	hcr.Spec.Target = v1alpha1.HealthCheckTarget{APIVersion: "e.org/v1", Kind: "Thing"}
	hcr.Spec.ShootKubeconfig = &v1alpha1.SecretKey{SecretName: "gardener"}
	hcr.Spec.Checks = []v1alpha1.HealthCheck{{
		Name: "nodes", ConditionType: "EveryNodeReady", Object: &v1alpha1.HealthCheckObject{APIVersion: "e.org/v1", Kind: "Machines", Selector: &v1alpha1.LabelSelector{}},
		Evaluate: v1alpha1.HealthCheckEvaluator{Nodes: &v1alpha1.NodesCheck{Desired: "object.spec.replicas"}},
	}}
	reg, problems := registration.Read(hcr)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	thing := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "shoot--a", "name": "w"}}}
	target := Target{schema.GroupKind{Group: "e.org", Kind: "Thing"}, types.NamespacedName{Namespace: "shoot--a", Name: "w"}}
	c := &Checker{Watches: WatchesOf(nil, func(Target) {}, clock.RealClock{}), Shoots: &Shoots{Seed: fake.NewFakeClient(), Changed: func(Target) {}, Clock: clock.RealClock{}}}
	t.Cleanup(func() { c.Follow(target) })
	c.Follow(target, Interest{reg, thing})
	if following := c.Watches.index.WatchersOfKind(reg.Checks[0].Kind); len(following) != 1 || following[0] != target {
		t.Errorf("in the seed %v follow the kind", following)
	}
	for _, group := range c.Shoots.groups {
		if queries := group.shoots["shoot--a"].users[target]; !queries.Equal(sets.New(everyNode)) {
			t.Errorf("in the shoot %v are followed", queries)
		}
	}
	if len(c.Shoots.groups) != 1 {
		t.Errorf("it follows shoots of %d groups", len(c.Shoots.groups))
	}
}

// nothing is an API server without objects.
type nothing struct{ client.Reader }

func (nothing) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func TestWhatIsMissingIsToldWithItsNamespaceIfItHasOne(t *testing.T) {
	hcr := &v1alpha1.HealthCheckRegistration{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	hcr.Spec.Target = v1alpha1.HealthCheckTarget{APIVersion: "e.org/v1", Kind: "Thing"}
	for _, kind := range []string{"Role", "ClusterRole"} {
		hcr.Spec.Checks = append(hcr.Spec.Checks, v1alpha1.HealthCheck{
			Name: kind, ConditionType: kind, Object: &v1alpha1.HealthCheckObject{APIVersion: "rbac.authorization.k8s.io/v1", Kind: kind, Name: "'r'"},
			Evaluate: v1alpha1.HealthCheckEvaluator{Status: &v1alpha1.StatusCheck{}},
		})
	}
	reg, problems := registration.Read(hcr)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	c := &Checker{Watches: WatchesOf(nil, nil, clock.RealClock{}), Live: nothing{}, Clock: clock.RealClock{}}
	c.Watches.clusterScoped.Insert(reg.Checks[1].Kind)
	by, _ := c.Results(t.Context(), reg, &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "shoot--a", "name": "w"}}}, sets.New("Role", "ClusterRole"))
	for kind, want := range map[string]string{"Role": "Role shoot--a/r doesn't exist", "ClusterRole": "ClusterRole r doesn't exist"} {
		if got := by[kind]; len(got) != 1 || got[0].Status != health.False || got[0].Detail != want {
			t.Errorf("of a %s it says %+v", kind, got)
		}
	}
}

// A check may name an object of a kind without namespaces before that is known of the kind: its news come without.
func TestObjectsWithoutNamespaceAreFollowedFromAnyNamespace(t *testing.T) {
	definition := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	target := func(name string) Target { return Target{Key: types.NamespacedName{Namespace: "a", Name: name}} }
	refs := map[bool][]registration.Ref{
		false: {{Kind: definition, Namespace: "a", Name: "d"}},
		true:  {{Kind: definition, Namespace: "a", Selector: labels.SelectorFromSet(labels.Set{"app": "x"})}},
	}
	changed := sets.New[Target]()
	w := WatchesOf(&informertest.FakeInformers{Scheme: scheme.Scheme}, func(t Target) { changed.Insert(t) }, clock.RealClock{})
	w.scopes.ask = func(context.Context, schema.GroupVersionKind) (meta.RESTScopeName, error) {
		return meta.RESTScopeNameRoot, nil
	}
	for labelled, name := range map[bool]string{false: "name", true: "labels"} {
		w.Follow(target(name+"-before"), slices.Clone(refs[labelled]))
	}
	if err := w.Watch(t.Context(), definition, false); err != nil && !errors.Is(err, ErrNotSynced) {
		t.Fatal(err)
	}
	if !changed.Equal(sets.New(target("name-before"), target("labels-before"))) {
		t.Errorf("followed anew by %v", changed)
	}
	for target := range changed {
		w.Follow(target, slices.Clone(refs[target.Key.Name == "labels-before"]))
	}
	w.Follow(target("name-after"), slices.Clone(refs[false]))
	if got := w.index.Affected(definition, types.NamespacedName{Name: "d"}, labels.Set{"app": "x"}); len(got) != 3 {
		t.Errorf("affected are %v", got)
	}
	if at := w.Resolve(refs[false][0]); at.Namespace != "" {
		t.Errorf("looked for in namespace %s", at.Namespace)
	}
}
