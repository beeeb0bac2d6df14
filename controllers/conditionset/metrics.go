package conditionset

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/metric"
)

// Labels are bounded: policies by name, never nodes.
var (
	actsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_conditionset_taint_changes_total",
		Help: "Changes of node taints, by ConditionSet, verb (Taint, Escalate, Deescalate, Untaint, Repair) and result (done, stale, failed).",
	}, []string{"policy", "verb", "result"})

	actLatency = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "autohealer_conditionset_taint_delay_seconds",
		Help:    "Time from the moment at which a node was due for a taint to the end of the write that set it.",
		Buckets: []float64{.005, .01, .025, .05, .1, .15, .25, .5, 1, 2.5, 5, 15, 60},
	})

	nodesGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_conditionset_nodes",
		Help: "Nodes of a ConditionSet by state: selected, matching, tainted, held (by a limit or the breaker), doubtful.",
	}, []string{"policy", "state"})

	breakerGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_conditionset_breaker_open",
		Help: "1 while a ConditionSet's breaker is open and waits for a reset.",
	}, []string{"policy"})

	limitGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_conditionset_limit_reached",
		Help: "1 while a limit holds back acts of a ConditionSet.",
	}, []string{"policy"})

	eventsDropped = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "autohealer_conditionset_events_dropped_total",
		Help: "Events on single nodes left out because there were too many at once; the audit trail has them.",
	})
)

// limitCollector counts, at each scrape, how much of the limits over all sets is used.
type limitCollector struct{ fleet *condition.Fleet }

var (
	limitUsed = prometheus.NewDesc("autohealer_conditionset_limit_used_nodes",
		"Nodes that a limit over all ConditionSets counts now, by limit (maxTaintedNodes, maxEvictingNodes).", []string{"limit"}, nil)
	limitAllowed = prometheus.NewDesc("autohealer_conditionset_limit_allowed_nodes",
		"Nodes that a limit over all ConditionSets allows now, by limit (maxTaintedNodes, maxEvictingNodes).", []string{"limit"}, nil)
)

// Describe implements prometheus.Collector.
func (limitCollector) Describe(to chan<- *prometheus.Desc) {
	to <- limitUsed
	to <- limitAllowed
}

// Collect implements prometheus.Collector.
func (u limitCollector) Collect(to chan<- prometheus.Metric) {
	if !u.fleet.Synced() {
		return // what is counted so far says nothing
	}
	limits := u.fleet.Limits()
	used := u.fleet.Usage()
	for name, use := range map[string][2]int{
		"maxTaintedNodes":  {used.Tainted, limits.MaxTaintedNodes.Of(used.Total)},
		"maxEvictingNodes": {used.Evicting, limits.MaxEvictingNodes.Of(used.Total)},
	} {
		to <- prometheus.MustNewConstMetric(limitUsed, prometheus.GaugeValue, float64(use[0]), name)
		to <- prometheus.MustNewConstMetric(limitAllowed, prometheus.GaugeValue, float64(use[1]), name)
	}
}

// registerMetrics adds the metrics to the manager's registry; a second manager in one process shares them, but for the
// limits, which are of its own fleet.
func registerMetrics(fleet *condition.Fleet) error {
	use := limitCollector{fleet}
	metrics.Registry.Unregister(use)
	return metric.Register(actsTotal, actLatency, nodesGauge, breakerGauge, limitGauge, eventsDropped, use)
}

func countAct(policy string, step condition.Step, now time.Time) {
	actsTotal.WithLabelValues(policy, string(step.Verb), "done").Inc()
	if !step.Due.IsZero() {
		actLatency.Observe(now.Sub(step.Due).Seconds())
	}
}

func countFailure(policy string, step condition.Step, err error) {
	result := "failed"
	if isStale(err) {
		result = "stale"
	}
	actsTotal.WithLabelValues(policy, string(step.Verb), result).Inc()
}

func gaugeStates(policy string, sum condition.Summary, limited bool) {
	for state, n := range map[string]int{
		"selected": sum.Selected, "matching": sum.Matching, "tainted": sum.Tainted, "held": sum.HeldBack, "doubtful": sum.Doubtful,
	} {
		nodesGauge.WithLabelValues(policy, state).Set(float64(n))
	}
	breakerGauge.WithLabelValues(policy).Set(metric.Bool(sum.Breaker != nil && !sum.Breaker.Reset))
	limitGauge.WithLabelValues(policy).Set(metric.Bool(limited))
}

// forgetStates drops the series of a set that is gone.
func forgetStates(set types.NamespacedName) {
	metric.Forget(prometheus.Labels{"policy": set.Name}, actsTotal, nodesGauge, breakerGauge, limitGauge)
}
