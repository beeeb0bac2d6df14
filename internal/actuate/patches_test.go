package actuate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/kube"
)

// patcher writes to an API server of its own, and counts what is written.
type patcher struct {
	EnvoyPatches
	t      *testing.T
	client client.Client
	writes int
}

func newPatcher(t *testing.T, objects ...client.Object) *patcher {
	p := &patcher{t: t}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(PatchesKind, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(PatchesKind.GroupVersion().WithKind("EnvoyPatchPolicyList"), &unstructured.UnstructuredList{})
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects = append(objects, &v1alpha1.OutlierPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}})
	p.client = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.CreateOption) error {
			p.writes++
			object.SetUID("written") // as the API server does
			return c.Create(ctx, object, o...)
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.UpdateOption) error {
			p.writes++
			return c.Update(ctx, object, o...)
		},
	})
	p.EnvoyPatches = EnvoyPatches{Reader: p.client, Live: p.client, Writer: p.client, Current: current{nil}, Acts: logr.Discard()}
	return p
}

var web = types.NamespacedName{Namespace: "edge", Name: "web"}

// wants patches two clusters for a policy.
func wants(t *testing.T, policy *outlier.Policy, by AdmittedOutlier) GatewayPatches {
	t.Helper()
	set := outlier.NewPatchSet([]outlier.Patched{{Cluster: "a", Policies: []*outlier.Policy{policy}}, {Cluster: "b", Policies: []*outlier.Policy{policy}}})
	return GatewayPatches{Gateway: web, GatewayUID: "g", Wanted: set, State: lifecycle.Active, Admitted: map[types.UID]AdmittedOutlier{policy.UID: by}}
}

func (p *patcher) apply(g GatewayPatches) (held map[string]error, err error) {
	p.t.Helper()
	return p.Apply(p.t.Context(), g)
}

// stored is what the clusters have; nil where there is no object.
func (p *patcher) stored() outlier.PatchSet {
	p.t.Helper()
	_, set, err := p.read(p.t.Context(), web)
	if err != nil {
		p.t.Fatal(err)
	}
	return set
}

func TestAGatewayIsPatchedOnceAndUndone(t *testing.T) {
	policy, admitted := admittedOutlier(t, v1alpha1.Enforce)
	p := newPatcher(t)
	for range 3 {
		if held, err := p.apply(wants(t, policy, admitted)); err != nil || len(held) > 0 {
			t.Fatal(held, err)
		}
	}
	if got := p.stored(); len(got) != 2 || p.writes != 1 {
		t.Fatalf("%d clusters by %d writes", len(got), p.writes)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(PatchesKind)
	if err := p.client.Get(t.Context(), types.NamespacedName{Namespace: "edge", Name: "autohealer.web"}, u); err != nil {
		t.Fatal(err)
	}
	ref, _, err := unstructured.NestedStringMap(u.Object, "spec", "targetRef")
	if diff := cmp.Diff(map[string]string{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web"}, ref); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := p.apply(GatewayPatches{Gateway: web, State: lifecycle.Paused}); err != nil {
		t.Fatal(err)
	}
	if err := p.client.Get(t.Context(), client.ObjectKeyFromObject(u), u); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
}

// policy is the stored one that is patched for.
func (p *patcher) policy() (op v1alpha1.OutlierPolicy) {
	p.t.Helper()
	if err := p.client.Get(p.t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, &op); err != nil {
		p.t.Fatal(err)
	}
	return op
}

func TestAPolicyHasTheFinalizerBeforeSomethingIsPatchedForIt(t *testing.T) {
	policy, admitted := admittedOutlier(t, v1alpha1.Enforce)
	p := newPatcher(t)
	g := wants(t, policy, admitted)
	g.State = lifecycle.Paused
	if _, err := p.apply(g); err != nil || len(p.policy().Finalizers) > 0 {
		t.Fatalf("nothing was patched: %v, %v", p.policy().Finalizers, err)
	}
	g.State = lifecycle.Active
	if _, err := p.apply(g); err != nil || !slices.Equal(p.policy().Finalizers, []string{"autohealer.resourcestack.com/undo"}) {
		t.Fatalf("%v, %v", p.policy().Finalizers, err)
	}
	names, err := p.PatchedFor(t.Context(), policy.UID)
	if diff := cmp.Diff([]types.NamespacedName{{Namespace: "edge", Name: "autohealer.web"}}, names); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if names, err = p.PatchedFor(t.Context(), "another"); len(names) > 0 || err != nil {
		t.Error(names, err)
	}
}

func TestTheTrailHasPatchesAndTheirUndo(t *testing.T) {
	policy, admitted := admittedOutlier(t, v1alpha1.Enforce)
	p := newPatcher(t)
	var lines []string
	p.Acts = funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	for _, g := range []GatewayPatches{wants(t, policy, admitted), wants(t, policy, admitted), {Gateway: web, State: lifecycle.Active}} {
		if _, err := p.apply(g); err != nil {
			t.Fatal(err)
		}
	}
	if len(lines) != 2 || !strings.Contains(lines[0], `"verb"="Patch" "reason"="Programmed"`) || !strings.Contains(lines[1], `"verb"="Unpatch" "reason"="NoLongerPatched"`) {
		t.Errorf("%q", lines)
	}
}

func TestNothingIsPatchedForAPolicyThatGoes(t *testing.T) {
	policy, admitted := admittedOutlier(t, v1alpha1.Enforce)
	for name, change := range map[string]func(context.Context, client.Client, *v1alpha1.OutlierPolicy) error{
		"it is gone": func(ctx context.Context, c client.Client, op *v1alpha1.OutlierPolicy) error { return c.Delete(ctx, op) },
		"it is being deleted": func(ctx context.Context, c client.Client, op *v1alpha1.OutlierPolicy) error {
			op.Finalizers = []string{"example.com/keep"}
			return errors.Join(c.Update(ctx, op), c.Delete(ctx, op))
		},
		"another one has its name": func(ctx context.Context, c client.Client, op *v1alpha1.OutlierPolicy) error {
			op.UID = "u2"
			return c.Update(ctx, op)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatcher(t)
			op := p.policy()
			if err := change(t.Context(), p.client, &op); err != nil {
				t.Fatal(err)
			}
			p.writes = 0
			if _, err := p.apply(wants(t, policy, admitted)); err == nil || p.stored() != nil {
				t.Errorf("patched %v: %v", p.stored(), err)
			}
		})
	}
}

// A freeze keeps what the Gateway had that is gone, and nobody writes an owner without a UID.
func TestWhatAGoneGatewayHadStaysAsItIsWhileFrozen(t *testing.T) {
	policy, admitted := admittedOutlier(t, v1alpha1.Enforce)
	p := newPatcher(t)
	if _, err := p.apply(wants(t, policy, admitted)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.apply(GatewayPatches{Gateway: web, State: lifecycle.Frozen}); err != nil || p.writes != 1 {
		t.Errorf("%d writes: %v", p.writes, err)
	}
}

func TestAGatewayIsPatchedForAdmittedPoliciesAlone(t *testing.T) {
	policy, admitted := admittedOutlier(t, v1alpha1.Enforce)
	watching, observing := admittedOutlier(t, v1alpha1.Observe)
	edited, enforced := *policy, *watching
	edited.Generation++
	enforced.Settings.Observe = false
	gone := errors.New("it was replaced")
	for name, c := range map[string]struct {
		policy  *outlier.Policy
		by      AdmittedOutlier
		current error
		want    error
	}{
		"admitted":                         {policy, admitted, nil, nil},
		"admitted to observe":              {watching, observing, nil, nil},
		"nobody admitted it":               {policy, AdmittedOutlier{}, nil, ErrNotValidated},
		"another generation":               {&edited, admitted, nil, ErrNotValidated},
		"admitted only because it watches": {&enforced, observing, nil, ErrNotValidated},
		"no longer what is stored":         {policy, admitted, gone, gone},
		"it can't be confirmed":            {policy, admitted, kube.ErrSuperseded, kube.ErrSuperseded},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatcher(t)
			p.Current = current{c.current}
			held, err := p.apply(wants(t, c.policy, c.by))
			if err != nil || !errors.Is(held["a"], c.want) || !errors.Is(held["b"], c.want) {
				t.Errorf("held %v, %v; want %v", held, err, c.want)
			}
			if is := len(p.stored()) == 2; is != (c.want == nil) {
				t.Errorf("patched: %v", is)
			}
		})
	}
}

