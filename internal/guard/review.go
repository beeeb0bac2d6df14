package guard

import (
	"bytes"
	"context"
	encoding "encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/json"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// LargestPolicy is how many bytes a policy may have as JSON: more than anybody needs, and little enough that what everybody may send
// is read and judged in time.
const LargestPolicy = 256 << 10

// Request is what admission asks about. A dry run takes the same path.
type Request struct {
	Operation admissionv1.Operation
	// Kind of the object, one of Guard.Kinds.
	Kind string
	// Object as it would be stored and OldObject as it is, as JSON; OldObject of an update only.
	Object, OldObject []byte
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
	rules := g.rules.Load()
	kind := rules.kinds[req.Kind]
	if kind == nil {
		return Verdict{Skipped: []Skip{{
			Rule: "guard/kind", Severity: Deny, Reason: fmt.Sprintf("there are no rules for kind %q", req.Kind),
		}}}
	}
	if req.OldObject != nil && behaviourUnchanged(req.OldObject, req.Object) {
		return Verdict{Allowed: true, RuleSetHash: kind.hash}
	}
	err := sized(req)
	if err == nil {
		var e *evaluation
		if e, err = g.admission(ctx, rules, kind, req); err == nil {
			return e.atAdmission()
		}
	}
	return Verdict{RuleSetHash: kind.hash, Skipped: []Skip{unreadable(err)}}
}

// sized gives an error for an object that is too large, with all that the API server stores of it, unless an update makes it no larger.
func sized(req Request) error {
	n := len(req.Object)
	if n <= LargestPolicy || n <= len(req.OldObject) {
		return nil
	}
	return fmt.Errorf("the object has %d bytes as JSON, and a policy may have at most %d: split it", n, LargestPolicy)
}

// admission is the evaluation of a request.
func (g *Guard) admission(ctx context.Context, rules *ruleSet, kind *kindRules, req Request) (*evaluation, error) {
	object, err := readObject(kind.name, req.Object)
	if err != nil {
		return nil, err
	}
	if req.Operation == admissionv1.Create {
		object = stamped(object, g.opts.Clock.Now())
	}
	judged, err := judgedOf(kind.name, object)
	if err != nil {
		return nil, err
	}
	e := g.evaluation(ctx, rules, kind, judged)
	if req.OldObject != nil {
		if e.oldObject, err = readJudged(kind.name, req.OldObject); err != nil {
			var old map[string]any // what an earlier release stored must not keep anybody from repairing it
			_ = json.UnmarshalCaseSensitivePreserveInts(req.OldObject, &old)
			e.oldObject.content = readableContent(old)
		}
	}
	e.small = len(req.Object)+len(req.OldObject) <= maxSmallRequest && len(req.UserInfo.Groups)+len(req.UserInfo.Extra) <= maxSmallList &&
		small(e.object.content) && small(e.oldObject.content)
	e.request = admissionRequest(req, object)
	e.exempt = exemptionOf(kind.name, judged.content, e.oldObject.content)
	return e, nil
}

// readJudged reads JSON.
func readJudged(kind string, text []byte) (judged, error) {
	object, err := readObject(kind, text)
	if err != nil {
		return judged{}, err
	}
	return judgedOf(kind, object)
}

// stamped has the time of creation, which the API server sets before it asks; an object from a file has none.
func stamped[T client.Object](object T, now time.Time) T {
	if object.GetCreationTimestamp().Time.IsZero() {
		object.SetCreationTimestamp(metav1.NewTime(now.UTC().Truncate(time.Second)))
	}
	return object
}

// behaviourUnchanged: an update of an object that is being deleted, or one that leaves spec alone, changes nothing that rules
// judge; refusing it would keep a finalizer on a bad object for ever.
func behaviourUnchanged(old, object []byte) bool {
	var stored, updated struct {
		Metadata struct {
			DeletionTimestamp *string `json:"deletionTimestamp"`
		} `json:"metadata"`
		Spec encoding.RawMessage `json:"spec"`
	}
	if json.UnmarshalCaseSensitivePreserveInts(old, &stored) != nil || json.UnmarshalCaseSensitivePreserveInts(object, &updated) != nil {
		return false
	}
	if stored.Metadata.DeletionTimestamp != nil || bytes.Equal(stored.Spec, updated.Spec) {
		return true
	}
	if len(stored.Spec)+len(updated.Spec) > 2*LargestPolicy {
		return false // an API server writes both alike
	}
	var was, is any
	err := errors.Join(json.UnmarshalCaseSensitivePreserveInts(stored.Spec, &was), json.UnmarshalCaseSensitivePreserveInts(updated.Spec, &is))
	return err == nil && equality.Semantic.DeepEqual(was, is)
}

func admissionRequest(req Request, object client.Object) *admissionv1.AdmissionRequest {
	gvk := v1alpha1.GroupVersion.WithKind(req.Kind)
	return &admissionv1.AdmissionRequest{
		Kind:      metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind},
		Name:      object.GetName(),
		Namespace: object.GetNamespace(),
		Operation: req.Operation,
		UserInfo:  req.UserInfo,
		DryRun:    &req.DryRun,
	}
}

// exemption says which rules may not refuse a request, and only warn. A pause is what one wants when rules, or their authors, are wrong; so
// no rule may prevent it. The same is true of one policy that is turned to observation.
type exemption int

const (
	noRules exemption = iota
	// guardrailRules, for the creation of a Guardrail that says nothing but paused: true. Built-in rules judge its name.
	guardrailRules
	// allRules, for an update that does nothing but pause, or turn a policy from Enforce to Observe; where the API server can, it doesn't
	// even ask about a pause.
	allRules
)

// exemptionOf compares what rules see of an object; old is nil for a creation.
func exemptionOf(kind string, object, old map[string]any) exemption {
	changesOnly := func(field string) bool {
		return equality.Semantic.DeepEqual(specWithout(object, field), specWithout(old, field))
	}
	switch {
	case old != nil && observes(object) && !observes(old) && changesOnly("mode"):
		return allRules
	case kind != kindGuardrail || !isPaused(object) || isPaused(old) || !changesOnly("paused"):
		return noRules
	case old == nil:
		return guardrailRules
	}
	return allRules
}

func specOf(object map[string]any) map[string]any {
	spec, _ := object["spec"].(map[string]any)
	return spec
}

func isPaused(object map[string]any) bool {
	paused, _ := specOf(object)["paused"].(bool)
	return paused
}

func specWithout(object map[string]any, field string) map[string]any {
	spec := maps.Clone(specOf(object))
	delete(spec, field)
	return spec
}

// mustAdmit says whether a rule may not refuse the request, because that only ends acts.
func (e *evaluation) mustAdmit(r *compiledRule) bool {
	return e.exempt == allRules || e.exempt == guardrailRules && r.guardrail != ""
}
