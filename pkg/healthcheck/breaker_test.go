package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

var dawn = time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)

// failing are targets that were well, and aren't any more.
func failing(t *testing.T, n int) []*unstructured.Unstructured {
	t.Helper()
	all := make([]*unstructured.Unstructured, n)
	for i := range all {
		all[i] = &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": fmt.Sprint("t", i)}}}
		wasWell(all[i])
	}
	return all
}

func wasWell(target *unstructured.Unstructured) {
	entry := map[string]any{"type": "X", "status": "True", "reason": "HealthCheckSuccessful", "message": "(1/1) Health checks successful"}
	target.Object["status"] = map[string]any{"conditions": []any{entry}}
}

// judging gives a breaker, and judges targets whose only check of X is False.
func judging(all []*unstructured.Unstructured) (*breaker, func(target *unstructured.Unstructured) health.Condition) {
	b := &breaker{
		listTargets: func(context.Context) ([]*unstructured.Unstructured, error) { return all, nil },
		checked:     func(context.Context, types.NamespacedName) bool { return true },
		checks:      []check{{conditionType: "X"}}, clock: testingclock.NewFakePassiveClock(dawn),
	}
	return b, func(target *unstructured.Unstructured) health.Condition {
		b.checkReset(context.Background(), target)
		p := health.PlanTarget(health.Input{
			Target: target, Shape: health.Gardener, Results: map[string][]health.Result{"X": {{Check: "a", Status: health.False, Detail: "ill"}}},
			AllowFalse: func(conditionType string, doubted bool) bool {
				return b.allowFalse(context.Background(), types.NamespacedName{Name: target.GetName()}, conditionType, doubted)
			},
			ResetHint: b.resetHint,
		}, dawn)
		if len(p.Steps) == 0 {
			return health.Condition{}
		}
		c := p.Steps[0].Condition
		entry := map[string]any{"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message}
		target.Object["status"] = map[string]any{"conditions": []any{entry}}
		if at := b.recordVerdicts(types.NamespacedName{Name: target.GetName()}, p); (c.Reason == health.ReasonInDoubt) != at.Equal(dawn.Add(time.Minute)) {
			panic(fmt.Sprintf("%s is looked at again at %s", c.Reason, at))
		}
		return c
	}
}

func valueOf(t *testing.T, b *breaker) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(b.gauge(nil))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families[0].GetMetric()[0].GetGauge().GetValue()
}

func TestManyTargetsThatTurnFalseTogetherAreNotBelieved(t *testing.T) {
	all := failing(t, 10)
	b, judge := judging(all)
	for i, target := range all {
		c := judge(target)
		if told := valueOf(t, b); (told == 1) != (i >= 2) {
			t.Errorf("after the %dth the metric is %v", i+1, told)
		}
		if i < 2 && c.Status != health.False {
			t.Errorf("the %dth is %s", i+1, c.Status)
		}
		if i >= 2 && (c.Status != health.Unknown || c.Reason != "HealthCheckInDoubt" ||
			!strings.HasSuffix(c.Message, "annotate this object with autohealer.resourcestack.com/reset-breaker=20261122t060000000000z")) {
			t.Errorf("the %dth is %s: %s", i+1, c.Status, c.Message)
		}
	}

	b, judge = judging(all) // the program starts anew
	if c := judge(all[9]); c.Status != "" || valueOf(t, b) != 1 {
		t.Errorf("after a restart it becomes %s: %s; metric %v", c.Status, c.Message, valueOf(t, b))
	}
	all[5].SetAnnotations(map[string]string{"autohealer.resourcestack.com/reset-breaker": "20261121t060000z"})
	if c := judge(all[5]); c.Status != "" {
		t.Errorf("by the reset of another opening it becomes %s", c.Status)
	}
	for _, target := range all[2:] {
		judge(target) // as each is within a minute
	}
	all[5].SetAnnotations(map[string]string{"autohealer.resourcestack.com/reset-breaker": "20261122t060000000000z"})
	for _, target := range append(all[5:6:6], append(all[2:5:5], all[6:]...)...) {
		if c := judge(target); c.Status != health.False {
			t.Errorf("after the reset %s is %s: %s", target.GetName(), c.Status, c.Message)
		}
	}
	if told := valueOf(t, b); told != 0 {
		t.Errorf("after the reset the metric is %v", told)
	}
}

