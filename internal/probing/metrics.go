package probing

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/metric"
)

// Labels are bounded: sides and classes, never targets.
var (
	latenessSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "autohealer_probe_lateness_seconds",
		Help:    "How long after its time a run of probes began. More than a second means too few workers or processors.",
		Buckets: []float64{.001, .01, .1, .5, 1, 2.5, 5, 10, 30, 60},
	})
	probeSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "autohealer_probe_duration_seconds",
		Help:    "How long probes took, by side (internal, external, leases) and result (success, failure, transient, unknown).",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"side", "result"})
	outcomesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_probe_outcomes_total",
		Help: "Outcomes of probes, by side (internal, external, leases) and class, such as OK, Timeout or TLS.",
	}, []string{"side", "class"})
	witnessUp = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_witness_up",
		Help: "Whether a witness of a Guardrail answered the last check, once a minute: 1 or 0.",
	}, []string{"guardrail", "witness"})
	witnessQueries = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_witness_queries_total",
		Help: "Queries of the witnesses since external probes failed, by result (vouched, not_vouched).",
	}, []string{"result"})
)

// RegisterMetrics adds the metrics to the manager's registry; a second manager in one process shares them.
func RegisterMetrics() error {
	metric.AtZero(witnessQueries, []string{"vouched", "not_vouched"})
	return metric.Register(latenessSeconds, probeSeconds, outcomesTotal, witnessUp, witnessQueries)
}

func observeLateness(late time.Duration) { latenessSeconds.Observe(late.Seconds()) }

func observeProbe(side string, outcome probe.Outcome, took time.Duration) {
	probeSeconds.WithLabelValues(side, outcome.Result().String()).Observe(took.Seconds())
	outcomesTotal.WithLabelValues(side, string(outcome.Class)).Inc()
}
