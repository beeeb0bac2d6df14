package guardrailexception

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/policy"
)

func TestTheNextLookIsAtTheFirstMomentThatIsStillToCome(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		moments []time.Time
		want    time.Duration
	}{
		"none":                    {[]time.Time{{}, {}}, 0},
		"one that is over":        {[]time.Time{now, now.Add(-time.Hour)}, 0},
		"its end":                 {[]time.Time{now.Add(time.Hour), {}}, time.Hour + time.Millisecond},
		"rights are asked before": {[]time.Time{now.Add(time.Hour), now.Add(time.Minute)}, time.Minute + time.Millisecond},
	} {
		if got := next(now, c.moments...); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestAnExceptionThatIsGoneIsForgotten(t *testing.T) {
	scheme, now, key := runtime.NewScheme(), time.Now(), types.NamespacedName{Name: "x"}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	k := &policy.Keeper[*v1alpha1.GuardrailException]{
		Steps: (&controller{}).steps(), Client: fake.NewClientBuilder().WithScheme(scheme).Build(), Clock: testingclock.NewFakePassiveClock(now),
	}
	activeGauge.WithLabelValues(key.Name).Set(1)
	if _, err := k.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	left := make(chan prometheus.Metric, 10)
	if activeGauge.Collect(left); len(left) != 0 {
		t.Errorf("%d series are left", len(left))
	}
}
