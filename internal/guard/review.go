package guard

import (
	"context"
	"fmt"

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
	object := unstructured.Unstructured{Object: req.Object}
	kind := g.rules.Load().kinds[object.GetKind()]
	if kind == nil {
		return Verdict{Skipped: []Skip{{
			Rule: "guard/kind", Severity: Deny, Reason: fmt.Sprintf("there are no rules for kind %q", object.GetKind()),
		}}}
	}
	if req.OldObject != nil && leavesBehaviour(req.OldObject, req.Object) {
		return Verdict{Allowed: true, RuleSetHash: kind.hash}
	}
	e := g.evaluation(ctx, kind, req.Object)
	e.oldObject = req.OldObject
	e.request = admissionRequest(req, object)
	return e.verdict(kind.rules)
}

// leavesBehaviour: an update of an object that is being deleted, or one that leaves spec alone, changes nothing that rules
// judge; refusing it would keep a finalizer on a bad object for ever.
func leavesBehaviour(old, object map[string]any) bool {
	stored := unstructured.Unstructured{Object: old}
	return stored.GetDeletionTimestamp() != nil || equality.Semantic.DeepEqual(old["spec"], object["spec"])
}

func admissionRequest(req Request, object unstructured.Unstructured) *admissionv1.AdmissionRequest {
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

func (g *Guard) evaluation(ctx context.Context, kind *kindRules, object map[string]any) *evaluation {
	e := &evaluation{
		ctx: ctx, kind: kind, budget: maxRequestCost, object: object,
		facts: g.facts, limits: g.policy.Load().Limits, now: g.clock.Now(),
		variables: make([]any, len(kind.variables)),
	}
	if planner, ok := g.planners[kind.kind]; ok {
		e.planner = &planner
	}
	return e
}

// verdict judges by each rule; a refusal names them all.
func (e *evaluation) verdict(rules []*compiledRule) Verdict {
	v := Verdict{Allowed: true, RuleSetHash: e.kind.hash}
	for _, r := range rules {
		violation, skip := e.judge(r)
		if violation != nil {
			v.Violations = append(v.Violations, *violation)
			v.Allowed = v.Allowed && violation.Severity != Deny
		}
		if skip != nil {
			v.Skipped = append(v.Skipped, *skip)
			v.Allowed = v.Allowed && skip.Severity != Deny
		}
	}
	if e.factsKnown() {
		v.FactsTime = e.now.Add(-e.facts.Age(e.now))
	}
	return v
}
