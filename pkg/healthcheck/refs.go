package healthcheck

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// ref is an object of the seed that checks look at.
type ref struct {
	kind schema.GroupVersionKind
	key  types.NamespacedName
}

// refs knows which checks of which targets look at an object, and watches the kinds of these objects.
type refs struct {
	scheme *runtime.Scheme
	kinds  meta.RESTMapper
	cache  cache.Cache
	// watch starts a source; the controller's.
	watch func(source.Source) error

	mu      sync.Mutex
	watched sets.Set[schema.GroupVersionKind] // needs mu
	checks  map[ref]sets.Set[checkOf]         // needs mu
	of      map[checkOf]sets.Set[ref]         // needs mu; the reverse
}

func newRefs(mgr manager.Manager, c controller.Controller) *refs {
	return &refs{
		scheme: mgr.GetScheme(), kinds: mgr.GetRESTMapper(), cache: mgr.GetCache(), watch: c.Watch,
		watched: sets.New[schema.GroupVersionKind](),
		checks:  map[ref]sets.Set[checkOf]{}, of: map[checkOf]sets.Set[ref]{},
	}
}

// follow makes the check's target be checked when one of these objects changes, and no others as before. After an error it is as before.
func (r *refs) follow(by checkOf, objects []client.Object) error {
	wanted := sets.New[ref]()
	for _, o := range objects {
		kind, err := apiutil.GVKForObject(o, r.scheme)
		if err != nil {
			return fmt.Errorf("tell the kind of what a check refers to: %w", err)
		}
		if err := r.watchKind(kind); err != nil {
			return err
		}
		key := client.ObjectKeyFromObject(o)
		if inNone, err := clusterScoped(r.kinds, kind); err != nil {
			return err
		} else if inNone {
			key.Namespace = "" // checks that know the kind by its name alone give the target's
		}
		wanted.Insert(ref{kind, key})
	}
	r.replace(by, wanted)
	return nil
}

// clusterScoped says whether objects of the kind are in no namespace. Of a kind that isn't served it is false: each look asks again.
func clusterScoped(kinds meta.RESTMapper, kind schema.GroupVersionKind) (bool, error) {
	mapping, err := kinds.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask whether %s is in namespaces: %w", kind.Kind, err)
	}
	return mapping.Scope.Name() == meta.RESTScopeNameRoot, nil
}

// forget what these checks of a target refer to.
func (r *refs) forget(target types.NamespacedName, checks []check) {
	for _, c := range checks {
		r.replace(c.of(target), nil)
	}
}

func (r *refs) replace(by checkOf, wanted sets.Set[ref]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for old := range r.of[by].Difference(wanted) {
		if r.checks[old].Delete(by); len(r.checks[old]) == 0 {
			delete(r.checks, old)
		}
	}
	for fresh := range wanted.Difference(r.of[by]) {
		if r.checks[fresh] == nil {
			r.checks[fresh] = sets.New[checkOf]()
		}
		r.checks[fresh].Insert(by)
	}
	if len(wanted) == 0 {
		delete(r.of, by)
	} else {
		r.of[by] = wanted
	}
}

func (r *refs) watchKind(kind schema.GroupVersionKind) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watched.Has(kind) {
		return nil
	}
	changed := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return r.affected(ref{kind, client.ObjectKeyFromObject(o)})
	})
	if err := r.watch(source.Kind(r.cache, empty(kind, r.scheme), changed)); err != nil {
		return fmt.Errorf("watch %s: %w", kind.Kind, err)
	}
	r.watched.Insert(kind)
	return nil
}

func (r *refs) affected(changed ref) []reconcile.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	requests := sets.New[reconcile.Request]()
	for c := range r.checks[changed] {
		requests.Insert(reconcile.Request{NamespacedName: c.target})
	}
	return requests.UnsortedList()
}
