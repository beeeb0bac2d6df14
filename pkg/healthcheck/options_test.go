package healthcheck

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/expfmt"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestASuspendedTargetStaysAsItIs(t *testing.T) {
	newCheck := func() HealthCheck { return &sourced{} }
	r, stored := reconcilerOf(For(gadget).Check("X", "a", newCheck).Check("Old", "a", fine), interceptor.Funcs{})
	look := func(says string) (asked int, result reconcile.Result) {
		t.Helper()
		w := &world{says: says}
		r.runner.seed = w
		result, err := r.Reconcile(t.Context(), ofG)
		if err != nil {
			t.Fatal(err)
		}
		return w.asked, result
	}
	look("True")
	sleeps := true
	r.Registration = For(gadget, WithoutConditions("Old"), WithSuspended(func(o client.Object) bool { return sleeps && o.GetName() == "g" })).Check("X", "a", newCheck)
	if asked, result := look("False"); asked != 0 || result.RequeueAfter < 30*time.Second || result.RequeueAfter > 33*time.Second {
		t.Errorf("its check is run %d times, and again in %s", asked, result.RequeueAfter)
	}
	for _, conditionType := range []string{"X", "Old"} {
		if got := conditionOf(t, stored, conditionType); got != "True: (1/1) Health checks successful" {
			t.Errorf("while it is suspended, %s is %s", conditionType, got)
		}
	}
	sleeps = false
	look("False")
	if x, old := conditionOf(t, stored, "X"), conditionOf(t, stored, "Old"); !strings.HasPrefix(x, "False: ") || old != "none" {
		t.Errorf("once it isn't, X is %s, Old is %s", x, old)
	}
}

func TestTargetsOfATypeAreReadAndCountedAsSuch(t *testing.T) {
	built := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithStatusSubresource(&appsv1.Deployment{})
	for i := range 15 {
		d := &appsv1.Deployment{}
		d.Namespace, d.Name, d.UID = "a", fmt.Sprint("d", i), types.UID(fmt.Sprint(i))
		if d.Spec.Paused = i == 0; !d.Spec.Paused {
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: "X", Status: "True", Reason: "HealthCheckSuccessful", Message: "(1/1) Health checks successful"}}
		}
		built = built.WithObjects(d)
	}
	stored, asked := built.Build(), sets.New[string]()
	paused := func(o client.Object) bool { return o.(*appsv1.Deployment).Spec.Paused }
	typed := WithObject(func() client.Object { return &appsv1.Deployment{} })
	r, _ := reconcilerOf(For(deployment, typed, WithSuspended(paused)).Check("X", "a", func() HealthCheck { return &sourced{} }), interceptor.Funcs{})
	r.scheme, r.runner.seed, r.writer.client, r.writer.live = scheme.Scheme, &world{says: "False"}, stored, stored
	r.reader = interceptor.NewClient(stored, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			asked.Insert(fmt.Sprintf("%T", into))
			return c.Get(ctx, key, into, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
			asked.Insert(fmt.Sprintf("%T", into))
			return c.List(ctx, into, options...)
		},
	})
	var are []string
	for i := range 5 {
		key := client.ObjectKey{Namespace: "a", Name: fmt.Sprint("d", i)}
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		d := &appsv1.Deployment{}
		if err := stored.Get(t.Context(), key, d); err != nil {
			t.Fatal(err)
		}
		is := "as before"
		for _, c := range d.Status.Conditions {
			is = string(c.Type + " " + appsv1.DeploymentConditionType(c.Status))
		}
		are = append(are, is)
	}
	// A fifth of fifteen are believed.
	if want := []string{"as before", "X False", "X False", "X False", "X Unknown"}; !slices.Equal(are, want) {
		t.Errorf("one that is suspended and four that fail are %q", are)
	}
	if got := sets.List(asked); !slices.Equal(got, []string{"*v1.Deployment", "*v1.DeploymentList"}) {
		t.Errorf("the cache is asked for %q", got)
	}
}

// telling is a cache with what a client has, whose news the test tells.
type telling struct {
	*informertest.FakeInformers
	of client.Client
}

// Get reads from the client.
func (c telling) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return c.of.Get(ctx, key, into, options...)
}

// List reads from the client.
func (c telling) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	return c.of.List(ctx, into, options...)
}

// started runs a registration about Gadgets with a manager, and gives what tells of one.
func started(t *testing.T, registration *Registration, stored client.Client) (tell func(metav1.Object)) {
	t.Helper()
	kinds, informers := meta.NewDefaultRESTMapper(nil), &informertest.FakeInformers{Scheme: runtime.NewScheme()}
	kinds.Add(gadget, meta.RESTScopeNamespace)
	mgr, err := ctrl.NewManager(&rest.Config{Host: "https://seed.example.org"}, ctrl.Options{
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return kinds, nil },
		NewCache:       func(*rest.Config, cache.Options) (cache.Cache, error) { return telling{informers, stored}, nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return stored, nil },
		Metrics:        server.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := registration.AddToManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return informers.InformersByGVK[gadget].(*controllertest.FakeInformer).Add
}

// ofTarget is a check of the target's name.
type ofTarget func(name string) *SingleCheckResult

// Check asks it.
func (f ofTarget) Check(_ context.Context, target types.NamespacedName) (*SingleCheckResult, error) {
	return f(target.Name), nil
}

func TestWhatFiltersLetThroughIsCheckedSoManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var looked []string
		release := make(chan struct{})
		ill := ofTarget(func(name string) *SingleCheckResult {
			mu.Lock()
			looked = append(looked, name)
			mu.Unlock()
			<-release
			return &SingleCheckResult{Status: ConditionFalse}
		})
		awake := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()["sleeps"] == "" })
		unnamed := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() != "by-name" })
		var all []client.Object
		for _, name := range []string{"sleeps", "by-name", "other-type", "other-class", "1", "2", "3", "4", "5"} {
			g := untyped(gadget)
			g.SetNamespace("a")
			g.SetName(name)
			g.SetUID(types.UID(name))
			g.Object["spec"] = map[string]any{"type": "few", "class": "seed"}
			wasWell(g)
			switch name {
			case "sleeps":
				g.SetLabels(map[string]string{"sleeps": "1"})
			case "other-type":
				g.Object["spec"] = map[string]any{"type": "many", "class": "seed"}
			case "other-class":
				g.Object["spec"] = map[string]any{"type": "few"}
			}
			all = append(all, g)
		}
		stored := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(all...).WithStatusSubresource(untyped(gadget)).Build()
		tell := started(t, For(gadget, WithType("few"), WithClasses("seed", "garden"), WithPredicates(awake, unnamed), WithConcurrency(2), WithSeedClient(stored)).
			Check("X", "a", func() HealthCheck { return ill }), stored)
		for _, g := range all {
			tell(g)
		}
		synctest.Wait()
		if len(looked) != 2 {
			t.Errorf("at once, %q are looked at", looked)
		}
		close(release)
		synctest.Wait()
		if slices.Sort(looked); !slices.Equal(looked, []string{"1", "2", "3", "4", "5"}) {
			t.Errorf("%q are looked at", looked)
		}
		if got := scraped(t); !slices.Contains(got, `autohealer_healthcheck_breaker_open{controller="healthcheck-gadget.example.org-few-seed-garden",extension="few",kind="Gadget"} 1`) {
			t.Errorf("once all are ill, the metrics are %q", got)
		}
	})
}

// scraped is what the program's metrics endpoint shows of health checks.
func scraped(t *testing.T) []string {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "autohealer_healthcheck_") {
			if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	return strings.Split(text.String(), "\n")
}
