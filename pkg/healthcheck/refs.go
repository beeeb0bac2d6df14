package healthcheck

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// ref is an object of the seed that checks look at.
type ref struct {
	kind schema.GroupVersionKind
	key  types.NamespacedName
}

// refs knows which targets' checks look at an object, and watches the kinds of these objects.
type refs struct {
	scheme *runtime.Scheme
	cache  cache.Cache
	// watch starts a source; the controller's.
	watch func(source.Source) error

	mu      sync.Mutex
	watched sets.Set[schema.GroupVersionKind]      // needs mu
	targets map[ref]sets.Set[types.NamespacedName] // needs mu
	of      map[types.NamespacedName]sets.Set[ref] // needs mu; the reverse
}

func newRefs(scheme *runtime.Scheme, from cache.Cache, c controller.Controller) *refs {
	return &refs{
		scheme: scheme, cache: from, watch: c.Watch,
		watched: sets.New[schema.GroupVersionKind](),
		targets: map[ref]sets.Set[types.NamespacedName]{}, of: map[types.NamespacedName]sets.Set[ref]{},
	}
}

// follow makes the target be checked when one of these objects changes, and no others as before.
func (r *refs) follow(target types.NamespacedName, objects []client.Object) error {
	wanted := sets.New[ref]()
	for _, o := range objects {
		kind, err := apiutil.GVKForObject(o, r.scheme)
		if err != nil {
			return fmt.Errorf("tell the kind of what a check refers to: %w", err)
		}
		if err := r.watchKind(kind); err != nil {
			return err
		}
		wanted.Insert(ref{kind, client.ObjectKeyFromObject(o)})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for old := range r.of[target].Difference(wanted) {
		if r.targets[old].Delete(target); len(r.targets[old]) == 0 {
			delete(r.targets, old)
		}
	}
	for fresh := range wanted.Difference(r.of[target]) {
		if r.targets[fresh] == nil {
			r.targets[fresh] = sets.New[types.NamespacedName]()
		}
		r.targets[fresh].Insert(target)
	}
	if r.of[target] = wanted; len(wanted) == 0 {
		delete(r.of, target)
	}
	return nil
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
	var requests []reconcile.Request
	for target := range r.targets[changed] {
		requests = append(requests, reconcile.Request{NamespacedName: target})
	}
	return requests
}
