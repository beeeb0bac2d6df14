package registration

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	decl "k8s.io/apiserver/pkg/cel"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// TypeOf makes a CEL type of a kind's OpenAPI schema, in which references are resolved; nil where the schema leaves the fields open.
//
// Kubernetes' own conversion, openapi.SchemaDeclType, is for values that have a schema: times are no strings there, and fields of which it
// can't tell the type don't exist. Expressions of registrations read objects as JSON has them, so that a time is a string here, and what may
// be several things is dyn.
func TypeOf(kind schema.GroupVersionKind, s *spec.Schema) *decl.DeclType {
	t := typeOf(s, kind.GroupVersion().String()+" "+kind.Kind)
	if !t.IsObject() {
		return nil
	}
	for name, field := range fieldsOfAll {
		t.Fields[name] = field
	}
	return t
}

func typeOf(s *spec.Schema, name string) *decl.DeclType {
	if open(s) || len(s.Type) != 1 {
		return decl.DynType
	}
	switch s.Type[0] {
	case "object":
		return objectType(s, name)
	case "array":
		if s.Items != nil && s.Items.Schema != nil {
			return listOf(typeOf(s.Items.Schema, name+"[]"))
		}
	case "string":
		return decl.StringType
	case "integer":
		return decl.IntType
	case "boolean":
		return decl.BoolType
	}
	return decl.DynType // a number without decimals is an int in JSON that was read
}

// objectType is a map where keys are free, and an object where they are told.
func objectType(s *spec.Schema, name string) *decl.DeclType {
	switch values := s.AdditionalProperties; {
	case values != nil && values.Schema != nil:
		return mapOf(typeOf(values.Schema, name+"[]"))
	case values != nil && values.Allows, len(s.Properties) == 0:
		return decl.DynType
	}
	fields := map[string]*decl.DeclType{}
	for field, of := range s.Properties {
		fields[field] = typeOf(&of, name+"."+field)
	}
	return newObject(name, fields)
}

// open says that a value may be what the schema doesn't tell.
func open(s *spec.Schema) bool {
	for _, extension := range []string{"x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"} {
		if is, _ := s.Extensions.GetBool(extension); is {
			return true
		}
	}
	return s.Format == "int-or-string" // of built-in kinds
}

// fieldsOfAll are the fields that objects of all kinds have.
var fieldsOfAll = newObject("", map[string]*decl.DeclType{
	"apiVersion": decl.StringType,
	"kind":       decl.StringType,
	"metadata": newObject("ObjectMeta", map[string]*decl.DeclType{
		"name":                       decl.StringType,
		"generateName":               decl.StringType,
		"namespace":                  decl.StringType,
		"selfLink":                   decl.StringType,
		"uid":                        decl.StringType,
		"resourceVersion":            decl.StringType,
		"generation":                 decl.IntType,
		"creationTimestamp":          decl.StringType,
		"deletionTimestamp":          decl.StringType,
		"deletionGracePeriodSeconds": decl.IntType,
		"labels":                     mapOf(decl.StringType),
		"annotations":                mapOf(decl.StringType),
		"finalizers":                 listOf(decl.StringType),
		"ownerReferences": listOf(newObject("OwnerReference", map[string]*decl.DeclType{
			"apiVersion":         decl.StringType,
			"kind":               decl.StringType,
			"name":               decl.StringType,
			"uid":                decl.StringType,
			"controller":         decl.BoolType,
			"blockOwnerDeletion": decl.BoolType,
		})),
		"managedFields": decl.DynType,
	}),
}).Fields

// anyKind is an object of a kind of which nothing else is known.
var anyKind = decl.NewObjectType("object of any kind", fieldsOfAll)

func newObject(name string, types map[string]*decl.DeclType) *decl.DeclType {
	fields := make(map[string]*decl.DeclField, len(types))
	for field, t := range types {
		fields[field] = decl.NewDeclField(field, t, false, nil, nil)
	}
	return decl.NewObjectType(name, fields)
}

// Nobody estimates costs by these types, so that nothing has a greatest size.

func listOf(t *decl.DeclType) *decl.DeclType { return decl.NewListType(t, 0) }

func mapOf(t *decl.DeclType) *decl.DeclType { return decl.NewMapType(decl.StringType, t, 0) }
