package webhooks

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kinds"
	"github.com/resourcestack/autohealer/internal/metric"
)

var (
	reviews = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_admission_reviews_total",
		Help: "Admission reviews by kind, operation and result (allowed, warned, denied, error).",
	}, []string{"kind", "operation", "result"})

	violations = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_admission_rule_violations_total",
		Help: "Violations of rules in admission reviews, by rule and by what came of it (Deny, Warn).",
	}, []string{"rule", "severity"})

	refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_webhook_rejected_requests_total",
		Help: "Requests and connections that the webhook's server refused before anything was judged, by reason (busy, slow, too_large, not_json, connection).",
	}, []string{"reason"})

	duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "autohealer_admission_review_duration_seconds",
		Help: "Time to judge an admission review by all rules, by kind; without TLS, HTTP and JSON of the envelope.",
		// A rule costs some microseconds; above 10 ms something is wrong.
		Buckets: []float64{0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.1, 1},
	}, []string{"kind"})
)

// Why the server refuses: it has as much as it can judge, a body doesn't come, a body is too large or no JSON, there are too many
// connections or an address makes them too fast.
const (
	refusedBusy       = "busy"
	refusedSlow       = "slow"
	refusedLarge      = "too_large"
	refusedOther      = "not_json"
	refusedConnection = "connection"
)

// registerMetrics puts the metrics into the manager's registry; a second manager of the process shares them.
func registerMetrics() error {
	metric.AtZero(reviews, kinds.Names(kinds.All), []string{"CREATE", "UPDATE"}, []string{"allowed", "warned", "denied"})
	metric.AtZero(refused, []string{refusedBusy, refusedSlow, refusedLarge, refusedOther, refusedConnection})
	return metric.Register(reviews, violations, refused, duration)
}

func observe(req admission.Request, v guard.Verdict, took time.Duration) {
	result := "allowed"
	switch {
	case !v.Allowed:
		result = "denied"
	case len(v.Warnings()) > 0:
		result = "warned"
	}
	reviews.WithLabelValues(req.Kind.Kind, string(operation(req)), result).Inc()
	duration.WithLabelValues(req.Kind.Kind).Observe(took.Seconds())
	for _, violation := range v.Violations {
		violations.WithLabelValues(violation.Rule, string(violation.Severity)).Inc()
	}
}

// observeError counts a request that is no review of ours; what it says of itself is no label.
func observeError(req admission.Request) {
	reviews.WithLabelValues("other", string(operation(req)), "error").Inc()
}

// operation bounds the label to what the API server sends.
func operation(req admission.Request) admissionv1.Operation {
	switch req.Operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect:
		return req.Operation
	}
	return "other"
}