func TestAResetWhileNoProgramRunsHolds(t *testing.T) {
	all := failing(t, 20)
	_, judge := judging(all)
	for _, target := range all[:12] {
		judge(target)
	}
	all[0].SetAnnotations(map[string]string{"autohealer.resourcestack.com/reset-breaker": "20261122t060000000000z"})
	_, judge = judging(all)
	for _, target := range all[4:12] {
		if c := judge(target); c.Status != health.False {
			t.Errorf("%s, which was in doubt, is %s: %s", target.GetName(), c.Status, c.Message)
		}
	}
	for i, target := range all[12:17] {
		if c := judge(target); (c.Status == health.False) != (i < 4) {
			t.Errorf("the %dth of a new wave is %s: %s", i+1, c.Status, c.Message)
		}
	}
}

func TestAnOldDoubtOnWhatIsNotCheckedOpensNothing(t *testing.T) {
	all := failing(t, 10)
	_, judge := judging(all)
	for _, target := range all {
		judge(target)
	}
	sleeps := all[9]
	for _, target := range all[:9] { // reset and well again; of the reset nothing is left
		wasWell(target)
	}
	b, judge := judging(all)
	b.checked = func(_ context.Context, target types.NamespacedName) bool { return target.Name != sleeps.GetName() }
	if c := judge(all[0]); c.Status != health.False {
		t.Errorf("while one that was in doubt isn't checked, another is %s: %s", c.Status, c.Message)
	}
	_, judge = judging(all)
	if c := judge(all[1]); c.Status != health.Unknown {
		t.Errorf("while one that is in doubt is checked, another is %s: %s", c.Status, c.Message)
	}
}

func TestAnEarlierOpeningIsNotTakenOverFromUnderALaterReset(t *testing.T) {
	all := failing(t, 3)
	for i, id := range []string{"20261122t010000000000z", "20261122t020000000000z"} {
		message := "held at Unknown, because too many targets turn False at once: (0/1) Health checks successful: 1) a: ill" + resetHintPrefix + id
		all[i].Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "X", "status": "Unknown", "reason": "HealthCheckInDoubt", "message": message}}}
	}
	all[2].SetAnnotations(map[string]string{"autohealer.resourcestack.com/reset-breaker": "20261122t020000000000z"}) // it named the first before
	_, judge := judging(all)
	for _, target := range all {
		if c := judge(target); c.Status != health.False {
			t.Errorf("%s is %s: %s", target.GetName(), c.Status, c.Message)
		}
	}
}

func TestABreakerIsTakenOverOnceTargetsAreRead(t *testing.T) {
	all := failing(t, 10)
	_, judge := judging(all)
	for _, target := range all {
		judge(target)
	}
	b, judge := judging(all)
	read := b.listTargets
	b.listTargets = func(context.Context) ([]*unstructured.Unstructured, error) { return nil, errors.New("no") }
	clock := testingclock.NewFakePassiveClock(dawn)
	b.clock = clock
	wasWell(all[0])
	judge(all[0])
	b.listTargets = read
	clock.SetTime(dawn.Add(recountPeriod))
	b.checkReset(t.Context(), all[1])
	if b.allowFalse(t.Context(), types.NamespacedName{Name: "t1"}, "X", false) {
		t.Error("what an earlier program left open is forgotten after targets couldn't be read")
	}
}

func TestAResetOnASuspendedTargetIsFollowed(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gadget"}
	gadget := &unstructured.Unstructured{}
	gadget.SetGroupVersionKind(kind)
	gadget.SetName("t3")
	gadget.SetAnnotations(map[string]string{"autohealer.resourcestack.com/reset-breaker": "20261122t060000000000z"})
	all := failing(t, 10)
	b, judge := judging(all)
	for _, target := range all {
		judge(target)
	}
	r := &reconciler{
		Registration: For(kind, WithSuspended(func(client.Object) bool { return true })), reader: fake.NewClientBuilder().WithObjects(gadget).Build(),
		writer: &writer{breaker: b}, runner: &runner{shoots: theShoot{}, refs: &refs{}},
	}
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "t3"}}); err != nil {
		t.Fatal(err)
	}
	if _, open := b.state.Opening(); open {
		t.Error("the breaker is open")
	}
}