func TestWhatIsPatchedStaysWhileItIsInDoubt(t *testing.T) {
	policy, admitted := admittedOutlier(t, v1alpha1.Enforce)
	edited := *policy
	edited.Generation++
	for name, change := range map[string]func(*patcher, *GatewayPatches){
		"a freeze, and nothing is wanted": func(_ *patcher, g *GatewayPatches) { g.State, g.Wanted = lifecycle.Frozen, nil },
		"doubt about clusters of which none is wanted": func(_ *patcher, g *GatewayPatches) {
			g.Wanted, g.Doubtful = nil, func(string) bool { return true }
		},
		"a pause, and an edit": func(_ *patcher, g *GatewayPatches) {
			g.Wanted, g.State = wants(t, &edited, admitted).Wanted, lifecycle.Paused
		},
		"an edit that nobody admitted yet": func(_ *patcher, g *GatewayPatches) { g.Wanted = wants(t, &edited, admitted).Wanted },
		"another replica leads": func(p *patcher, g *GatewayPatches) {
			p.Leads = func() bool { return false }
			g.Wanted = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatcher(t)
			g := wants(t, policy, admitted)
			if _, err := p.apply(g); err != nil {
				t.Fatal(err)
			}
			change(p, &g)
			_, _ = p.apply(g)
			got := p.stored()
			if len(got) != 2 || got["a"].For[0].Generation != policy.Generation {
				t.Errorf("%v is left", got)
			}
		})
	}
}

func TestWhatIsSomebodyElsesIsLeftAlone(t *testing.T) {
	policy, admitted := admittedOutlier(t, v1alpha1.Enforce)
	foreign := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"type": "JSONPatch"}}}
	foreign.SetGroupVersionKind(PatchesKind)
	foreign.SetNamespace("edge")
	foreign.SetName("autohealer.web")
	p := newPatcher(t, foreign)
	for _, g := range []GatewayPatches{wants(t, policy, admitted), {Gateway: web, State: lifecycle.Active}} {
		if _, err := p.apply(g); !errors.Is(err, ErrForeign) || p.writes > 0 {
			t.Errorf("%d writes: %v", p.writes, err)
		}
	}
}
