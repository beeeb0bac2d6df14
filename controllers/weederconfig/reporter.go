package weederconfig

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/metric"
	"github.com/resourcestack/autohealer/internal/policy"
)

// Reporter reports recoveries and deletions as Events and metrics.
type Reporter struct {
	Events events.EventRecorder
	acts   *actuate.Events
}

// NewReporter reports to a recorder.
func NewReporter(recorder events.EventRecorder) *Reporter {
	dropped := func(events int) { eventsDropped.Add(float64(events)) }
	return &Reporter{Events: recorder, acts: actuate.NewEvents(recorder, dropped)}
}

// reportRecoveries reports windows that opened, on the Service and on the config. Of equal Events only the first one's note is kept,
// so this one has nothing that another recovery would have different.
func (r *Reporter) reportRecoveries(opened []weeder.Opened, now time.Time) {
	for _, w := range opened {
		recoveriesTotal.WithLabelValues(w.Key.Namespace, w.Key.Name).Inc()
		verb := "would delete"
		if w.Acts {
			verb = "deletes"
		}
		note := fmt.Sprintf("Service %s/%s turned Ready; WeederConfig %s %s pods that depend on it and crash-loop within %s of that",
			w.Namespace, w.Service, w.Key, verb, w.Ends.Sub(w.Opened))
		service := ref("v1", "Service", w.Namespace, w.Service, "")
		r.acts.Emit(now, service, configRef(w.Key, w.Config), v1alpha1.ReasonServiceRecovered, "Watch", note)
	}
}

// reportDeletion reports a deletion, on the pod's owner and on the config; each pod has Events of its own.
func (r *Reporter) reportDeletion(plan weeder.Plan, now time.Time) {
	d := plan.Delete
	countAct(d, "done")
	deletionDelay.Observe(max(0, now.Sub(d.Recovered).Seconds()))
	verb := "deletes"
	if d.Evict {
		verb = "evicts"
	}
	note := fmt.Sprintf("WeederConfig %s %s pod %s: Service %s recovered at %s, and %s", d.Key, verb, plan.Pod.Key(), d.Service, clockTime(d.Recovered), d.Loop)
	if len(d.Before) > 0 {
		note += "; it had replaced a pod that was deleted before"
	}
	p, c := plan.Pod, plan.Pod.Controller
	owner := ref(c.APIVersion, c.Kind, p.Namespace, c.Name, c.UID) // the pod itself is gone before anyone reads an Event on it
	r.acts.EmitRelated(now, owner, configRef(d.Key, d.Config), ref("v1", "Pod", p.Namespace, p.Name, p.UID), v1alpha1.ReasonPodDeleted, string(methodOf(d)), note)
}

func methodOf(d *weeder.Deletion) v1alpha1.DeletionMethod {
	if d.Evict {
		return v1alpha1.Evict
	}
	return v1alpha1.Delete
}

func clockTime(t time.Time) string { return t.UTC().Format("15:04:05Z") }

// ref names an object in an Event.
func ref(apiVersion, kind, namespace, name string, uid types.UID) runtime.Object {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid},
	}
}

func configRef(key types.NamespacedName, uid types.UID) runtime.Object {
	return ref(v1alpha1.GroupVersion.String(), kindWeederConfig, key.Namespace, key.Name, uid)
}

// Labels are bounded: policies by namespace and name, never pods or Services.
var (
	actsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_weederconfig_deletions_total",
		Help: "Deletions of crash-looping pods, by WeederConfig, verb (Delete, Evict) and result (done, stale, refused by a PodDisruptionBudget, failed).",
	}, []string{"namespace", "policy", "verb", "result"})

	recoveriesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_weederconfig_recoveries_total",
		Help: "Services that turned Ready, by WeederConfig.",
	}, []string{"namespace", "policy"})

	deletionDelay = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "autohealer_weederconfig_deletion_delay_seconds",
		Help:    "Time from a Service's recovery to the deletion of a pod that depends on it. A pod may begin to crash-loop only later.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60, 300, 1800},
	})

	windowsGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_weederconfig_active_windows",
		Help: "Services of a WeederConfig that turned Ready less than watchDuration ago, and have been so since.",
	}, []string{"namespace", "policy"})

	heldGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_weederconfig_held_pods",
		Help: "Crash-looping pods in open windows that a WeederConfig doesn't delete now, by reason.",
	}, []string{"namespace", "policy", "reason"})

	limitGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_weederconfig_limit_reached",
		Help: "1 while a limit or budget holds back deletions of a WeederConfig.",
	}, []string{"namespace", "policy"})

	eventsDropped = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "autohealer_weederconfig_events_dropped_total",
		Help: "Events on single deletions left out because there were too many at once; the audit trail has them.",
	})
)

// registerMetrics adds the metrics to the manager's registry; a second manager in one process shares them.
func registerMetrics() error {
	return metric.Register(actsTotal, recoveriesTotal, deletionDelay, windowsGauge, heldGauge, limitGauge, eventsDropped)
}

func countAct(d *weeder.Deletion, result string) {
	actsTotal.WithLabelValues(d.Key.Namespace, d.Key.Name, string(methodOf(d)), result).Inc()
}

func gaugeStates(key types.NamespacedName, sum weeder.Summary, limited bool) {
	namespace, name := []string{key.Namespace}, []string{key.Name}
	metric.AtZero(recoveriesTotal, namespace, name)
	metric.AtZero(actsTotal, namespace, name, []string{"Delete", "Evict"}, []string{"done", "stale", "refused", "failed"})
	windowsGauge.WithLabelValues(key.Namespace, key.Name).Set(float64(sum.ActiveWindows))
	heldGauge.DeletePartialMatch(policyLabels(key)) // else a reason that is over would stay
	for reason, held := range sum.Held {
		heldGauge.WithLabelValues(key.Namespace, key.Name, string(reason)).Set(float64(held.Pods))
	}
	limitGauge.WithLabelValues(key.Namespace, key.Name).Set(metric.Bool(limited))
}

