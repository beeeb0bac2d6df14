package healthcheckregistration

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/metric"
)

// Labels are bounded: policies by name, never targets.
var (
	actsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_healthcheckregistration_acts_total",
		Help: "Writes of conditions of targets, by HealthCheckRegistration, verb (SetCondition, RemoveCondition) and result (done, stale, failed).",
	}, []string{"policy", "verb", "result"})

	targetsGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_healthcheckregistration_targets",
		Help: "Targets of a HealthCheckRegistration by the worst of their conditions: healthy, unhealthy, progressing, unknown.",
	}, []string{"policy", "state"})

	breakerGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_healthcheckregistration_breaker_open",
		Help: "1 while a HealthCheckRegistration's breaker is open and waits for a reset.",
	}, []string{"policy"})

	eventsDropped = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "autohealer_healthcheckregistration_events_dropped_total",
		Help: "Events on single targets left out because there were too many at once; the audit trail has them.",
	})
)

// registerMetrics adds the metrics to the manager's registry; a second manager in one process shares them.
func registerMetrics() error {
	return metric.Register(actsTotal, targetsGauge, breakerGauge, eventsDropped)
}

func isStale(err error) bool { return errors.Is(err, actuate.ErrStale) }

// count counts a write once for each registration that decides the condition; one that nothing decides any more is nobody's.
func count(deciders []decider, step health.Step, result string) {
	for _, d := range deciders {
		actsTotal.WithLabelValues(d.registration.Name, verb(step), result).Inc()
	}
	if len(deciders) == 0 {
		actsTotal.WithLabelValues("", verb(step), result).Inc()
	}
}

func gaugeStates(policy string, s v1alpha1.HealthCheckRegistrationStatus) {
	for state, n := range map[string]int32{"healthy": s.Healthy, "unhealthy": s.Unhealthy, "progressing": s.Progressing, "unknown": s.Unknown} {
		targetsGauge.WithLabelValues(policy, state).Set(float64(n))
	}
	breakerGauge.WithLabelValues(policy).Set(metric.Bool(s.Breaker != nil))
}

// forgetStates drops the series of a registration that is gone.
func forgetStates(policy string) {
	metric.Forget(prometheus.Labels{"policy": policy}, actsTotal, targetsGauge, breakerGauge)
}
