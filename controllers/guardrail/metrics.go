package guardrail

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/metric"
)

// All but the last one are every replica's own view; the last one is the leader's.
var (
	rulesGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "autohealer_guardrail_rules",
		Help: "Rules of all Guardrails that are in force on this replica, the built-in ones apart.",
	})

	pausedGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "autohealer_guardrail_paused",
		Help: "1 while a Guardrail pauses all new acts, or it isn't known what Guardrails forbid.",
	})

	frozenGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "autohealer_guardrail_frozen",
		Help: "1 while a Guardrail stops everything, undo included.",
	})

	rejectsGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_guardrail_rejected_policies",
		Help: "Stored policies that a rule of a Guardrail refuses now.",
	}, []string{"guardrail"})
)

// registerMetrics adds the metrics to the manager's registry; a second manager in one process shares them.
func registerMetrics() error {
	return metric.Register(rulesGauge, pausedGauge, frozenGauge, rejectsGauge)
}

func gaugePolicy(policy guardrail.Policy) {
	pausedGauge.Set(metric.Bool(policy.Paused()))
	frozenGauge.Set(metric.Bool(policy.Frozen()))
}
