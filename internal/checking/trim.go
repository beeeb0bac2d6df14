package checking

import (
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

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

// maxNames are shared: there are kinds in which names of fields are data. The first stay, which are those that objects have in common
// sooner than later ones.
const maxNames = 10_000

var fieldNames = names{known: map[string]string{}}

// names are shared texts. They are safe for concurrent use.
type names struct {
	mu    sync.Mutex
	known map[string]string // needs mu
}

func (n *names) shared(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known, ok := n.known[name]; ok {
		return known
	}
	if len(n.known) < maxNames {
		n.known[name] = name
	}
	return name
}

// withSharedNames gives a value whose maps have shared names.
func withSharedNames(value any) any {
	switch v := value.(type) {
	case map[string]any:
		all := make(map[string]any, len(v))
		for name, field := range v {
			all[fieldNames.shared(name)] = withSharedNames(field)
		}
		return all
	case []any:
		for i := range v {
			v[i] = withSharedNames(v[i])
		}
	}
	return value
}
