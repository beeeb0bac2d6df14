package probeconfig

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/metric"
)

// Labels are bounded: policies by namespace and name, never targets or dependents.
var (
	scalingsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_probeconfig_scalings_total",
		Help: "Scalings of dependents, by ProbeConfig, verb (ScaleDown, ScaleUp, Forget) and result (done, stale, failed).",
	}, []string{"namespace", "policy", "verb", "result"})

	scaleDownDelay = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "autohealer_probeconfig_scale_down_delay_seconds",
		Help:    "Time from the run that made a target unhealthy to the scaling down of a dependent. Levels and delays are part of it.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60, 300},
	})

	targetsGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_probeconfig_targets",
		Help: "Targets of a ProbeConfig, by state (total, probed, internal_unhealthy, external_unhealthy, scaled_down, unusable, undetermined, vouched). One may count more than once.",
	}, []string{"namespace", "policy", "state"})

	limitGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_probeconfig_limit_reached",
		Help: "1 while a limit holds back a ProbeConfig.",
	}, []string{"namespace", "policy"})

	breakerGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_probeconfig_breaker_open",
		Help: "1 while the breaker is open, which is one for all ProbeConfigs: too many targets turned unhealthy together.",
	}, []string{"namespace", "policy"})

	eventsDropped = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "autohealer_probeconfig_events_dropped_total",
		Help: "Events on single scalings left out because there were too many at once; the audit trail has them.",
	})
)

// registerMetrics adds the metrics to the manager's registry; a second manager in one process shares them.
func registerMetrics() error {
	return metric.Register(scalingsTotal, scaleDownDelay, targetsGauge, limitGauge, breakerGauge, eventsDropped)
}

func countScaling(c *probe.Config, verb, result string) {
	scalingsTotal.WithLabelValues(c.Namespace, c.Name, verb, result).Inc()
}

func gaugeStates(key types.NamespacedName, st v1alpha1.ProbeConfigStatus) {
	metric.AtZero(scalingsTotal, []string{key.Namespace}, []string{key.Name}, []string{"ScaleDown", "ScaleUp", "Forget"}, []string{"done", "stale", "failed"})
	if n := st.Targets; n != nil {
		for state, count := range map[string]int32{
			"total": n.Total, "probed": n.Probed, "internal_unhealthy": n.InternalUnhealthy, "external_unhealthy": n.ExternalUnhealthy,
			"scaled_down": n.ScaledDown, "unusable": n.Unusable, "undetermined": n.Undetermined, "vouched": n.Vouched,
		} {
			targetsGauge.WithLabelValues(key.Namespace, key.Name, state).Set(float64(count))
		}
	}
	for condition, gauge := range map[string]*prometheus.GaugeVec{
		v1alpha1.ConditionLimitReached: limitGauge, v1alpha1.ConditionBreakerOpen: breakerGauge,
	} {
		gauge.WithLabelValues(key.Namespace, key.Name).Set(metric.Bool(meta.IsStatusConditionTrue(st.Conditions, condition)))
	}
}

// forgetStates drops the series of a config that is gone.
func forgetStates(key types.NamespacedName) {
	metric.Forget(prometheus.Labels{"namespace": key.Namespace, "policy": key.Name}, scalingsTotal, targetsGauge, limitGauge, breakerGauge)
}
