package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/json"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
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
		if what, isMisfit := guard.Misfit(err, field); isMisfit {
			return fmt.Errorf("the request can't be read: %s", what)
		}
		return fmt.Errorf("read the request's %s: %w", field, err)
	}
	if object.Kind != kind {
		return fmt.Errorf("the request's %s is no %s", field, kind)
	}
	return nil
}

// respond makes the answer. A refusal is Forbidden, not Invalid: `kubectl apply --force` and Flux take Invalid as leave
// to delete the object and create it anew, and deleting a policy undoes what it did.
func respond(v guard.Verdict) admission.Response {
	response := admission.Allowed("")
	if !v.Allowed {
		response = admission.Denied(v.Message())
	}
	response = response.WithWarnings(v.Warnings()...)
	response.AuditAnnotations = auditAnnotations(v)
	return response
}

// auditAnnotations are kept in the API server's audit log, under the webhook's name.
func auditAnnotations(v guard.Verdict) map[string]string {
	annotations := map[string]string{"rule-set": v.RuleSetHash}
	var violated, skipped []string
	for _, violation := range v.Violations {
		violated = append(violated, violation.Rule)
	}
	for _, skip := range v.Skipped {
		skipped = append(skipped, skip.Rule)
	}
	if len(violated) > 0 {
		annotations["violated"] = strings.Join(violated, ",")
	}
	if len(skipped) > 0 {
		annotations["skipped"] = strings.Join(skipped, ",")
	}
	if len(v.Lifted) > 0 {
		annotations["lifted"] = lifted(v.Lifted)
	}
	return annotations
}

// lifted tells which exception lifts which rule, as rule=exception.
func lifted(all []guard.Lifted) string {
	texts := make([]string, len(all))
	for i, l := range all {
		texts[i] = l.Rule + "=" + l.Exception
	}
	return strings.Join(texts, ",")
}