func TestWhatIsChecked(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gadget"}
	gadget := &unstructured.Unstructured{}
	gadget.SetGroupVersionKind(kind)
	gadget.SetName("g")
	named := func(name string) predicate.Predicate {
		return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == name })
	}
	for name, c := range map[string]struct {
		of      string
		options []Option
		want    bool
	}{
		"a target":                      {"g", nil, true},
		"one that is gone":              {"h", nil, false},
		"a suspended one":               {"g", []Option{WithSuspended(func(o client.Object) bool { return o.GetName() == "g" })}, false},
		"beside a suspended one":        {"g", []Option{WithSuspended(func(o client.Object) bool { return o.GetName() == "h" })}, true},
		"one that a predicate refuses":  {"g", []Option{WithPredicates(named("g"), named("h"))}, false},
		"one that all predicates admit": {"g", []Option{WithPredicates(named("g"))}, true},
	} {
		r := &reconciler{Registration: For(kind, c.options...), reader: fake.NewClientBuilder().WithObjects(gadget).Build()}
		if is := r.checked(t.Context(), types.NamespacedName{Name: c.of}); is != c.want {
			t.Errorf("%s is checked: %t", name, is)
		}
	}
}

func TestARecoveryThatIsSeenCountsAnew(t *testing.T) {
	all := failing(t, 10)
	b, judge := judging(all)
	for _, target := range all {
		judge(target)
	}
	w := &writer{shape: health.Gardener, clock: b.clock, breaker: b}
	for _, target := range all { // as people, or another program, made it meanwhile
		wasWell(target)
		well := map[string][]health.Result{"X": {{Check: "a", Status: health.True}}}
		if _, _, err := w.write(context.Background(), health.Input{Target: target, Shape: w.shape, Results: well}, nil); err != nil {
			t.Fatal(err)
		}
	}
	all[5].SetAnnotations(map[string]string{"autohealer.resourcestack.com/reset-breaker": "20261122t060000000000z"})
	b.checkReset(context.Background(), all[5])
	all[5].SetAnnotations(nil) // the clock stands still, and the next opening has the same id
	for i, target := range all {
		if c := judge(target); (c.Status == health.False) != (i < 2) {
			t.Errorf("the %dth of a new outage is %s: %s", i+1, c.Status, c.Message)
		}
	}
}

func TestAWriteThatFailsLeavesOtherConditionsCounted(t *testing.T) {
	all := failing(t, 3)
	b, judge := judging(all)
	refuses := interceptor.Funcs{SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
		return errors.New("no")
	}}
	w := &writer{client: fake.NewClientBuilder().WithInterceptorFuncs(refuses).Build(), shape: health.Gardener, clock: b.clock, breaker: b}
	for _, target := range all[:2] {
		judge(target)
		ill := map[string][]health.Result{"Y": {{Check: "b", Status: health.False, Detail: "ill"}}}
		if _, _, err := w.write(context.Background(), health.Input{Target: target.DeepCopy(), Shape: w.shape, Results: ill}, nil); err == nil {
			t.Fatal("the write of Y doesn't fail")
		}
	}
	if c := judge(all[2]); c.Status != health.Unknown {
		t.Errorf("the third of three is %s: %s", c.Status, c.Message)
	}
}

func TestTheBreakerClosesOnceNothingIsInDoubt(t *testing.T) {
	all := failing(t, 10)
	_, judge := judging(all)
	for _, target := range all {
		judge(target)
	}
	b, judge := judging(all) // a new program
	judge(all[9])
	well := func(name string) {
		b.state.RecordVerdict("/"+name, "X", health.Verdict{Status: health.True})
		b.closeIfClear(t.Context())
	}
	for i, target := range all[2:9] {
		well(target.GetName())
		if !b.open() || valueOf(t, b) != 1 {
			t.Fatalf("it is closed after the %dth of 8", i+1)
		}
	}
	b.forget(t.Context(), types.NamespacedName{Name: "t9"})
	if told := valueOf(t, b); b.open() || told != 0 {
		t.Errorf("once nothing is in doubt it is open: %t, and the metric is %v", b.open(), told)
	}
}
