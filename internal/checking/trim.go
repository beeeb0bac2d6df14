package checking

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/lru"

	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// trimObject drops what isn't at one of the paths, and the copies of the whole object that its metadata may have. The names of fields
// that stay are shared among all objects: each one read from JSON has its own.
func trimObject(o *unstructured.Unstructured, paths sets.Set[string]) {
	registration.Prune(o, paths)
	if metadata, ok := o.Object["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
		if annotations, ok := metadata["annotations"].(map[string]any); ok && !readsAnnotations(paths) {
			delete(annotations, corev1.LastAppliedConfigAnnotation) // the map stays: patches depend on its being there
		}
	}
	o.Object = withSharedNames(o.Object).(map[string]any)
}

func readsAnnotations(paths sets.Set[string]) bool {
	for path := range paths {
		if path == "" || path == "metadata" || strings.HasPrefix(path, "metadata.annotations") {
			return true
		}
	}
	return false
}

// fieldNames are shared texts, so many of them: there are kinds in which names of fields are data.
var fieldNames = lru.New(10_000)

func shared(name string) string {
	if known, ok := fieldNames.Get(name); ok {
		return known.(string)
	}
	fieldNames.Add(name, name)
	return name
}

// withSharedNames gives a value whose maps have shared names.
func withSharedNames(value any) any {
	switch v := value.(type) {
	case map[string]any:
		all := make(map[string]any, len(v))
		for name, field := range v {
			all[shared(name)] = withSharedNames(field)
		}
		return all
	case []any:
		for i := range v {
			v[i] = withSharedNames(v[i])
		}
	}
	return value
}
