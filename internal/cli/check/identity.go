package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/manifest"
	"github.com/resourcestack/autohealer/internal/guard"
)

// Key is what makes two manifests one object.
type Key struct{ Kind, Namespace, Name string }

// KeyOf is an object's key, its namespace as it would be stored.
func (c *Checker) KeyOf(object map[string]any) Key {
	r := identify(object)
	key := Key{Kind: r.Kind, Namespace: cmp.Or(r.Namespace, c.Namespace), Name: r.Name}
	d := c.definitions[schema.FromAPIVersionAndKind(text(object, "apiVersion"), r.Kind)]
	if d != nil && !d.namespaced {
		key.Namespace = metav1.NamespaceNone
	}
	return key
}

func identify(object map[string]any) Report {
	var r Report
	r.Kind, _ = object["kind"].(string)
	metadata, _ := object["metadata"].(map[string]any)
	r.Name, _ = metadata["name"].(string)
	r.Namespace, _ = metadata["namespace"].(string)
	return r
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

// Stranger warns of a document that is none of ours but by its kind: a misspelt API group would let anything pass unjudged.
func (c *Checker) Stranger(d manifest.Document) (Report, bool) {
	r := identify(d.Object)
	for gvk := range c.definitions {
		if gvk.Kind != r.Kind {
			continue
		}
		r.File, r.Line, r.Allowed = d.File, d.Line, true
		r.Violations = []Violation{{
			Rule: RuleKind, Severity: guard.Warn, Field: "apiVersion", Line: d.LineOf("apiVersion"), Docs: Docs(RuleKind),
			Message: fmt.Sprintf("apiVersion %q is not Autohealer's, so nothing is checked; if this is Autohealer's %s, write apiVersion: %s",
				text(d.Object, "apiVersion"), r.Kind, gvk.GroupVersion()),
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

func text(object map[string]any, name string) string {
	value, _ := object[name].(string)
	return value
}
