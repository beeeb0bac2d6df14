package envoys

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/resourcestack/autohealer/internal/domain/outlier/ejection"
	"github.com/resourcestack/autohealer/internal/metric"
)

// Neither Envoys nor hosts are told by name.
var (
	asked = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_outlierpolicy_envoys",
		Help: "Envoys that are asked whom they have ejected, by state: answering, not_answering; and missing, which are Services that lead to none. The leader's.",
	}, []string{"state"})
	ejectedHosts = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "autohealer_outlierpolicy_ejected_hosts",
		Help: "Hosts that some answering Envoy has ejected, each once for each cluster. The leader's.",
	})
)

func registerMetrics() error {
	return metric.Register(asked, ejectedHosts)
}

func observe(v *ejection.View) {
	if v == nil {
		return
	}
	answering, silent := v.Count()
	asked.WithLabelValues("answering").Set(float64(answering))
	asked.WithLabelValues("not_answering").Set(float64(silent))
	asked.WithLabelValues("missing").Set(float64(len(v.Missing)))
	ejectedHosts.Set(float64(v.Ejected()))
}
