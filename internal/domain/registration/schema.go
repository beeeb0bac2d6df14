package registration

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	decl "k8s.io/apiserver/pkg/cel"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/resourcestack/autohealer/internal/domain/health"
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

// objectType is a map where keys are free, and an object where they are given.
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

// Fields are the parts of objects that registrations read, by kind, as names with dots; "" is the whole object.
type Fields map[schema.GroupVersionKind]sets.Set[string]

// Add adds what a registration reads of its targets, and of what its checks look at in the seed.
func (f Fields) Add(r *Registration) {
	f.add(r.Kind, "status.conditions")
	if r.targetType != "" {
		f.add(r.Kind, strings.Join(r.typePath, "."))
	}
	if path, known := workersAt[r.Kind.GroupKind()]; known {
		f.add(r.Kind, strings.Join(path, "."))
	}
	for kind, path := range r.reads() {
		f.add(kind, dotted(path))
	}
	for _, c := range r.Checks {
		if c.InSeed() && (c.byStatus || c.builtin) {
			f.add(c.Kind, health.FieldsRead...)
		}
	}
}

func (f Fields) add(kind schema.GroupVersionKind, paths ...string) {
	if f[kind] == nil {
		f[kind] = sets.New[string]()
	}
	f[kind].Insert(paths...)
}

// dotted names the field at a path. One with a dot in its own name, as a label has, is read with all that it is in.
func dotted(path []string) string {
	if i := slices.IndexFunc(path, func(step string) bool { return strings.Contains(step, ".") }); i >= 0 {
		path = path[:i]
	}
	return strings.Join(path, ".")
}

// Missing are the parts that others have and these don't, as "Kind: spec.x", sorted.
func (f Fields) Missing(others Fields) []string {
	var lacking []string
	for kind, paths := range others {
		for path := range paths {
			if !f.covers(kind, path) {
				lacking = append(lacking, kind.Kind+": "+path)
			}
		}
	}
	slices.Sort(lacking)
	return lacking
}

func (f Fields) covers(kind schema.GroupVersionKind, path string) bool {
	if strings.HasPrefix(path, "metadata.") && slices.Contains(alwaysKept, strings.TrimPrefix(path, "metadata.")) {
		return f[kind] != nil
	}
	for has := range f[kind] {
		if has == "" || has == path || strings.HasPrefix(path, has+".") {
			return true
		}
	}
	return false
}

// alwaysKept of metadata, whatever is read, as facts are.
var alwaysKept = []string{"name", "namespace", "labels", "generation", "deletionTimestamp"}

// Prune takes out of an object what isn't at one of the paths. Who it is, its metadata and its status stay as they are, so that what is
// written is planned from what is stored.
func Prune(object *unstructured.Unstructured, paths sets.Set[string]) {
	if paths.Has("") {
		return
	}
	pruned := map[string]any{}
	for _, whole := range []string{"apiVersion", "kind", "metadata", "status"} {
		if value, there := object.Object[whole]; there {
			pruned[whole] = value
		}
	}
	for path := range paths {
		if steps := strings.Split(path, "."); steps[0] != "metadata" && steps[0] != "status" {
			copyPath(pruned, object.Object, steps)
		}
	}
	object.Object = pruned
}

// Union gives the fields, and those of others.
func (f Fields) Union(others Fields) Fields {
	all := maps.Clone(f)
	for kind, paths := range others {
		all[kind] = all[kind].Union(paths)
	}
	return all
}

// copyPath copies what is at a path, or at the last of its fields that has no fields itself.
func copyPath(into, from map[string]any, path []string) {
	value, there := from[path[0]]
	if !there {
		return
	}
	inner, isMap := value.(map[string]any)
	if len(path) == 1 || !isMap {
		into[path[0]] = runtime.DeepCopyJSONValue(value)
		return
	}
	next, ok := into[path[0]].(map[string]any)
	if !ok {
		next = map[string]any{}
		into[path[0]] = next
	}
	copyPath(next, inner, path[1:])
}
