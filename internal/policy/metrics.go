package policy

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/resourcestack/autohealer/internal/metric"
)

var judgements = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "autohealer_policy_judgements_total",
	Help: "How often stored policies were judged by all rules at run time, by kind.",
}, []string{"kind"})

// RegisterMetrics adds the metric to the manager's registry; what registered before, another kind or manager, shares it.
func RegisterMetrics() error {
	return metric.Register(judgements)
}