func policyLabels(key types.NamespacedName) prometheus.Labels {
	return prometheus.Labels{"namespace": key.Namespace, "policy": key.Name}
}

// forgetStates drops the series of a config that is gone.
func forgetStates(key types.NamespacedName) {
	metric.Forget(policyLabels(key), actsTotal, recoveriesTotal, windowsGauge, heldGauge, limitGauge)
}

// steps keep configs' statuses. The acting is the PodReconciler's, and a deleted pod needs no undoing.
func (o *Observer) steps() policy.Steps[*v1alpha1.WeederConfig] {
	return policy.Steps[*v1alpha1.WeederConfig]{
		New: func() *v1alpha1.WeederConfig { return &v1alpha1.WeederConfig{} }, Describe: o.describe, Gone: forgetStates,
	}
}

// describe computes the status, once this generation is judged by known rules.
func (o *Observer) describe(_ context.Context, wc *v1alpha1.WeederConfig, _ policy.Remaining) (is policy.Description[*v1alpha1.WeederConfig], err error) {
	unknown := policy.Description[*v1alpha1.WeederConfig]{Skip: true}
	config, ok := o.policies.Current(wc)
	if !ok || config.Object.ResourceVersion != wc.ResourceVersion { // the planner knows another status
		return unknown, nil
	}
	st := statusInput{storedConfig: config, synced: o.weeder().Synced(), writeErrors: o.policies.Errors.Get(wc.UID)}
	if st.summary, ok = o.weeder().Summary(wc.UID, o.Facts.Moment()); !ok && config.Read.unreadable == nil {
		return unknown, nil
	}
	is.After = wc.DeepCopy()
	is.After.Status = statusOf(wc, st)
	gaugeStates(client.ObjectKeyFromObject(wc), st.summary, meta.IsStatusConditionTrue(is.After.Status.Conditions, v1alpha1.ConditionLimitReached))
	return is, nil
}

// statusInput is everything that a status depends on.
type statusInput struct {
	storedConfig
	summary weeder.Summary
	// synced: caches are full, so that counts mean something.
	synced      bool
	writeErrors *policy.WriteErrors
}

// statusOf describes a config. It is pure: the same state gives the same status, so that nothing is written when nothing
// changed.
func statusOf(wc *v1alpha1.WeederConfig, st statusInput) v1alpha1.WeederConfigStatus {
	after := *wc.Status.DeepCopy()
	if st.synced && st.Read.unreadable == nil {
		counted := st.summary.WeederConfigStatus
		counted.Conditions, counted.LastTriggered = after.Conditions, cmp.Or(counted.LastTriggered, after.LastTriggered)
		after = counted
	}
	after.ObservedGeneration = wc.Generation
	commonConditions(wc, st).Apply(&after.Conditions, wc.Generation)
	policy.SetWhileTrue(&after.Conditions, wc.Generation, limitHolds.Reached(st.heldBack))
	return after
}

// commonConditions is the input of the conditions that every kind has.
func commonConditions(wc *v1alpha1.WeederConfig, st statusInput) policy.Conditions {
	s := policy.Conditions{
		Acceptance: policy.AcceptanceOf(st.Verdict, st.Read.unreadable),
		Changes:    "pods", Synced: st.synced, WriteErrors: st.writeErrors, Paused: st.Pause, Summary: operativeMessage(st),
	}
	if wc.Spec.Mode == v1alpha1.Observe {
		s.Observes = true
		s.Summary = fmt.Sprintf("Mode Observe: %d of %d Services are there, %d recovered lately; %d pods would be deleted now, and none is.",
			st.summary.Services, st.summary.Named, st.summary.ActiveWindows, st.summary.Held[weeder.HeldByMode].Pods)
	}
	return s
}

// operativeMessage says in numbers what the config does, and why it does less than specified: many tools show only the message
// of Ready.
func operativeMessage(st statusInput) string {
	clauses := []string{fmt.Sprintf("%d of %d Services are there, %d recovered lately, %d pods were deleted so far", st.summary.Services, st.summary.Named, st.summary.ActiveWindows, st.summary.Deleted)}
	for _, reason := range slices.Sorted(maps.Keys(st.summary.Held)) {
		if !limitHolds.Has(reason) && reason != weeder.HeldByPause {
			clauses = append(clauses, st.heldBack(reason))
		}
	}
	if t := st.writeErrors; t != nil && t.Partial {
		clauses = append(clauses, sample.Example(t.Targets, "pod", "can't be deleted", fmt.Sprintf("%s: %s", t.Sample, t.Err)))
	}
	if limitHolds.Reached(st.heldBack).Reason != "" {
		clauses = append(clauses, "a limit holds pods back, see LimitReached")
	}
	return policy.Sentence(clauses...)
}

// limitHolds are the holds that are a limit's.
var limitHolds = policy.LimitHolds[weeder.Reason]{
	{Hold: weeder.HeldByLimit, Reason: v1alpha1.ReasonTooManyPodDeletions},
	{Hold: weeder.HeldByBudget, Reason: v1alpha1.ReasonBudgetSpent},
	{Hold: weeder.HeldByRepeats, Reason: v1alpha1.ReasonBudgetSpent},
}

// heldBack says how many pods a hold holds back, and why; "" when it holds none.
func (st statusInput) heldBack(by weeder.Reason) string {
	if held, ok := st.summary.Held[by]; ok {
		return sample.Example(held.Pods, "pod", "held back", held.Message)
	}
	return ""
}
