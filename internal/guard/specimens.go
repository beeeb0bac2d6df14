package guard

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/resourcestack/autohealer/internal/guard/catalog"
)

// Specimen is an object that shows its kind.
type Specimen struct {
	Kind string
	// Rule has the case that it comes from; it refuses the object that is refused.
	Rule string
	Test
}

// Specimens of a kind are those cases of its catalogue that are marked so.
func Specimens(kind string) (admitted, refused Specimen, err error) {
	c, err := parseCatalogue(catalog.FS, strings.ToLower(kind)+".yaml")
	if err != nil {
		return admitted, refused, err
	}
	for _, r := range c.Rules {
		for _, t := range r.Tests {
			switch s := (Specimen{Kind: kind, Rule: r.ID, Test: t}); {
			case t.Specimen && t.Expect == ExpectAdmit:
				admitted = s
			case t.Specimen && t.Expect == ExpectDeny:
				refused = s
			}
		}
	}
	if admitted.Kind == "" || refused.Kind == "" {
		return admitted, refused, fmt.Errorf("the catalogue of %s lacks a specimen: that is admitted, or that is refused", kind)
	}
	return admitted, refused, nil
}

// Made is the object as if it were made now: the times in its spec are as far away as they were when the test's object was made.
func (s Specimen) Made(now time.Time) (*unstructured.Unstructured, error) {
	content, err := testObject(s.Kind, s.Object)
	if err != nil {
		return nil, fmt.Errorf("read a specimen of %s: %w", s.Kind, err)
	}
	object := &unstructured.Unstructured{Object: content}
	spec, _ := content["spec"].(map[string]any)
	for field, value := range spec {
		text, _ := value.(string)
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			spec[field] = now.Add(at.Sub(object.GetCreationTimestamp().Time)).UTC().Format(time.RFC3339)
		}
	}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	return object, nil
}
