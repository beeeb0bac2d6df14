package dependents

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// found is what was read for one target's checks.
type found struct {
	target    *unstructured.Unstructured
	reg       *registration.Registration
	by        map[string]finding
	forbidden []error
	unsafe    string
}

type finding struct {
	objects []*unstructured.Unstructured
	err     error
	at      registration.Ref
}

func keyOf(ref registration.Ref) string {
	return fmt.Sprint(ref.Kind, ref.Namespace, "/", ref.Name, ref.Selector)
}

// Objects gives what a check looks at, of the seed alone.
func (f *found) Objects(check *registration.Check, ref registration.Ref) ([]*unstructured.Unstructured, error) {
	if check.Shoot {
		return nil, registration.ErrNotEvaluated
	}
	of := f.by[keyOf(ref)]
	return of.objects, of.err
}

// Resolve gives where what a check looks at really is.
func (f *found) Resolve(_ *registration.Check, ref registration.Ref) registration.Ref {
	if of, known := f.by[keyOf(ref)]; known {
		return of.at
	}
	return ref
}

// Nodes are the shoot's.
func (f *found) Nodes() ([]*corev1.Node, error) { return nil, registration.ErrNotEvaluated }

// of are the objects that the check looks at here.
func (f *found) of(check *registration.Check) []*unstructured.Unstructured {
	ref, err := check.Ref(f.target)
	if !check.InSeed() || err != nil {
		return nil
	}
	objects, _ := check.Filter(f.target, f.by[keyOf(ref)].objects) // that the expression fails the check itself tells
	return objects
}
