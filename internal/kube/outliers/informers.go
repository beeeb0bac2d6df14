// Package outliers has the informers of what OutlierPolicies apply to: policies, Services, EndpointSlices, and routes of those kinds that the
// cluster has. A kind of routes is in one of these states:
//
//	not discovered ──> absent ──(CustomResourceDefinition is created)──> syncing ──> read
//	       └─────────────────────────────────────────────────────────────^
//
// Begin to read at Informers.Objects for the reads, and at Informers.Start for the discovery of kinds.
package outliers

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// Informers are a Runnable of every replica: the webhook reads them too.
type Informers struct {
	Cache cache.Cache
	// Mapper maps kinds of routes as they are served now. It must not cache: a cached group hides versions that are added later.
	Mapper Mapper
	// Definition makes an informer of the CustomResourceDefinition with a name.
	Definition   func(name string) toolscache.SharedIndexInformer
	OwnNamespace string

	mu sync.Mutex
	// core are the informers of kinds that every cluster has; needs mu.
	core []cache.Informer
	// routes are the kinds of routes that were discovered to exist or not; needs mu.
	routes map[schema.GroupKind]routeKind
	// handlers of all informers; needs mu.
	handlers []toolscache.ResourceEventHandler
}

// Mapper returns how a kind is served.
type Mapper interface {
	RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error)
}

// routeKind is a kind of routes; without an informer the cluster doesn't have it.
type routeKind struct {
	schema.GroupVersionKind
	informer cache.Informer
}

func (k routeKind) read() bool { return k.informer == nil || k.informer.HasSynced() }

// WatchCore adds informers of the kinds that every cluster has. They run once the cache starts.
func (i *Informers) WatchCore(ctx context.Context) error {
	for _, object := range []client.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}, &v1alpha1.OutlierPolicy{}} {
		informer, err := i.startInformer(ctx, object)
		if err != nil {
			return err
		}
		i.mu.Lock()
		i.core = append(i.core, informer)
		i.mu.Unlock()
	}
	return nil
}

// OnChange adds a handler to all informers, also to those of kinds that are discovered later.
func (i *Informers) OnChange(handler toolscache.ResourceEventHandler) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = append(i.handlers, handler)
	informers := slices.Clone(i.core)
	for _, kind := range i.routes {
		if kind.informer != nil {
			informers = append(informers, kind.informer)
		}
	}
	for _, informer := range informers {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("add a handler: %w", err)
		}
	}
	return nil
}

func (i *Informers) startInformer(ctx context.Context, object client.Object) (cache.Informer, error) {
	informer, err := i.Cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", object, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, handler := range i.handlers {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, fmt.Errorf("watch %T: %w", object, err)
		}
	}
	return informer, nil
}

// Synced says whether all informers are synced, and all kinds of routes discovered.
func (i *Informers) Synced() bool { return i.CoreSynced() && len(i.unread()) == 0 }

// CoreSynced says whether all informers but those of routes are synced: the definitions of routes belong to others, and may be broken.
func (i *Informers) CoreSynced() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !slices.ContainsFunc(i.core, func(informer cache.Informer) bool { return !informer.HasSynced() })
}

// unread are the kinds of routes that aren't discovered, or whose informers aren't synced.
func (i *Informers) unread() map[string]bool { return i.unreadOf(outlier.RouteKinds) }

func (i *Informers) unreadOf(kinds []schema.GroupKind) map[string]bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	unread := map[string]bool{}
	for _, kind := range kinds {
		if found, discovered := i.routes[kind]; !discovered || !found.read() {
			unread[kind.Kind] = true
		}
	}
	return unread
}

// RouteKind returns a kind of routes as the cluster serves it; ok is false for one that the cluster isn't known to have.
func (i *Informers) RouteKind(kind string) (served schema.GroupVersionKind, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for group, found := range i.routes {
		if group.Kind == kind && found.informer != nil {
			return found.GroupVersionKind, true
		}
	}
	return served, false
}

// RouteKindState says whether the cluster serves a kind of routes, and whether its objects are read.
type RouteKindState struct{ Served, Read bool }

// RouteKindStates are those of all kinds of routes.
func (i *Informers) RouteKindStates() map[string]RouteKindState {
	unread, all := i.unread(), map[string]RouteKindState{}
	for _, kind := range outlier.RouteKinds {
		_, served := i.RouteKind(kind.Kind)
		all[kind.Kind] = RouteKindState{Served: served, Read: !unread[kind.Kind]}
	}
	return all
}
