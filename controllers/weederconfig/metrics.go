package weederconfig

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/metric"
)

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
