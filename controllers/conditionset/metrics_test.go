package conditionset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/policy"
)

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

type noEvents struct{}

func (noEvents) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}

func TestARecordMayNameWhatItWillWithoutMakingSeries(t *testing.T) {
	actsTotal.Reset()
	eventsDropped.Add(0)
	r := NewReporter(noEvents{}, func(set string) bool { return set == "kernel" })
	untaint := func(set string) condition.Plan {
		return condition.Plan{Node: &condition.Node{Name: "a"}, Steps: []condition.Step{{Verb: "Untaint", SetName: set}}}
	}
	for i := range 100 {
		r.reportActs(untaint(fmt.Sprintf("forged-%d", i)), time.Now())
		r.countFailures(untaint(fmt.Sprintf("forged-%d", i)), errors.New("timeout"))
	}
	r.reportActs(untaint("kernel"), time.Now())
	want := []string{
		`autohealer_conditionset_taint_changes_total{policy="kernel",result="done",verb="Untaint"} 1`,
		`autohealer_conditionset_taint_changes_total{policy="unknown",result="done",verb="Untaint"} 100`,
		`autohealer_conditionset_taint_changes_total{policy="unknown",result="failed",verb="Untaint"} 100`,
	}
	if got := scrape(t, actsTotal); !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

func TestASetsCountersBeginAtZero(t *testing.T) {
	actsTotal.Reset()
	gaugeStates("kernel", condition.Summary{}, false)
	is := scrape(t, actsTotal)
	for _, want := range []string{"done", "failed", "stale"} {
		if !slices.Contains(is, `autohealer_conditionset_taint_changes_total{policy="kernel",result="`+want+`",verb="Escalate"} 0`) {
			t.Errorf("no counter of what is %s in %q", want, is)
		}
	}
	for _, verb := range []condition.Verb{condition.Taint, condition.Escalate, condition.Deescalate, condition.Untaint, condition.Repair} {
		countAct("kernel", condition.Step{Verb: verb}, time.Now())
		countFailure("kernel", condition.Step{Verb: verb}, errors.New("timeout"))
	}
	gaugeStates("kernel", condition.Summary{}, false)
	if now := scrape(t, actsTotal); len(is) != 15 || len(now) != 15 || !slices.Contains(now, `autohealer_conditionset_taint_changes_total{policy="kernel",result="done",verb="Taint"} 1`) {
		t.Errorf("%q, and once it acted %q", is, now)
	}
}

// nothing is an API server that has none of what it is asked for.
type nothing struct{ client.Client }

func (nothing) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func TestASetThatIsGoneTakesItsSeriesAlong(t *testing.T) {
	actsTotal.Reset()
	nodesGauge.Reset()
	countAct("kernel", condition.Step{Verb: "Taint"}, time.Now())
	gaugeStates("kernel", condition.Summary{Selected: 4}, false)
	queue := priorityqueue.New[reconcile.Request]("")
	defer queue.ShutDown()
	observer, _ := watched(t, false)
	observer.policies.Statuses.Attach(queue)

	observer.policies.Gone(&v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: "kernel", UID: "u"}})

	if queue.Len() != 1 {
		t.Fatal("nobody looks at it once more")
	}
	request, _ := queue.Get()
	if _, err := (&policy.Keeper[*v1alpha1.ConditionSet]{Steps: observer.steps(), Client: nothing{}}).Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if left := scrape(t, actsTotal, nodesGauge); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestTheUseOfLimitsIsCountedWhenAsked(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := timing.Moment{Now: now, Server: now}
	fleet := condition.NewFleet(limit.Builtin())
	for i := range 40 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if i < 3 {
			effect := corev1.TaintEffectNoSchedule
			if i == 0 {
				effect = corev1.TaintEffectNoExecute
			}
			node.Spec.Taints = []corev1.Taint{{Key: "example.com/k", Effect: effect}}
			node.Annotations = map[string]string{v1alpha1.AnnotationOwnedTaints: fmt.Sprintf(
				`{"taints":[{"key":"example.com/k","effect":%q,"set":"u","name":"kernel","generation":1,"since":"2026-01-02T03:04:05Z"}]}`, effect)}
		}
		fleet.ObserveNode(node, at)
	}
	if got := scrape(t, limitCollector{fleet}); len(got) > 0 {
		t.Errorf("before all nodes are known it says %q", got)
	}
	fleet.MarkSynced(at)
	want := []string{
		`autohealer_conditionset_limit_allowed_nodes{limit="maxEvictingNodes"} 2`,
		`autohealer_conditionset_limit_allowed_nodes{limit="maxTaintedNodes"} 4`,
		`autohealer_conditionset_limit_used_nodes{limit="maxEvictingNodes"} 1`,
		`autohealer_conditionset_limit_used_nodes{limit="maxTaintedNodes"} 3`,
	}
	if got := scrape(t, limitCollector{fleet}); !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

func TestASecondManagerInAProcessShowsItsOwnLimits(t *testing.T) {
	for range 2 {
		if err := registerMetrics(condition.NewFleet(limit.Builtin())); err != nil {
			t.Fatal(err)
		}
	}
}
