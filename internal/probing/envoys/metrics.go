package envoys

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/resourcestack/autohealer/internal/domain/outlier/ejection"
)

// Neither Envoys nor hosts are told by name.
var (
	asked = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_envoys",
		Help: "Envoys that are asked whom they have ejected, by state: answering, silent; and missing, which are Services that lead to none. The leader's.",
	}, []string{"state"})
	ejectedHosts = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "autohealer_ejected_hosts",
		Help: "Hosts that some answering Envoy has ejected, each once for each cluster. The leader's.",
	})
)

func registerMetrics() error {
	for _, c := range []prometheus.Collector{asked, ejectedHosts} {
		if err := metrics.Registry.Register(c); err != nil && !errors.As(err, &prometheus.AlreadyRegisteredError{}) {
			return fmt.Errorf("register the metrics of Envoys: %w", err)
		}
	}
	return nil
}

func observe(v *ejection.View) {
	if v == nil {
		return
	}
	answering, silent := v.Count()
	asked.WithLabelValues("answering").Set(float64(answering))
	asked.WithLabelValues("silent").Set(float64(silent))
	asked.WithLabelValues("missing").Set(float64(len(v.Missing)))
	ejectedHosts.Set(float64(v.Ejected()))
}
