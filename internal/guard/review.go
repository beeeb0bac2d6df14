package guard

import (
	"context"
	"fmt"
	"maps"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Request is what admission asks about. A dry run takes the same path.
type Request struct {
	Operation admissionv1.Operation
	// Object as it would be stored, OldObject as it is; unstructured content whose whole numbers are int64.
	Object, OldObject map[string]any
	// UserInfo of who asks.
	UserInfo authenticationv1.UserInfo
	DryRun   bool
}

// Review judges a creation or an update by all rules of the object's kind. Nothing else is judged: a deletion is never
// in the way of a policy's undoing.
func (g *Guard) Review(ctx context.Context, req Request) Verdict {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return Verdict{Allowed: true}
	}
	object, rules := unstructured.Unstructured{Object: req.Object}, g.rules.Load()
	kind := rules.kinds[object.GetKind()]
	if kind == nil {
		return Verdict{Skipped: []Skip{{
			Rule: "guard/kind", Severity: Deny, Reason: fmt.Sprintf("there are no rules for kind %q", object.GetKind()),
		}}}
	}
	if req.OldObject != nil && leavesBehaviour(req.OldObject, req.Object) {
		return Verdict{Allowed: true, RuleSetHash: kind.hash}
	}
	e, err := g.admission(ctx, rules, kind, req)
	if err != nil {
		return Verdict{RuleSetHash: kind.hash, Skipped: []Skip{unreadable(err)}}
	}
	return e.atAdmission()
}

// admission is the evaluation of a request.
func (g *Guard) admission(ctx context.Context, rules *ruleSet, kind *kindRules, req Request) (*evaluation, error) {
	object, err := canonical(kind.name, req.Object)
	if err != nil {
		return nil, err
	}
	e := g.evaluation(ctx, rules, kind, object)
	if req.Operation == admissionv1.Create {
		e.object = stamped(object, e.now)
	}
	if req.OldObject != nil {
		if e.oldObject, err = canonical(kind.name, req.OldObject); err != nil {
			e.oldObject = req.OldObject // what an earlier release stored must not keep anybody from repairing it
		}
	}
	e.asWritten = asWritten{evaluation: e, object: req.Object, oldObject: req.OldObject}
	e.request = admissionRequest(req)
	e.pausing, e.onlyObserves = pausingOf(kind.name, object, e.oldObject), onlyTurnsToObservation(object, e.oldObject)
	return e, nil
}

// stamped has the time of creation, which the API server sets before it asks; an object from a file has none.
func stamped(object map[string]any, now time.Time) map[string]any {
	metadata, isMap := object["metadata"].(map[string]any)
	if stamp, _ := metadata["creationTimestamp"].(string); !isMap || stamp != "" {
		return object
	}
	object, metadata = maps.Clone(object), maps.Clone(metadata)
	metadata["creationTimestamp"] = now.UTC().Format(time.RFC3339)
	object["metadata"] = metadata
	return object
}

// leavesBehaviour: an update of an object that is being deleted, or one that leaves spec alone, changes nothing that rules
// judge; refusing it would keep a finalizer on a bad object for ever.
func leavesBehaviour(old, object map[string]any) bool {
	stored := unstructured.Unstructured{Object: old}
	return stored.GetDeletionTimestamp() != nil || equality.Semantic.DeepEqual(old["spec"], object["spec"])
}

func admissionRequest(req Request) *admissionv1.AdmissionRequest {
	object := unstructured.Unstructured{Object: req.Object}
	gvk := object.GroupVersionKind()
	return &admissionv1.AdmissionRequest{
		Kind:      metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind},
		Name:      object.GetName(),
		Namespace: object.GetNamespace(),
		Operation: req.Operation,
		UserInfo:  req.UserInfo,
		DryRun:    &req.DryRun,
	}
}
