package healthcheck

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var breakerOpen = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "autohealer_healthcheck_breaker_open",
	Help: "1 while what turns False isn't believed, because too many targets of a registration did together, and waits for a reset.",
}, []string{"controller", "kind", "extension"})

// registerMetrics adds the metrics to the manager's registry; all registrations of a program share them.
func registerMetrics() error {
	err := metrics.Registry.Register(breakerOpen)
	if _, again := errors.AsType[prometheus.AlreadyRegisteredError](err); again {
		return nil
	}
	return err
}
