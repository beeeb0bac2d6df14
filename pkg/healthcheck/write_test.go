package healthcheck

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

// seenAs is a cache that has the target as it was.
type seenAs struct {
	client.Reader
	was *unstructured.Unstructured
}

func (s seenAs) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.was.DeepCopyInto(into.(*unstructured.Unstructured))
	return nil
}

// guarding answers as an API server does where a guard doesn't hold.
var guarding = interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	if err := c.SubResource(sub).Patch(ctx, o, patch, options...); err != nil {
		return byGuard
	}
	return nil
}}

// The leader before us has written True, the cache has neither that nor what the dependents are like by now.
func TestATargetThatWasSeenTooLateTurnsFalseOnlyByWhatIsThereNow(t *testing.T) {
	for live, want := range map[string]string{"True": "True: ", "False": "False: ", "an error": "Unknown: "} {
		t.Run(live, func(t *testing.T) {
			r, stored := reconcilerOf(For(gadget).Check("X", "a", func() HealthCheck { return &sourced{} }), guarding)
			look := func(cached, now string) int {
				t.Helper()
				w := &world{says: now}
				r.runner.seed, r.runner.live = &world{says: cached, detail: cached + " in the cache"}, w
				if _, err := r.Reconcile(t.Context(), ofG); err != nil {
					t.Fatal(err)
				}
				return w.asked
			}
			look("False", "False")
			was := untyped(gadget)
			if err := stored.Get(t.Context(), ofG.NamespacedName, was); err != nil {
				t.Fatal(err)
			}
			look("True", "True")
			r.reader = seenAs{r.reader, was}
			if asked := look("False", live); asked != 1 {
				t.Errorf("the API server is asked %d times", asked)
			}
			if got := conditionOf(t, stored, "X"); !strings.HasPrefix(got, want) {
				t.Errorf("it is %s", got)
			}
		})
	}
}

func TestABreakerThatIsResetMeanwhileBelievesNothingUnconfirmed(t *testing.T) {
	r, stored := reconcilerOf(For(gadget).Check("X", "a", func() HealthCheck { return &sourced{} }), interceptor.Funcs{})
	for _, target := range []string{"b/1", "b/2", "b/3"} {
		r.writer.breaker.state.AllowFalse(target, "X", false, 3, r.clock.Now())
	}
	target := untyped(gadget)
	if err := stored.Get(t.Context(), ofG.NamespacedName, target); err != nil {
		t.Fatal(err)
	}
	r.runner.seed, r.runner.live = &world{says: "False"}, &world{says: "True"}
	g := r.runChecks(t.Context(), target, "X", r.checks)
	opened, _ := r.writer.breaker.state.Opening()
	r.writer.breaker.state.Reset(opened.ID, r.clock.Now())
	if _, _, err := r.writer.write(t.Context(), g.in, g.confirm); err != nil {
		t.Fatal(err)
	}
	if got := conditionOf(t, stored, "X"); !strings.HasPrefix(got, "True: ") {
		t.Errorf("it is %s", got)
	}
}

// pruning has an API server drop a field of each condition, or all conditions.
func pruning(field string, patches *int) interceptor.Funcs {
	return interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
		*patches++
		if err := c.SubResource(sub).Patch(ctx, o, patch, options...); err != nil {
			return err
		}
		stored := o.(*unstructured.Unstructured)
		list, _, _ := unstructured.NestedSlice(stored.Object, "status", "conditions")
		for _, item := range list {
			delete(item.(map[string]any), field)
		}
		if field == "" {
			list = nil
		}
		if err := unstructured.SetNestedSlice(stored.Object, list, "status", "conditions"); err != nil {
			return err
		}
		return c.SubResource(sub).Update(ctx, o)
	}}
}

func TestCodesThatAKindDoesNotKeepAreWrittenOnceAnHour(t *testing.T) {
	patches, now := 0, testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	coded := func(context.Context) (*SingleCheckResult, error) {
		return &SingleCheckResult{Status: ConditionFalse, Detail: "quota", Codes: []string{"ERR_INFRA_QUOTA_EXCEEDED"}}, nil
	}
	registration := For(gadget).Check("X", "a", func() HealthCheck { return checkFunc(coded) })
	registration.clock = now
	r, _ := reconcilerOf(registration, pruning("codes", &patches))
	for _, want := range []int{1, 2} {
		for range 3 {
			if _, err := r.Reconcile(t.Context(), ofG); err != nil {
				t.Fatal(err)
			}
		}
		if patches != want {
			t.Errorf("it writes %d times, not %d", patches, want)
		}
		now.Step(time.Hour)
	}
}

func TestAKindThatTakesNoConditionsIsToldOf(t *testing.T) {
	patches := 0
	none := interceptor.Funcs{SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
		return apierrors.NewNotFound(schema.GroupResource{Group: "example.org", Resource: "gadgets"}, "g")
	}}
	for want, funcs := range map[string]interceptor.Funcs{
		"the schema of Gadget has no such status.conditions":           pruning("", &patches),
		"the target is there, but has no status of its own to write: ": none,
	} {
		r, _ := reconcilerOf(For(gadget).Check("X", "a", fine), funcs)
		if _, err := r.Reconcile(t.Context(), ofG); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
}

// connections counts which are forgotten.
type connections struct {
	theShoot
	forgotten *[]string
}

// Forget takes it in.
func (c connections) Forget(namespace string) { *c.forgotten = append(*c.forgotten, namespace) }

