package guardrailexception

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var activeGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "autohealer_guardrailexception_active",
	Help: "1 while a GuardrailException lifts its rules for its target, 0 while it waits or after it ended.",
}, []string{"exception"})

// registerMetrics adds the metrics to the manager's registry; a second manager in one process shares them.
func registerMetrics() error {
	if err := metrics.Registry.Register(activeGauge); err != nil {
		if _, again := errors.AsType[prometheus.AlreadyRegisteredError](err); !again {
			return err
		}
	}
	return nil
}

func gaugeException(name string, active bool) {
	value := 0.0
	if active {
		value = 1
	}
	activeGauge.WithLabelValues(name).Set(value)
}

// forgetException drops the series of an exception that is gone.
func forgetException(name string) { activeGauge.DeleteLabelValues(name) }
