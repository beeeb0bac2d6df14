package snapshot

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// trimmer takes out of objects what nobody reads: neither planners nor, of what health checks look at, the stored registrations.
type trimmer struct {
	fields registration.Fields
	kinds  map[schema.GroupVersionKind]*kept
}

func newTrimmer(fields registration.Fields) *trimmer {
	return &trimmer{fields: fields, kinds: map[schema.GroupVersionKind]*kept{}}
}

// trim gives an object with what is read of it, and who it is. Of policies all is; of a Secret its values never are.
func (t *trimmer) trim(object *unstructured.Unstructured) *unstructured.Unstructured {
	kind := object.GroupVersionKind()
	if kind.Group == v1alpha1.GroupVersion.Group {
		t.kinds[kind] = &kept{whole: true}
	}
	if t.kinds[kind] == nil {
		t.kinds[kind] = t.keptOf(kind)
	}
	trimmed := &unstructured.Unstructured{Object: t.kinds[kind].of(object.Object).(map[string]any)}
	unstructured.RemoveNestedField(trimmed.Object, "metadata", "managedFields")
	unstructured.RemoveNestedField(trimmed.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
	if kind == secretKind {
		withoutValues(trimmed)
	}
	if len(trimmed.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(trimmed.Object, "metadata", "annotations")
	}
	return trimmed
}

// withoutValues takes out of a Secret all but its keys, and what was found out of them.
func withoutValues(secret *unstructured.Unstructured) {
	annotations := secret.GetAnnotations()
	maps.DeleteFunc(annotations, func(name, _ string) bool {
		return !strings.HasPrefix(name, serverOf) && !strings.HasPrefix(name, refusalOf) && !strings.HasPrefix(name, missingOf)
	})
	secret.SetAnnotations(annotations)
	data, _, _ := unstructured.NestedMap(secret.Object, "data")
	for key := range data {
		data[key] = ""
	}
	secret.Object["data"] = data
}

func (t *trimmer) keptOf(kind schema.GroupVersionKind) *kept {
	all := &kept{}
	all.add("apiVersion|kind")
	all.add("metadata", "name|namespace|labels|generation|deletionTimestamp")
	all.add("metadata", "annotations", strings.Join(annotations, "|"))
	if r := kindOf(kind.GroupKind()); r != nil {
		for _, field := range r.keeps {
			all.add(strings.Split(field, ".")...)
		}
	}
	for path := range t.fields[kind] {
		if path == "" {
			all.whole = true
			continue
		}
		all.add(strings.Split(path, ".")...)
	}
	return all
}

// kept is what is kept of a value.
type kept struct {
	whole  bool
	fields map[string]*kept
	// each is what is kept of each entry of a list.
	each *kept
}

// add takes in a path. Names with a | between are paths each.
func (k *kept) add(path ...string) {
	if len(path) == 0 {
		k.whole = true
		return
	}
	names, isList := strings.CutSuffix(path[0], "[]")
	for name := range strings.SplitSeq(names, "|") {
		if k.fields == nil {
			k.fields = map[string]*kept{}
		}
		next := k.fields[name]
		if next == nil {
			next = &kept{}
			k.fields[name] = next
		}
		if isList {
			if next.each == nil {
				next.each = &kept{}
			}
			next = next.each
		}
		next.add(path[1:]...)
	}
}

// of copies what is kept. A path that leads into something without fields has all of it.
func (k *kept) of(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if k.whole || k.fields == nil {
			break
		}
		some := map[string]any{}
		for name, inner := range k.fields {
			if field, there := v[name]; there {
				some[name] = inner.of(field)
			}
		}
		return some
	case []any:
		if k.whole || k.fields != nil || k.each == nil {
			break
		}
		some := make([]any, 0, len(v))
		for _, entry := range v {
			if one := k.each.of(entry); !empty(one) {
				some = append(some, one)
			}
		}
		return some
	}
	return runtime.DeepCopyJSONValue(value)
}

// empty says that nothing is left of a list's entry.
func empty(value any) bool {
	fields, isMap := value.(map[string]any)
	return isMap && len(fields) == 0
}
