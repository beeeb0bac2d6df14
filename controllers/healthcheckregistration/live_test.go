package healthcheckregistration

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// seenMaps is a cache with the same ConfigMaps as the API server.
type seenMaps struct{ informertest.FakeInformers }

func (*seenMaps) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return lookedAtMaps.Get(ctx, key, into)
}

func TestWhatTurnsFalseIsReadLive(t *testing.T) {
	for name, c := range map[string]struct {
		was          string
		breaker      bool
		paused       bool
		live, counts bool
	}{
		"True":                                {was: health.ReasonSuccessful, live: true, counts: true},
		"True, while the breaker is open":     {was: health.ReasonSuccessful, breaker: true, live: true},
		"in doubt":                            {was: health.ReasonInDoubt, live: true, counts: true},
		"in doubt, while the breaker is open": {was: health.ReasonInDoubt, breaker: true},
		"True, while all is paused":           {was: health.ReasonSuccessful, paused: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := knowing(t)
			objects := &seenMaps{}
			objects.Scheme = runtime.NewScheme()
			o.Watches = checking.WatchesOf(objects, func(checking.Target) {}, testingclock.NewFakePassiveClock(noon))
			hcr := suspended("r", "v1alpha1", "Mine")
			hcr.Spec.SuspendWhen = ""
			hcr.Spec.Checks[0].Object.Name = "'ill'"
			hcr.Spec.Checks[0].Evaluate = v1alpha1.HealthCheckEvaluator{CEL: &v1alpha1.CELCheck{Healthy: "object.data.is == 'well'"}}
			if c.breaker {
				hcr.Status.Breaker = &v1alpha1.Breaker{ID: "x", OpenedAt: metav1.NewTime(noon)}
			}
			if c.paused {
				o.policies.Pause(guardrail.Policy{Limits: limit.Builtin(), PausedBy: []string{"p"}})
			}
			o.policies.Seen(t.Context(), hcr)
			o.policies.Judge(t.Context(), client.ObjectKeyFromObject(hcr))
			o.results.update(hcr, noon)
			target := withReason(claimed("Mine"), c.was)
			l := lookedAt(t, o, target)
			l.r.Checker = &checking.Checker{Watches: o.Watches, Live: lookedAtMaps, Clock: testingclock.NewFakePassiveClock(noon)}
			layout := health.Layout{Shape: health.Gardener}
			seen := l.plan(t.Context(), layout, nil)
			if seen.turningFalse().Has("Mine") != c.live {
				t.Errorf("by what was seen its steps are %+v", seen.Steps)
			}
			if is := seen.Verdicts["Mine"]; is.Reason == health.ReasonSuccessful {
				t.Errorf("what is ill is %+v", is)
			}
			l.plan(t.Context(), layout, sets.New("Mine"))
			counted := !o.results.mayFail("r", targetNamed("a"), "Mine", false, 10, noon) || !o.results.mayFail("r", targetNamed("b"), "Mine", false, 10, noon)
			if counted != (c.counts || c.breaker) {
				t.Errorf("the breaker counts it: %t", counted)
			}
		})
	}
}

// withReason gives the first condition of an object another reason, and the status that goes with it.
func withReason(o *unstructured.Unstructured, reason string) *unstructured.Unstructured {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	first := list[0].(map[string]any)
	if first["reason"] = reason; reason == health.ReasonInDoubt {
		first["status"] = "Unknown"
		first["message"] = "held at Unknown, because too many targets turn False at once: (0/1) Health checks successful: 1) c: ill isn't healthy"
	}
	o.Object["status"] = map[string]any{"conditions": list}
	return o
}

// asked is an API server that remembers of which objects it was asked.
type asked struct {
	client.Reader
	names sets.Set[string]
}

func (a asked) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	a.names.Insert(key.Name)
	return a.Reader.Get(ctx, key, into, options...)
}

func TestOnlyWhatTurnsFalseIsReadLive(t *testing.T) {
	o := knowing(t)
	objects := &seenMaps{}
	objects.Scheme = runtime.NewScheme()
	o.Watches = checking.WatchesOf(objects, func(checking.Target) {}, testingclock.NewFakePassiveClock(noon))
	hcr := suspended("r", "v1alpha1", "Ill")
	hcr.Spec.SuspendWhen = ""
	hcr.Spec.Checks = nil
	for conditionType, name := range map[string]string{"Ill": "ill", "Well": "well"} {
		hcr.Spec.Checks = append(hcr.Spec.Checks, v1alpha1.HealthCheck{
			Name: name, ConditionType: conditionType, Object: &v1alpha1.HealthCheckObject{APIVersion: "v1", Kind: "ConfigMap", Name: "'" + name + "'"},
			Evaluate: v1alpha1.HealthCheckEvaluator{CEL: &v1alpha1.CELCheck{Healthy: "object.data.is == 'well'"}},
		})
	}
	o.policies.Seen(t.Context(), hcr)
	o.policies.Judge(t.Context(), client.ObjectKeyFromObject(hcr))
	o.results.update(hcr, noon)
	l, live := lookedAt(t, o, claimed("Ill", "Well")), asked{lookedAtMaps, sets.New[string]()}
	l.r.Checker = &checking.Checker{Watches: o.Watches, Live: live, Clock: testingclock.NewFakePassiveClock(noon)}
	p := l.confirmedPlan(t.Context(), health.Layout{Shape: health.Gardener})
	if p.Verdicts["Ill"].Status != health.False || p.Verdicts["Well"].Status != health.True {
		t.Errorf("it plans %+v", p.Verdicts)
	}
	if got := sets.List(live.names); !slices.Equal(got, []string{"ill"}) {
		t.Errorf("the API server was asked for %v", got)
	}
}

// readsLive makes checks of the ConfigMaps that there are.
func readsLive() *checking.Checker {
	by := testingclock.NewFakePassiveClock(noon)
	return &checking.Checker{Watches: checking.WatchesOf(nil, nil, by), Live: lookedAtMaps, Clock: by}
}
