package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/manifest"
	"github.com/resourcestack/autohealer/internal/domain/docs"
	"github.com/resourcestack/autohealer/internal/guard"
)

// Rules of the text and the schema. They are no catalogue's: whoever breaks them never gets as far as the catalogue.
const (
	RuleUndecodable     = "manifest/" + string(manifest.Undecodable)
	RuleDuplicateKey    = "manifest/" + string(manifest.DuplicateKey)
	RuleDuplicateObject = "manifest/duplicate-object"
	RuleKind            = "manifest/kind"
	RuleUnknownField    = "schema/unknown-field"
	RuleValue           = "schema/value"
)

// Report is what would be said of one object.
type Report struct {
	// File and Line of the object; empty when it came without.
	File string `json:"file"`
	Line int    `json:"line"`
	// Kind, Namespace and Name, as far as they can be read.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Allowed: the API server, the policy and the webhook would store it, as far as they could be asked.
	Allowed bool `json:"allowed"`
	// Violations, those of text and schema first.
	Violations []Violation `json:"violations"`
	// Skipped rules could not be asked.
	Skipped []guard.Skip `json:"skipped"`
	// Stored is the object as it would be stored, defaults filled in; nil when its schema refuses it.
	Stored map[string]any `json:"-"`
	// RuleSetHash names the catalogue that judged; empty when it didn't come to that.
	RuleSetHash string `json:"-"`
}

// Violation is one thing wrong, or one warning.
type Violation struct {
	Rule     string         `json:"rule"`
	Severity guard.Severity `json:"severity"`
	// Message is the text that the API server or the webhook gives.
	Message string `json:"message"`
	// Field that the schema refuses, as the API server names it; "" when the rule is about the whole object.
	Field string `json:"field,omitempty"`
	// Line of the field, or of the object.
	Line int `json:"line"`
	// Docs is where the rule is explained on the web, or the Guardrail that it is in.
	Docs string `json:"-"`
}

// Repeats warns that the object is one that was there before.
func (r *Report) Repeats(first Report) {
	r.Violations = append(r.Violations, Violation{
		Rule: RuleDuplicateObject, Severity: guard.Warn, Line: r.Line, Docs: Docs(RuleDuplicateObject),
		Message: fmt.Sprintf("%s:%d has the same object already; the one that is applied last replaces the other, so remove one of them", first.File, first.Line),
	})
}

// refuses says whether anything refuses the object.
func (r *Report) refuses() bool { return r.has(guard.Deny) }

// Warns says whether there is a warning; a rule that lacked something to ask is none.
func (r *Report) Warns() bool { return r.has(guard.Warn) }

func (r *Report) has(severity guard.Severity) bool {
	return slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Severity == severity }) ||
		slices.ContainsFunc(r.Skipped, func(s guard.Skip) bool { return s.Severity == severity && s.Missing == "" })
}

// Docs is where a rule of text or schema is explained on the web.
func Docs(rule string) string { return docs.Base + "docs/reference/cli.md#" + guard.Anchor(rule) }

// Key is what makes two manifests one object.
type Key struct{ Kind, Namespace, Name string }

// KeyOf is an object's key, its namespace as it would be stored.
func (c *Checker) KeyOf(object map[string]any) Key {
	r := identify(object)
	key := Key{Kind: r.Kind, Namespace: cmp.Or(r.Namespace, c.Namespace), Name: r.Name}
	d := c.definitions[gvkOf(object)]
	if d != nil && !d.namespaced {
		key.Namespace = metav1.NamespaceNone
	}
	return key
}

func identify(object map[string]any) Report {
	u := unstructured.Unstructured{Object: object}
	return Report{Kind: u.GetKind(), Name: u.GetName(), Namespace: u.GetNamespace()}
}

func gvkOf(object map[string]any) schema.GroupVersionKind {
	u := unstructured.Unstructured{Object: object}
	return schema.FromAPIVersionAndKind(u.GetAPIVersion(), u.GetKind())
}

// Ours says whether a document is of our API group, or of none that can be read: others are nobody's business here.
func Ours(d manifest.Document) bool {
	if d.Object == nil {
		return true
	}
	apiVersion, isText := d.Object["apiVersion"].(string)
	if !isText || apiVersion == "" {
		return !d.IsKustomization()
	}
	group, _, _ := strings.Cut(apiVersion, "/")
	return group == v1alpha1.GroupVersion.Group
}

// ForeignKindWarning warns of a document that is none of ours but by its kind: a misspelt API group would let anything pass unjudged.
func (c *Checker) ForeignKindWarning(d manifest.Document) (Report, bool) {
	r := identify(d.Object)
	for gvk := range c.definitions {
		if gvk.Kind != r.Kind {
			continue
		}
		r.File, r.Line, r.Allowed = d.File, d.Line, true
		r.Violations = []Violation{{
			Rule: RuleKind, Severity: guard.Warn, Field: "apiVersion", Line: d.LineOf("apiVersion"), Docs: Docs(RuleKind),
			Message: fmt.Sprintf("apiVersion %q is not Autohealer's, so nothing is checked; if this is Autohealer's %s, write apiVersion: %s",
				d.Object["apiVersion"], r.Kind, gvk.GroupVersion()),
		}}
		return r, true
	}
	return Report{}, false
}

func (c *Checker) noSuchKind(gvk schema.GroupVersionKind) string {
	if gvk.Kind == "" || gvk.Version == "" {
		return "apiVersion and kind are required"
	}
	var versions, kinds []string
	for k := range c.definitions {
		kinds = append(kinds, k.Kind)
		if k.Kind == gvk.Kind {
			versions = append(versions, k.GroupVersion().String())
		}
	}
	known := "the kinds " + strings.Join(slices.Compact(slices.Sorted(slices.Values(kinds))), ", ")
	if len(versions) > 0 {
		known = "it in " + strings.Join(slices.Sorted(slices.Values(versions)), ", ")
	}
	return fmt.Sprintf("no matches for kind %q in version %q; this program knows %s", gvk.Kind, gvk.GroupVersion(), known)
}
