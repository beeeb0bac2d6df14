package health

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Layout is how a kind keeps conditions.
type Layout struct {
	Shape Shape
	// Map: the list is a map by type, in which field managers own entries. Else it is atomic.
	Map bool
	// Unsupported is what conditions can't have. NoProgressing: that is status Progressing.
	Unsupported   Unsupported
	NoProgressing bool
	// Problem says why no condition can be written; "" when it can.
	Problem string
}

// LayoutOf reads from a CustomResourceDefinition how the kind's version keeps conditions.
func LayoutOf(definition *unstructured.Unstructured, version string) Layout {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	i := slices.IndexFunc(versions, func(v any) bool {
		entry, ok := v.(map[string]any)
		return ok && stringField(entry, "name") == version
	})
	if i < 0 {
		return Layout{Problem: "the kind has no version " + version}
	}
	entry := versions[i].(map[string]any)
	if served, _, _ := unstructured.NestedBool(entry, "served"); !served {
		return Layout{Problem: "version " + version + " isn't served"}
	}
	if _, ok, _ := unstructured.NestedMap(entry, "subresources", "status"); !ok {
		return Layout{Problem: "the kind has no status subresource"}
	}
	root, _, _ := unstructured.NestedMap(entry, "schema", "openAPIV3Schema")
	status, ok, _ := unstructured.NestedMap(root, "properties", "status")
	switch {
	case !ok && keepsUnknown(root):
		return Layout{Shape: Conditions}
	case !ok:
		return Layout{Problem: "the schema has no status, so what is written there would be pruned"}
	}
	return layoutOfStatus(status)
}

func layoutOfStatus(status map[string]any) Layout {
	list, ok, _ := unstructured.NestedMap(status, "properties", "conditions")
	switch {
	case !ok && keepsUnknown(status):
		return Layout{Shape: Conditions}
	case !ok:
		return Layout{Problem: "the schema has no status.conditions, so what is written there would be pruned"}
	case stringField(list, "type") != "array":
		return Layout{Problem: "status.conditions isn't a list"}
	}
	keys, _, _ := unstructured.NestedStringSlice(list, "x-kubernetes-list-map-keys")
	items, _, _ := unstructured.NestedMap(list, "items")
	layout := shapeOf(items)
	layout.Map = stringField(list, "x-kubernetes-list-type") == "map"
	if layout.Map && !slices.Equal(keys, []string{"type"}) {
		return Layout{Problem: "status.conditions is a map, but not by type"}
	}
	if layout.Problem != "" || keepsUnknown(items) {
		return layout
	}
	fields, _, _ := unstructured.NestedMap(items, "properties")
	missing := func(field string) bool { _, has := fields[field]; return !has }
	layout.Unsupported = Unsupported{Codes: missing("codes"), ObservedGeneration: missing("observedGeneration"), LastUpdateTime: missing("lastUpdateTime")}
	for _, field := range []string{"type", "status", "reason", "message", "lastTransitionTime"} {
		if missing(field) {
			return Layout{Problem: "the schema of status.conditions has no " + field + ", which would be pruned"}
		}
	}
	return layout
}

// shapeOf reads the shape from the schema of one condition. Where Progressing isn't allowed, it would be refused, and with it when it
// began.
func shapeOf(items map[string]any) Layout {
	fields, _, _ := unstructured.NestedMap(items, "properties")
	allowed, limited, _ := unstructured.NestedStringSlice(fields, "status", "enum")
	refused := limited && !slices.Contains(allowed, string(Progressing))
	if _, ok := fields["lastUpdateTime"]; !ok {
		return Layout{Shape: Conditions, NoProgressing: refused}
	}
	if !refused {
		return Layout{Shape: Gardener}
	}
	required, _, _ := unstructured.NestedStringSlice(items, "required")
	if slices.Contains(required, "lastUpdateTime") {
		return Layout{Problem: "the schema of status.conditions requires lastUpdateTime, as Gardener's, but allows no status Progressing"}
	}
	return Layout{Shape: Conditions, NoProgressing: true}
}

func keepsUnknown(schema map[string]any) bool {
	keeps, _, _ := unstructured.NestedBool(schema, "x-kubernetes-preserve-unknown-fields")
	return keeps
}

// Unsupported is what the schema of a kind's conditions doesn't have of the fields that not all kinds have. An API server prunes these, so that
// each evaluation would find that they aren't there, and refuses to apply them.
type Unsupported struct {
	Codes              bool `json:"codes,omitempty"`
	ObservedGeneration bool `json:"observedGeneration,omitempty"`
	LastUpdateTime     bool `json:"lastUpdateTime,omitempty"`
}
