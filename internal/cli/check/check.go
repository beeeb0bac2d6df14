// Package check tells without a cluster what the API server, the admission policy and the webhook would say of an object:
// the CRDs' schema and rules by the API server's own code, then the catalogue's rules by the webhook's own engine.
package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/crds"
	"github.com/resourcestack/autohealer/internal/cli/manifest"
	"github.com/resourcestack/autohealer/internal/guard"
)

// Options of a Checker.
type Options struct {
	// Options of the engine that judges. Rules that need what isn't given, such as facts of a cluster, are listed as skipped. Autohealer's
	// namespace is DefaultNamespace by default.
	guard.Options
	// Guardrails whose rules judge too, and Exceptions to rules.
	Guardrails []*v1alpha1.Guardrail
	Exceptions []*v1alpha1.GuardrailException
	// Namespace of objects that name none. Default: default.
	Namespace string
}

// Checker tells what would be said of objects.
type Checker struct {
	guard       *guard.Guard
	definitions map[schema.GroupVersionKind]*definition
	// Namespace of objects that name none.
	Namespace  string
	factsGiven bool
	// Guardrails that were given, with what is wrong with them, in their order.
	Guardrails []guard.GuardrailResult
}

// builtin CRDs are compiled once: they don't change, and may be used by several at a time.
var builtin = sync.OnceValues(func() (map[schema.GroupVersionKind]*definition, error) { return readDefinitions(crds.FS) })

// DefaultNamespace is where config/default installs Autohealer.
const DefaultNamespace = "autohealer-system"

// New compiles the CRDs and the catalogue that this program was built with.
//
//nolint:contextcheck,nolintlint // compiling waits for nothing, so Guardrails take no context; it is callers that are warned
func New(opts Options) (*Checker, error) {
	definitions, err := builtin()
	if err != nil {
		return nil, err
	}
	opts.OwnNamespace = cmp.Or(opts.OwnNamespace, DefaultNamespace)
	g, err := guard.New(opts.Options)
	if err != nil {
		return nil, err
	}
	c := &Checker{guard: g, definitions: definitions, Namespace: cmp.Or(opts.Namespace, metav1.NamespaceDefault), factsGiven: opts.Facts != nil}
	c.SetPolicies(opts.Guardrails, opts.Exceptions)
	return c, nil
}

// SetPolicies puts Guardrails and exceptions in place of the former ones: what is checked next is judged by them.
func (c *Checker) SetPolicies(guardrails []*v1alpha1.Guardrail, exceptions []*v1alpha1.GuardrailException) {
	c.Guardrails = c.guard.SetGuardrails(guardrails)
	c.guard.SetExceptions(exceptions)
}

// Guard is the engine that judges.
func (c *Checker) Guard() *guard.Guard { return c.guard }

// Document checks an object with its place in a file. With old, it is checked as an update of that.
func (c *Checker) Document(ctx context.Context, d manifest.Document, old map[string]any) Report {
	var r Report
	if len(d.Problems) > 0 {
		r = identify(d.Object)
		for _, p := range d.Problems {
			rule := "manifest/" + string(p.Kind)
			r.Violations = append(r.Violations, Violation{Rule: rule, Severity: guard.Deny, Message: p.Message, Line: p.Line, Docs: Docs(rule)})
		}
	} else {
		r = c.Object(ctx, d.Object, old)
	}
	r.File, r.Line = d.File, d.Line
	for i, v := range r.Violations {
		if v.Line == 0 {
			r.Violations[i].Line = d.LineOf(v.Field)
		}
	}
	return r
}

// Object checks an object, which it leaves alone: first what the API server does on its own, then the rules. With old, it
// is checked as an update of that.
func (c *Checker) Object(ctx context.Context, object, old map[string]any) Report {
	r, stored, old := c.admit(ctx, object, old)
	if stored != nil {
		c.judge(ctx, &r, stored, old)
		r.Stored = stored
	}
	r.Allowed = !r.refuses()
	return r
}

// Storable says what the API server would of an object on its own, before any rule is asked.
func (c *Checker) Storable(ctx context.Context, object, old map[string]any) Report {
	r, stored, _ := c.admit(ctx, object, old)
	r.Allowed, r.Stored = !r.refuses(), stored
	return r
}

// admit does what the API server does on its own. It gives the object as it would be stored, nil when it is refused, and the old
// one as it is.
func (c *Checker) admit(ctx context.Context, object, old map[string]any) (r Report, stored, was map[string]any) {
	r = identify(object)
	gvk := gvkOf(object)
	d := c.definitions[gvk]
	if d == nil {
		r.deny(RuleKind, "kind", c.noSuchKind(gvk))
		return r, nil, nil
	}
	stored = runtime.DeepCopyJSON(object)
	unknown, err := d.decode(stored)
	if err != nil {
		r.deny(RuleUndecodable, "metadata", undecodable(err))
		return r, nil, nil
	}
	slices.Sort(unknown)
	for _, path := range unknown {
		r.deny(RuleUnknownField, path, fmt.Sprintf("unknown field %q%s", path, d.similarFields(path)))
	}
	old = d.readOld(old)
	d.prepare(stored, old, c.Namespace)
	errs := d.validate(ctx, stored, old)
	slices.SortStableFunc(errs, byField)
	reported := map[string]bool{} // labels are checked twice in an update
	for _, e := range errs {
		switch {
		case e.Detail == notChecked:
			r.Violations[len(r.Violations)-1].Message += remainder
		case !reported[e.Error()]:
			r.deny(RuleValue, fieldOf(e), describe(e))
		}
		reported[e.Error()] = true
	}
	if len(errs) > 0 {
		return r, nil, nil
	}
	return r, stored, old
}

