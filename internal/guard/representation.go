package guard

import (
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// contentOf is an object as rules see it, at admission and at run time: as its Go type writes it. So `paused: false` and no
// paused are the same, and has() says the same of them whoever asks: what controllers read has been through that type.
func contentOf(kind string, obj client.Object) (map[string]any, error) {
	if u, isUnstructured := obj.(runtime.Unstructured); isUnstructured {
		return canonical(kind, u.UnstructuredContent())
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("convert %s: %w", kind, err)
	}
	dropNulls(content)
	// An object from an informer doesn't say what kind it is.
	content["apiVersion"], content["kind"] = v1alpha1.GroupVersion.String(), kind
	return content, nil
}

// dropNulls removes fields that say nothing: an absent list that the type always writes is null.
func dropNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(_ string, field any) bool { return field == nil })
		for _, field := range v {
			dropNulls(field)
		}
	case []any:
		for _, item := range v {
			dropNulls(item)
		}
	}
}

// canonical brings what a user wrote into the form of contentOf.
func canonical(kind string, content map[string]any) (map[string]any, error) {
	typed, err := scheme.New(v1alpha1.GroupVersion.WithKind(kind))
	if err != nil {
		return nil, fmt.Errorf("make a %q: %w", kind, err)
	}
	object, isObject := typed.(client.Object)
	if !isObject {
		return nil, fmt.Errorf("%T is no object", typed)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, object); err != nil {
		return nil, fmt.Errorf("read %s: %w", kind, err)
	}
	return contentOf(kind, object)
}

// judgedMetadata are the fields of metadata that rules may read.
var judgedMetadata = []string{"annotations", "creationTimestamp", "generateName", "generation", "labels", "name", "namespace", "uid"}

// judgedFields are the fields of an object that rules may read. When another one changes nobody judges the object again: a
// rule over status or finalizers would say at one time what it no longer does at another.
var judgedFields = []string{"apiVersion", "kind", "metadata", "spec"}

// judgedPart leaves out of an object what rules may not read, also by dyn().
func judgedPart(content map[string]any) map[string]any {
	if content == nil {
		return nil
	}
	part := pick(content, judgedFields)
	if metadata, isMap := part["metadata"].(map[string]any); isMap {
		part["metadata"] = pick(metadata, judgedMetadata)
	}
	return part
}

// pick is what there is of some fields.
func pick(from map[string]any, fields []string) map[string]any {
	picked := map[string]any{}
	for _, field := range fields {
		if value := from[field]; value != nil {
			picked[field] = value
		}
	}
	return picked
}

// whatMayBeRead is said to those who try to read another field of an object or its metadata, "" to others.
func whatMayBeRead(expression, field string) string {
	of, fields := "", []string(nil)
	switch {
	case strings.Contains(expression, "bject.metadata."+field):
		of, fields = "metadata", judgedMetadata
	case strings.Contains(expression, "bject."+field): // of object or oldObject
		of, fields = "an object", judgedFields
	default:
		return ""
	}
	return fmt.Sprintf("; of %s a rule may read %s: a change of anything else isn't judged", of, strings.Join(fields, ", "))
}
