package guardrail

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// The first two are every replica's own view; the last one is the leader's.
var (
	rulesGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "autohealer_guardrail_rules",
		Help: "Rules of all Guardrails that are in force on this replica, the built-in ones apart.",
	})

	pausedGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "autohealer_guardrail_paused",
		Help: "1 while a Guardrail pauses all new acts.",
	})

	rejectsGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_guardrail_rejected_policies",
		Help: "Stored policies that a rule of a Guardrail refuses now.",
	}, []string{"guardrail"})
)

// registerMetrics adds the metrics to the manager's registry; a second manager in one process shares them.
func registerMetrics() error {
	for _, c := range []prometheus.Collector{rulesGauge, pausedGauge, rejectsGauge} {
		if err := metrics.Registry.Register(c); err != nil {
			if _, again := errors.AsType[prometheus.AlreadyRegisteredError](err); !again {
				return err
			}
		}
	}
	return nil
}

func gaugePolicy(rules int, paused bool) {
	rulesGauge.Set(float64(rules))
	pausedGauge.Set(0)
	if paused {
		pausedGauge.Set(1)
	}
}

func gaugeGuardrail(name string, rejects int) {
	rejectsGauge.WithLabelValues(name).Set(float64(rejects))
}

// forgetGuardrail drops the series of a Guardrail that is gone.
func forgetGuardrail(name string) { rejectsGauge.DeleteLabelValues(name) }
