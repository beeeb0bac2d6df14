package conditionset

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/metric"
	"github.com/resourcestack/autohealer/internal/policy"
)

// Reporter reports acts as Events and metrics.
type Reporter struct {
	Events   events.EventRecorder
	acts     *actuate.Events
	isStored func(set string) bool
	broken   brokenRecords
}

// NewReporter reports to a recorder; isStored says whether a set of a name is stored.
func NewReporter(recorder events.EventRecorder, isStored func(set string) bool) *Reporter {
	dropped := func(events int) { eventsDropped.Add(float64(events)) }
	return &Reporter{Events: recorder, acts: actuate.NewEvents(recorder, dropped), isStored: isStored}
}

// reportActs reports an applied plan, on the node and on each set.
func (r *Reporter) reportActs(plan condition.Plan, now time.Time) {
	for _, step := range plan.Steps {
		countAct(r.policyLabel(step.SetName), step, now)
		if step.Verb == condition.Repair {
			continue
		}
		reason, note := actEvent(plan.Node.Name, step)
		r.acts.Emit(now, nodeRef(plan.Node), setRef(step), reason, string(step.Verb), note)
	}
}

// countFailures counts a write that failed; the controller logs the error itself.
func (r *Reporter) countFailures(plan condition.Plan, err error) {
	for _, step := range plan.Steps {
		countFailure(r.policyLabel(step.SetName), step, err)
	}
}

// policyLabel bounds the series: an undo has its set's name from the node's record, which may say anything.
func (r *Reporter) policyLabel(set string) string {
	if !r.isStored(set) {
		return "unknown"
	}
	return set
}

func actEvent(node string, step condition.Step) (reason, note string) {
	switch step.Verb {
	case condition.Taint:
		return v1alpha1.ReasonTainted, fmt.Sprintf("ConditionSet %s taints node %s with %s:%s: its conditions match", step.SetName, node, step.Key, step.To)
	case condition.Escalate:
		return v1alpha1.ReasonTainted, fmt.Sprintf("ConditionSet %s raises taint %s of node %s from %s to %s: %s", step.SetName, step.Key, node, step.From, step.To, reasonText(step.Reason))
	case condition.Deescalate:
		return v1alpha1.ReasonUntainted, fmt.Sprintf("ConditionSet %s lowers taint %s of node %s from %s to %s: %s", step.SetName, step.Key, node, step.From, step.To, reasonText(step.Reason))
	default:
		return v1alpha1.ReasonUntainted, fmt.Sprintf("ConditionSet %s no longer asks for taint %s:%s on node %s: %s", step.SetName, step.Key, step.From, node, reasonText(step.Reason))
	}
}

var reasonTexts = map[condition.Reason]string{
	condition.Recovered:        "its conditions recovered",
	condition.NoLongerSelected: "the set no longer selects it",
	condition.KeyChanged:       "the set has another taintKey now",
	condition.EffectChanged:    "the set asks for another effect now",
	condition.PolicyWithdrawn:  "the set was deleted or only observes",
	condition.TaintRestored:    "someone else removed it",
	condition.NoLongerHeld:     "nothing holds the higher effect back any more",
	condition.EvictAfterOver:   "evictAfter has passed",
	condition.RecordInvalid:    "the record claimed a taint that Autohealer didn't set",
}

func reasonText(reason condition.Reason) string {
	if w, ok := reasonTexts[reason]; ok {
		return w
	}
	return string(reason)
}

func nodeRef(n *condition.Node) *corev1.Node {
	return &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID}}
}

func setRef(step condition.Step) *v1alpha1.ConditionSet {
	return &v1alpha1.ConditionSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ConditionSet"},
		ObjectMeta: metav1.ObjectMeta{Name: step.SetName, UID: step.Set},
	}
}

// brokenRecords are the unreadable records that were reported, by node: each is reported once, and not with each reconciliation. It is
// safe for concurrent use.
type brokenRecords struct{ reported sync.Map }

// isNew says whether a node's record, "" for one that can be read, wasn't reported yet.
func (b *brokenRecords) isNew(node, record string) bool {
	if record == "" {
		b.reported.Delete(node)
		return false
	}
	was, _ := b.reported.Swap(node, record)
	return was != record
}

// reportBrokenRecord reports a node whose record can't be read, by an Event and in the log. node is nil for a deleted one.
func (r *Reporter) reportBrokenRecord(ctx context.Context, name string, node *condition.Node, fleet *condition.Fleet) {
	if node == nil || !node.RecordBroken {
		r.broken.isNew(name, "")
		return
	}
	text, _ := node.Record()
	if !r.broken.isNew(name, string(node.UID)+" "+text) {
		return
	}
	is, broken := fleet.BrokenRecord(name)
	if !broken { // repaired by now
		return
	}
	_, err := condition.ParseOwnership(text)
	log.FromContext(ctx).Error(err, "The record on a node can't be read; nothing is done and nothing undone there",
		"node", name, "annotation", v1alpha1.AnnotationOwnedTaints, "fix", is.RepairSteps())
	note := fmt.Sprintf("The annotation %s of node %s can't be read, so ConditionSets do nothing and undo nothing there. To fix it, %s", v1alpha1.AnnotationOwnedTaints, name, is.RepairSteps())
	r.Events.Eventf(nodeRef(node), nil, corev1.EventTypeWarning, v1alpha1.ReasonRecordUnreadable, "ReadRecord", "%s", policy.Truncate(note))
}

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
	metric.AtZero(actsTotal, []string{policy}, []string{"Taint", "Escalate", "Deescalate", "Untaint", "Repair"}, []string{"done", "stale", "failed"})
	breakerGauge.WithLabelValues(policy).Set(metric.Bool(sum.Breaker != nil && !sum.Breaker.Reset))
	limitGauge.WithLabelValues(policy).Set(metric.Bool(limited))
}

// forgetStates drops the series of a set that is gone.
func forgetStates(set types.NamespacedName) {
	metric.Forget(prometheus.Labels{"policy": set.Name}, actsTotal, nodesGauge, breakerGauge, limitGauge)
}
