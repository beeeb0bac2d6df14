package policy

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/resourcestack/autohealer/internal/metric"
)

var evaluations = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "autohealer_policy_evaluations_total",
	Help: "How often all rules were evaluated for stored policies at run time, by kind.",
}, []string{"kind"})

// RegisterMetrics adds the metric to the manager's registry; what registered before, another kind or manager, shares it.
func RegisterMetrics() error {
	return metric.Register(evaluations)
}
