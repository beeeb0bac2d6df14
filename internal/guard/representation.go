package guard

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/json"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// judged is an object as rules see it, at admission and at run time: as its Go type, which planners read and leave as it is, and as
// the content that this type writes, of which there is what rules may read. So `paused: false` and no paused are the same, and has()
// says the same of them whoever asks: what controllers read has been through that type. The zero value is no object.
type judged struct {
	typed   client.Object // nil where the content can't be read as its type
	content map[string]any
}

// judgedOf is a stored object, or one that is to be.
func judgedOf(kind string, obj client.Object) (judged, error) {
	if u, isUnstructured := obj.(runtime.Unstructured); isUnstructured {
		typed, err := newObject(kind)
		if err != nil {
			return judged{}, err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.UnstructuredContent(), typed); err != nil {
			return judged{}, fmt.Errorf("read %s: %w", kind, err)
		}
		obj = typed
	}
	value := reflect.ValueOf(obj).Elem()
	metadata, isMetadata := value.FieldByName("ObjectMeta").Interface().(metav1.ObjectMeta)
	if !isMetadata {
		return judged{}, fmt.Errorf("%T has no metadata", obj)
	}
	metadata.ManagedFields = nil // as long as all else
	written, metadataErr := runtime.DefaultUnstructuredConverter.ToUnstructured(&metadata)
	spec, specErr := runtime.DefaultUnstructuredConverter.ToUnstructured(value.FieldByName("Spec").Addr().Interface())
	if err := errors.Join(metadataErr, specErr); err != nil {
		return judged{}, fmt.Errorf("convert %s: %w", kind, err)
	}
	dropNulls(spec)
	// An object from an informer doesn't say what kind it is.
	content := map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "metadata": selectFields(written, judgedMetadata), "spec": spec}
	return judged{typed: obj, content: content}, nil
}

// What most requests have less of: bytes, those of both objects of an update together, and entries of a list or a map. A schema bounds these
// only for what comes from an API server, and anyone may reach the webhook.
const maxSmallRequest, maxSmallList = 8 << 10, 32

// small says that no list or map has many entries.
func small(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, field := range v {
			if !small(field) {
				return false
			}
		}
		return len(v) <= maxSmallList
	case []any:
		return len(v) <= maxSmallList && !slices.ContainsFunc(v, func(item any) bool { return !small(item) })
	}
	return true
}

// newObject is an empty one of a kind.
func newObject(kind string) (client.Object, error) {
	made, err := scheme.New(v1alpha1.GroupVersion.WithKind(kind))
	if err != nil {
		return nil, fmt.Errorf("make a %q: %w", kind, err)
	}
	object, isObject := made.(client.Object)
	if !isObject {
		return nil, fmt.Errorf("%T is no object", made)
	}
	return object, nil
}

// readObject reads JSON as an API server does. What the type doesn't know isn't even looked at: it would take thirty times the memory
// of its text.
func readObject(kind string, text []byte) (client.Object, error) {
	object, err := newObject(kind)
	if err != nil {
		return nil, err
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(text, object); err != nil {
		if what, isMisfit := TypeMismatch(err, ""); isMisfit {
			return nil, fmt.Errorf("the %s can't be read: %s", kind, what)
		}
		return nil, fmt.Errorf("read %s: %w", kind, err)
	}
	return object, nil
}

// read gives what is judged as its Go type, nil when there is no object.
func read[T any](j judged) (*T, error) {
	if j.content == nil {
		return nil, nil
	}
	object, ok := any(j.typed).(*T)
	if !ok {
		return nil, fmt.Errorf("it is no %T", object)
	}
	return object, nil
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

// judgedMetadata are the fields of metadata that rules may read.
var judgedMetadata = []string{"annotations", "creationTimestamp", "generateName", "generation", "labels", "name", "namespace", "uid"}

// judgedFields are the fields of an object that rules may read. When another one changes nobody judges the object again: a
// rule over status or finalizers would say at one time what it no longer does at another.
var judgedFields = []string{"apiVersion", "kind", "metadata", "spec"}

// readableContent leaves out of what can't be read as its type what rules may not read, also by dyn().
func readableContent(content map[string]any) map[string]any {
	if content == nil {
		return nil
	}
	readable := selectFields(content, judgedFields)
	if metadata, isMap := readable["metadata"].(map[string]any); isMap {
		readable["metadata"] = selectFields(metadata, judgedMetadata)
	}
	return readable
}

// selectFields is what there is of some fields.
func selectFields(from map[string]any, fields []string) map[string]any {
	picked := map[string]any{}
	for _, field := range fields {
		if value := from[field]; value != nil {
			picked[field] = value
		}
	}
	return picked
}

// readableFields is said to those who try to read another field of an object or its metadata, "" to others.
func readableFields(expression, field string) string {
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

// TypeMismatch says in the terms of a manifest what a decoder says of JSON that doesn't fit a Go type; false for any other error. The field
// is one below a parent, "" for the whole.
func TypeMismatch(err error, parent string) (string, bool) {
	of, isMisfit := errors.AsType[*stdjson.UnmarshalTypeError](err)
	if !isMisfit {
		return "", false
	}
	at := strings.Trim(parent+"."+of.Field, ".")
	if at == "" {
		at = "the value"
	}
	if of.Type == nil {
		return at + " has a value of the wrong type", true
	}
	is, _, _ := strings.Cut(of.Value, " ") // of a number that doesn't fit it says which
	want := typeName(of.Type)
	if is == "number" && is != of.Value {
		return at + " has " + of.Value + ", which is too large or has a fraction; write " + want, true
	}
	return at + " has " + jsonTypeNames[is] + " where " + want + " belongs", true
}

// jsonTypeNames are the types of JSON as people call them.
var jsonTypeNames = map[string]string{"string": "a string", "number": "a number", "bool": "true or false", "array": "a list", "object": "a map"}

// typeName are the types of Go as people call them.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return jsonTypeNames["string"]
	case reflect.Bool:
		return jsonTypeNames["bool"]
	case reflect.Float32, reflect.Float64:
		return jsonTypeNames["number"]
	case reflect.Slice, reflect.Array:
		return jsonTypeNames["array"]
	case reflect.Struct, reflect.Map:
		return jsonTypeNames["object"]
	case reflect.Pointer:
		return typeName(t.Elem())
	}
	return "an integer"
}
