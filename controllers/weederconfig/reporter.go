package weederconfig

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/metric"
)

// Reporter reports recoveries and deletions as Events and metrics.
type Reporter struct {
	Events events.EventRecorder
	acts   *kube.ActEvents
}

// NewReporter reports to a recorder.
func NewReporter(recorder events.EventRecorder) *Reporter {
	dropped := func(events int) { eventsDropped.Add(float64(events)) }
	return &Reporter{Events: recorder, acts: kube.NewActEvents(recorder, dropped)}
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