func TestTheConnectionToAShootGoesWithItsTarget(t *testing.T) {
	var forgotten []string
	r, stored := reconcilerOf(For(gadget).Check("X", "a", fine), interceptor.Funcs{})
	r.runner.shoots = connections{forgotten: &forgotten}
	look := func() {
		if _, err := r.Reconcile(t.Context(), ofG); err != nil {
			t.Fatal(err)
		}
	}
	if look(); len(forgotten) > 0 {
		t.Errorf("while it is there: %q", forgotten)
	}
	target := untyped(gadget)
	target.SetNamespace("a")
	target.SetName("g")
	if err := stored.Delete(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	if look(); len(forgotten) != 1 || forgotten[0] != "a" {
		t.Errorf("once it is gone: %q", forgotten)
	}
}

func TestControllersHaveNamesOfTheirOwn(t *testing.T) {
	for want, r := range map[string]*Registration{
		"healthcheck-gadget.example.org":              For(gadget),
		"healthcheck-gadget.example.org-aws":          For(gadget, WithType("aws")),
		"healthcheck-gadget.example.org-aws-garden":   For(gadget, WithType("aws"), WithClasses("garden")),
		"healthcheck-gadget.example.org-shoot-garden": For(gadget, WithClasses("shoot", "garden")),
	} {
		if got := r.controllerName(); got != want {
			t.Errorf("it is %s, not %s", got, want)
		}
	}
}

// sees has the reconciler's checks see something, in the cache and now, and the target looked at.
func sees(t *testing.T, r *reconciler, what string) {
	t.Helper()
	r.runner.seed, r.runner.live = &world{says: what}, &world{says: what}
	if _, err := r.Reconcile(t.Context(), ofG); err != nil {
		t.Fatal(err)
	}
}

func TestWhatSomebodyElseKeepsWritingIsLeftForAWhile(t *testing.T) {
	r, stored := reconcilerOf(For(gadget).Check("X", "a", func() HealthCheck { return &sourced{} }), interceptor.Funcs{})
	sees(t, r, "True")
	theirs, writes := conditionOf(t, stored, "X"), 0
	for range 50 {
		sees(t, r, "False")
		is := conditionOf(t, stored, "X")
		if is == theirs {
			continue
		}
		if writes++; !strings.HasPrefix(is, "False: (0/1)") {
			t.Errorf("it is written as %q", is)
		}
		g := untyped(gadget)
		if err := stored.Get(t.Context(), ofG.NamespacedName, g); err != nil {
			t.Fatal(err)
		}
		wasWell(g)
		if err := stored.Status().Update(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	if writes != 2 { // and put right once
		t.Errorf("it is written %d times", writes)
	}
}

func TestWhatARegistrationDecidesIsLeftAlone(t *testing.T) {
	r, stored := reconcilerOf(For(gadget).Check("X", "a", func() HealthCheck { return &sourced{} }).Check("Y", "a", func() HealthCheck { return &sourced{} }), interceptor.Funcs{})
	claim := func(conditionTypes string) {
		t.Helper()
		g := untyped(gadget)
		if err := stored.Get(t.Context(), ofG.NamespacedName, g); err != nil {
			t.Fatal(err)
		}
		g.SetAnnotations(map[string]string{"autohealer.resourcestack.com/owned-conditions": conditionTypes})
		if err := stored.Update(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	claim("X,Y,Z")
	asked := &world{says: "True"}
	r.runner.seed = asked
	if _, err := r.Reconcile(t.Context(), ofG); err != nil || asked.asked > 0 {
		t.Errorf("of a target all of whose conditions are claimed %d checks are asked: %v", asked.asked, err)
	}
	claim("X,Z")
	sees(t, r, "True")
	if x, y := conditionOf(t, stored, "X"), conditionOf(t, stored, "Y"); x != "none" || !strings.HasPrefix(y, "True") {
		t.Errorf("claimed is X, which is %q, and not Y, which is %q", x, y)
	}
	claimed := untyped(gadget)
	if err := stored.Get(t.Context(), ofG.NamespacedName, claimed); err != nil {
		t.Fatal(err)
	}
	late := health.Input{Target: claimed, Results: map[string][]health.Result{"X": {{Status: health.True}}}}
	if _, _, err := r.writer.write(t.Context(), late, nil); err != nil || conditionOf(t, stored, "X") != "none" {
		t.Errorf("a claim that comes while checks run is overlooked: %v", err)
	}
	claim("")
	sees(t, r, "True")
	if x := conditionOf(t, stored, "X"); !strings.HasPrefix(x, "True") {
		t.Errorf("once nobody claims it, it is %q", x)
	}
}

// The failed write of a doubt is no recovery.
func TestABreakerWhoseDoubtIsNotWrittenStaysOpen(t *testing.T) {
	fails := false
	refuses := interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
		if fails {
			return errors.New("no")
		}
		return c.SubResource(sub).Patch(ctx, o, patch, options...)
	}}
	r, _ := reconcilerOf(For(gadget).Check("X", "a", func() HealthCheck { return &sourced{} }), refuses)
	sees(t, r, "True")
	for _, target := range []string{"b/1", "b/2"} {
		r.writer.breaker.state.AllowFalse(target, "X", false, 3, r.clock.Now())
	}
	fails = true
	r.runner.seed, r.runner.live = &world{says: "False"}, &world{says: "False"}
	if _, err := r.Reconcile(t.Context(), ofG); err == nil {
		t.Fatal("the write doesn't fail")
	}
	if !r.writer.breaker.open() {
		t.Error("it is closed")
	}
	fails = false
	sees(t, r, "an error")
	if !r.writer.breaker.open() {
		t.Error("it closes since nobody can know how the target is")
	}
	sees(t, r, "True")
	if r.writer.breaker.open() {
		t.Error("it is open, and nothing is in doubt")
	}
}
