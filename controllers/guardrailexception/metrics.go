package guardrailexception

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/resourcestack/autohealer/internal/metric"
)

var activeGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "autohealer_guardrailexception_active",
	Help: "1 while a GuardrailException lifts its rules for its target, 0 while it waits or after it ended.",
}, []string{"exception"})

// registerMetrics adds the metrics to the manager's registry; a second manager in one process shares them.
func registerMetrics() error {
	return metric.Register(activeGauge)
}