func (r *Report) deny(rule, fieldPath, message string) {
	r.Violations = append(r.Violations, Violation{Rule: rule, Severity: guard.Deny, Message: message, Field: fieldPath, Docs: Docs(rule)})
}

// byField orders what the API server names in the order of a map; what is about the whole object comes last.
func byField(a, b *field.Error) int {
	if nowhere := fieldOf(a) == ""; nowhere != (fieldOf(b) == "") {
		if nowhere {
			return 1
		}
		return -1
	}
	return strings.Compare(a.Field, b.Field)
}

func fieldOf(e *field.Error) string {
	if of := overflow.FindStringSubmatch(e.Detail); of != nil {
		return of[2]
	}
	if e.Field == "<nil>" {
		return ""
	}
	return e.Field
}

// readOld reads a stored object as the API server reads it from its store.
func (d *definition) readOld(old map[string]any) map[string]any {
	if old == nil {
		return nil
	}
	old = runtime.DeepCopyJSON(old)
	if _, err := d.decode(old); err != nil {
		return nil // it can't have been stored like that
	}
	if o := (unstructured.Unstructured{Object: old}); o.GetResourceVersion() == "" { // it came from a file
		o.SetResourceVersion("1")
	}
	return old
}

// prepare sets what the API server sets, whatever the author wrote: namespace, status and, from the old object, identity.
func (d *definition) prepare(object, old map[string]any, namespace string) {
	o := unstructured.Unstructured{Object: object}
	switch {
	case !d.namespaced:
		o.SetNamespace(metav1.NamespaceNone)
	case o.GetNamespace() == "":
		o.SetNamespace(namespace)
	}
	if d.hasStatus {
		delete(object, "status")
	}
	if old == nil {
		if o.GetName() == "" && o.GetGenerateName() != "" {
			o.SetName(o.GetGenerateName() + "xxxxx")
		}
		o.SetGeneration(1)
		return
	}
	before := unstructured.Unstructured{Object: old}
	if status, ok := old["status"]; ok && d.hasStatus {
		object["status"] = status
	}
	o.SetNamespace(before.GetNamespace())
	o.SetResourceVersion(before.GetResourceVersion())
	o.SetUID(before.GetUID())
	o.SetGeneration(before.GetGeneration())
	o.SetCreationTimestamp(before.GetCreationTimestamp())
	o.SetDeletionTimestamp(before.GetDeletionTimestamp())
}

// requestOf is what an API server would ask; it has read objects from JSON, so they can be written as such.
func requestOf(kind string, object, old map[string]any) guard.Request {
	request := guard.Request{Operation: admissionv1.Create, Kind: kind, Object: jsonOf(object)}
	if old != nil {
		request.Operation, request.OldObject = admissionv1.Update, jsonOf(old)
	}
	return request
}

func jsonOf(object map[string]any) []byte {
	return []byte(runtime.EncodeOrDie(unstructured.UnstructuredJSONScheme, &unstructured.Unstructured{Object: object}))
}

// judge asks the catalogue's rules.
func (c *Checker) judge(ctx context.Context, r *Report, object, old map[string]any) {
	verdict := c.guard.Review(ctx, requestOf(r.Kind, object, old))
	r.RuleSetHash = verdict.RuleSetHash
	for _, v := range verdict.Violations {
		// What follows the link: that an exception lifts the rule, or that the update leaves the mistake as it was.
		remark := strings.TrimPrefix(v.String(), fmt.Sprintf("%s: %s (%s)", v.Rule, v.Message, v.Docs))
		r.Violations = append(r.Violations, Violation{Rule: v.Rule, Severity: v.Severity, Message: v.Message + remark, Docs: v.Docs})
	}
	for _, skip := range verdict.Skipped {
		skip.Docs = cmp.Or(skip.Docs, guard.Docs(skip.Rule))
		switch {
		case skip.Missing == guard.MissingFacts && c.factsGiven:
			skip.Reason = "needs more of the cluster than these facts hold; facts export writes them again, except for schemas, which only a cluster has"
		case skip.Missing == guard.MissingFacts:
			skip.Reason = "needs facts of a cluster (--facts or --live)"
		case skip.Missing == guard.MissingAuthorizer:
			skip.Reason = "asks about rights, which only an API server knows (--live)"
		case skip.Missing == guard.MissingRequest:
			skip.Reason = "judges who asks, and nobody does here (kubectl apply --dry-run=server)"
		}
		r.Skipped = append(r.Skipped, skip)
	}
}
