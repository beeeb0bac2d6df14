package checking

import (
	"context"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/shoots"
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

// Unserved says whether an error of Watch tells that the API server doesn't serve the kind, or not any more.
func Unserved(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// logWatchError logs what an informer's health takes in.
func logWatchError(ctx context.Context, r *toolscache.Reflector, err error) {
	log.FromContext(ctx).V(1).Info("Watch of what checks look at failed", "kind", r.TypeDescription(), "trouble", err.Error())
}

// Get gives an object as it was seen last; a NotFound error where there was none. The kind must be watched without an error.
func (w *Watches) Get(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) (*unstructured.Unstructured, error) {
	o := empty(kind)
	return o, w.cache.Get(ctx, key, o)
}

// List gives the objects of a kind in a namespace, "" for all, that a selector takes. They aren't to be changed.
func (w *Watches) List(ctx context.Context, kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*unstructured.Unstructured, error) {
	return list(ctx, w.cache, kind, namespace, selector)
}

func castAll[T client.Object](objects []client.Object, err error) ([]T, error) {
	all := make([]T, len(objects))
	for i, o := range objects {
		all[i] = o.(T)
	}
	return all, err
}

// read gives the objects that a check looks at; none where the one doesn't exist.
func read(ctx context.Context, from client.Reader, ref registration.Ref) ([]*unstructured.Unstructured, error) {
	if ref.Name == "" {
		return list(ctx, from, ref.Kind, ref.Namespace, ref.Selector)
	}
	o := empty(ref.Kind)
	err := from.Get(ctx, ref.Key(), o)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return []*unstructured.Unstructured{o}, err
}

func list(ctx context.Context, from client.Reader, kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*unstructured.Unstructured, error) {
	all := emptyList(kind)
	options := []client.ListOption{client.InNamespace(namespace), client.UnsafeDisableDeepCopy}
	if !selector.Empty() { // with one, a cache reads the labels of each object
		options = append(options, client.MatchingLabelsSelector{Selector: selector})
	}
	if err := from.List(ctx, all, options...); err != nil {
		return nil, err
	}
	objects := make([]*unstructured.Unstructured, len(all.Items))
	for i := range all.Items {
		objects[i] = &all.Items[i]
	}
	return objects, nil
}

func emptyList(kind schema.GroupVersionKind) *unstructured.UnstructuredList {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return all
}

func empty(kind schema.GroupVersionKind) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	return o
}

// query is what a check looks at in a shoot: the object of that name, or all that a selector takes.
type query struct {
	kind      schema.GroupVersionKind
	namespace string
	name      string
	selector  string
}

var nodeKind = corev1.SchemeGroupVersion.WithKind("Node")

// everyNode is what checks of nodes look at.
var everyNode = query{kind: nodeKind}

func queryOf(ref registration.Ref) query {
	q := query{kind: ref.Kind, namespace: ref.Namespace, name: ref.Name}
	if ref.Name == "" {
		q.selector = ref.Selector.String()
	}
	return q
}

// shootQueries are what a registration's checks look at in the shoot of a target now: nothing while it is suspended, for then the shoot
// may sleep.
func shootQueries(reg *registration.Registration, target *unstructured.Unstructured) sets.Set[query] {
	wanted := sets.New[query]()
	if suspended, err := reg.Suspended(target); suspended || err != nil || reg.Kubeconfig == nil {
		return wanted
	}
	for _, c := range reg.Checks {
		if asks, err := c.Applies(target); !asks || err != nil {
			continue
		}
		if c.Nodes {
			wanted.Insert(everyNode)
		}
		if ref, err := c.Ref(target); err == nil && c.InShoot() {
			wanted.Insert(queryOf(ref))
		}
	}
	return wanted
}

// mirror needs of.mu.
func (s *Shoots) mirror(of *shoot, q query, timeout time.Duration) *shoots.Mirror {
	source := shoots.Source{
		Client: of.connection.WatchClient, Timeout: timeout, Clock: s.Clock, Changed: func(client.Object) { s.changed(of, &q) },
		Options: []client.ListOption{client.InNamespace(q.namespace)},
		List:    func() client.ObjectList { return emptyList(q.kind) },
	}
	switch {
	case q == everyNode:
		source.List = func() client.ObjectList { return &corev1.NodeList{} }
		source.Trim = func(o client.Object) { health.TrimNode(o.(*corev1.Node)) }
	case q.name != "":
		source.Options = append(source.Options, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, q.name)})
	default:
		selector, _ := labels.Parse(q.selector) // which a selector wrote
		source.Options = append(source.Options, client.MatchingLabelsSelector{Selector: selector})
	}
	return shoots.Open(source)
}
