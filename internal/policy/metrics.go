package policy

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var judgements = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "autohealer_policy_judgements_total",
	Help: "How often stored policies were judged by all rules at run time, by kind.",
}, []string{"kind"})

// RegisterMetrics adds the metric to the manager's registry; what registered before, another kind or manager, shares it.
func RegisterMetrics() error {
	if err := metrics.Registry.Register(judgements); err != nil && !errors.As(err, &prometheus.AlreadyRegisteredError{}) {
		return fmt.Errorf("register the metric of judgements: %w", err)
	}
	return nil
}
