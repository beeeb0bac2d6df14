// Package webhooks is the gate: the HTTP side of admission, thin over the guard, and the one registration for all kinds.
package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/json"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kinds"
	"github.com/resourcestack/autohealer/internal/metric"
)

// Handler answers admission reviews with the guard's verdict.
type Handler struct{ Guard *guard.Guard }

// Handle judges one review. What isn't a review of a kind we know is an error, never an admission: controller-runtime
// hands on `{}` and `null` as a request without anything in it.
func (h *Handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	started := clock.RealClock{}.Now()
	review, err := h.read(req)
	if err != nil {
		observeError(req)
		return admission.Errored(http.StatusBadRequest, err)
	}
	verdict := h.Guard.Review(ctx, review)
	observe(req, verdict, clock.RealClock{}.Since(started))
	if !verdict.Allowed {
		logf.FromContext(ctx).V(1).Info("Refused object", "rules", verdict.RuleIDs(), "ruleSetHash", verdict.RuleSetHash)
	}
	return respond(verdict)
}

// read checks the review's shape. Fields of the object are the API server's business: it has checked the schema.
func (h *Handler) read(req admission.Request) (guard.Request, error) {
	if err := h.judges(req); err != nil {
		return guard.Request{}, err
	}
	review := guard.Request{
		Operation: req.Operation, Kind: req.Kind.Kind, Object: req.Object.Raw, UserInfo: req.UserInfo, DryRun: req.DryRun != nil && *req.DryRun,
	}
	if req.Operation == admissionv1.Create || req.Operation == admissionv1.Update {
		if err := isOf("object", req.Object.Raw, req.Kind.Kind); err != nil {
			return guard.Request{}, err
		}
	}
	if req.Operation == admissionv1.Update {
		review.OldObject = req.OldObject.Raw
		return review, isOf("oldObject", req.OldObject.Raw, req.Kind.Kind)
	}
	return review, nil
}

// judges gives an error for what no rule is about. controller-runtime hands on a review without a request as a zero one.
func (h *Handler) judges(req admission.Request) error {
	if req.UID == "" || req.Operation == "" || req.Kind.Kind == "" {
		return errors.New("the admission review has no request")
	}
	if req.Kind.Group != v1alpha1.GroupVersion.Group || req.Kind.Version != v1alpha1.GroupVersion.Version || !h.Guard.Judges(req.Kind.Kind) {
		return fmt.Errorf("this webhook has no rules for %s in %s/%s", req.Kind.Kind, req.Kind.Group, req.Kind.Version)
	}
	return nil
}

// isOf checks that there is an object of the kind, without keeping more of it.
func isOf(field string, raw []byte, kind string) error {
	var object metav1.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		if what, isMisfit := guard.TypeMismatch(err, field); isMisfit {
			return fmt.Errorf("the request can't be read: %s", what)
		}
		return fmt.Errorf("read the request's %s: %w", field, err)
	}
	if object.Kind != kind {
		return fmt.Errorf("the request's %s is no %s", field, kind)
	}
	return nil
}

// respond makes the answer. A refusal by a rule is Forbidden, not Invalid: `kubectl apply --force` and Flux take Invalid as leave
// to delete the object and create it anew, and deleting a policy undoes what it did.
func respond(v guard.Verdict) admission.Response {
	response := admission.Allowed("")
	if !v.Allowed {
		response = admission.Denied(v.Message())
	}
	if v.Undecided() { // as an API server says it that is slow itself: client-go then asks again
		is := response.Result
		is.Code, is.Reason, is.Details = http.StatusInternalServerError, metav1.StatusReasonServerTimeout, &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
	}
	response = response.WithWarnings(v.Warnings()...)
	response.AuditAnnotations = auditAnnotations(v)
	return response
}

// auditAnnotations are kept in the API server's audit log, under the webhook's name: which rules are violated, which were skipped, and which
// are lifted, as rule=exception.
func auditAnnotations(v guard.Verdict) map[string]string {
	rules := map[string][]string{}
	for _, violation := range v.Violations {
		rules["violated"] = append(rules["violated"], violation.Rule)
	}
	for _, skip := range v.Skipped {
		rules["skipped"] = append(rules["skipped"], skip.Rule)
	}
	for _, l := range v.Lifted {
		rules["lifted"] = append(rules["lifted"], l.Rule+"="+l.Exception)
	}
	annotations := map[string]string{"rule-set": v.RuleSetHash}
	for name, ids := range rules {
		annotations[name] = strings.Join(ids, ",")
	}
	return annotations
}

// Path serves the reviews of every kind: the review itself says which kind it is about.
const Path = "/validate"

// AddToManager serves admission on the manager's webhook server, for all kinds that the guard judges.
func AddToManager(mgr manager.Manager, g *guard.Guard) error {
	if err := registerMetrics(); err != nil {
		return fmt.Errorf("register admission metrics: %w", err)
	}
	mgr.GetWebhookServer().Register(Path, limitRequests(New(g)))
	return nil
}

// New is the webhook by itself. A panic is answered with a refusal, by controller-runtime's default.
func New(g *guard.Guard) *admission.Webhook {
	return &admission.Webhook{Handler: &Handler{Guard: g}, WithContextFunc: withDeadline, LogConstructor: logOf}
}

// logOf logs nothing of a request that can't be read: whoever sends it gets an answer, and decides how many there are.
func logOf(base logr.Logger, req *admission.Request) logr.Logger {
	if req == nil {
		return logr.Discard()
	}
	return admission.DefaultLogConstructor(base, req)
}

// defaultTimeout is what we ask of the API server in the webhook's configuration. Whoever says they wait longer gets no more.
const defaultTimeout = 5 * time.Second

// withDeadline takes the API server's own deadline, which it sends as ?timeout= and controller-runtime ignores. A tenth
// of it is kept for the way back: an answer that comes too late is a refusal without a reason.
//
// A manager that ends finishes what it has been asked, though controller-runtime ends every request's context with it: an
// evaluation that is cut short refuses a good object.
func withDeadline(ctx context.Context, r *http.Request) context.Context {
	begun, ok := ctx.Value(startedKey{}).(time.Time)
	if !ok {
		begun = clock.RealClock{}.Now()
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), begun.Add(timeFor(r)))
	context.AfterFunc(r.Context(), func() { // net/http ends the request's context when the handler returns
		if !serverEnds(r) {
			cancel()
		}
	})
	return ctx
}

// timeFor a request, from its beginning to its answer.
func timeFor(r *http.Request) time.Duration {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || timeout <= 0 || timeout > defaultTimeout {
		timeout = defaultTimeout
	}
	return timeout * 9 / 10
}

// serverEnds says that the server's context, of which a request's is made, has ended.
func serverEnds(r *http.Request) bool {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	return ok && server.BaseContext != nil && server.BaseContext(nil).Err() != nil
}

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
