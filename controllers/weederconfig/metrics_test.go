package weederconfig

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

func newQueue(t *testing.T) kube.Queue {
	t.Helper()
	queue := priorityqueue.New[reconcile.Request]("")
	t.Cleanup(queue.ShutDown)
	return queue
}

// scrape is what a metrics endpoint would show of the collectors, without comments.
func scrape(t *testing.T, collectors ...prometheus.Collector) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
	var text strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	return slices.DeleteFunc(strings.Split(text.String(), "\n"), func(line string) bool { return line == "" || strings.HasPrefix(line, "#") })
}

func TestWhatTheMetricsShow(t *testing.T) {
	for _, v := range []interface{ Reset() }{actsTotal, recoveriesTotal, windowsGauge, heldGauge, limitGauge} {
		v.Reset()
	}
	w := newWorld(t)
	w.observe(t.Context(), stored("wc", nil))
	w.attachPods(newQueue(t))
	w.recover()
	w.clock.Step(30 * time.Millisecond)
	w.Report.reportDeletion(w.decided(t, crashing("api-1")), w.clock.Now())
	key := types.NamespacedName{Namespace: ownNamespace, Name: "wc"}
	gaugeStates(key, weeder.Summary{WeederConfigStatus: v1alpha1.WeederConfigStatus{ActiveWindows: 2}, Held: map[weeder.Reason]weeder.HoldCount{"Cooldown": {Pods: 3}}}, false)
	gaugeStates(key, weeder.Summary{WeederConfigStatus: v1alpha1.WeederConfigStatus{ActiveWindows: 1}, Held: map[weeder.Reason]weeder.HoldCount{"Paused": {Pods: 1}}}, true)
	got := scrape(t, actsTotal, recoveriesTotal, windowsGauge, heldGauge, limitGauge, eventsDropped, deletionDelay)
	for _, want := range []string{
		`autohealer_weederconfig_deletions_total{namespace="autohealer-system",policy="wc",result="done",verb="Delete"} 1`,
		`autohealer_weederconfig_recoveries_total{namespace="autohealer-system",policy="wc"} 1`,
		`autohealer_weederconfig_active_windows{namespace="autohealer-system",policy="wc"} 1`,
		`autohealer_weederconfig_held_pods{namespace="autohealer-system",policy="wc",reason="Paused"} 1`,
		`autohealer_weederconfig_limit_reached{namespace="autohealer-system",policy="wc"} 1`,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("lacks %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
	if strings.Contains(strings.Join(got, "\n"), "Cooldown") {
		t.Error("a reason that is over stays")
	}
}

func TestAConfigsCountersBeginAtZero(t *testing.T) {
	actsTotal.Reset()
	recoveriesTotal.Reset()
	gaugeStates(types.NamespacedName{Namespace: "shop", Name: "wc"}, weeder.Summary{}, false)
	is := scrape(t, actsTotal, recoveriesTotal)
	for _, want := range []string{
		`autohealer_weederconfig_recoveries_total{namespace="shop",policy="wc"} 0`,
		`autohealer_weederconfig_deletions_total{namespace="shop",policy="wc",result="refused",verb="Evict"} 0`,
		`autohealer_weederconfig_deletions_total{namespace="shop",policy="wc",result="done",verb="Delete"} 0`,
	} {
		if !slices.Contains(is, want) {
			t.Errorf("lacks %s in %q", want, is)
		}
	}
	for _, evict := range []bool{true, false} {
		for _, result := range []string{"done", "stale", "refused", "failed"} {
			countAct(&weeder.Deletion{Key: types.NamespacedName{Namespace: "shop", Name: "wc"}, Evict: evict}, result)
		}
	}
	if now := scrape(t, actsTotal, recoveriesTotal); len(is) != 9 || len(now) != 9 {
		t.Errorf("%q, and once it acted %q", is, now)
	}
}

// nothing is an API server that has none of what it is asked for.
type nothing struct{ client.WithWatch }

func (nothing) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func TestAConfigThatIsGoneTakesItsSeriesAlong(t *testing.T) {
	actsTotal.Reset()
	heldGauge.Reset()
	w := newWorld(t)
	wc := stored("wc", nil)
	w.observe(t.Context(), wc)
	queue := newQueue(t)
	w.attachConfigs(queue)
	w.recover()
	w.Report.reportDeletion(w.decided(t, crashing("api-1")), w.clock.Now())
	gaugeStates(client.ObjectKeyFromObject(wc), weeder.Summary{Held: map[weeder.Reason]weeder.HoldCount{"Paused": {Pods: 1}}}, false)
	w.policies.Gone(wc)
	request, _ := queue.Get()
	if _, err := (&policy.Keeper[*v1alpha1.WeederConfig]{Steps: w.steps(), Client: nothing{}}).Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if left := scrape(t, actsTotal, heldGauge); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestASecondManagerInAProcessSharesTheMetrics(t *testing.T) {
	for range 2 {
		if err := registerMetrics(); err != nil {
			t.Fatal(err)
		}
	}
}
