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
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

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

const (
	// minRetryDelay is the first delay before discovery is repeated for a kind: after its definition is created it takes a moment until it is
	// served.
	minRetryDelay = 200 * time.Millisecond
	// maxRetryDelay is the longest.
	maxRetryDelay = 30 * time.Second
	// settleDelay after a change of a definition the API server's discovery is current: until then it may be that of before.
	settleDelay = 10 * time.Second
)

// optionalKinds are the kinds that a cluster may not have.
var optionalKinds = slices.Concat(outlier.RouteKinds, outlier.PatchKinds)

// definitions are informers of the CustomResourceDefinitions of the optionalKinds. Each is watched by its name: all of a cluster may be
// megabytes, and would need the right to read any. One that doesn't exist costs only its watch.
type definitions map[schema.GroupKind]toolscache.SharedIndexInformer

// definitionOf is the name of a kind's definition.
func definitionOf(kind schema.GroupKind) string {
	plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(""))
	if kind == outlier.GatewayKind { // of which the guess would be gatewaies
		plural.Resource = "gateways"
	}
	return plural.GroupResource().String()
}

// isAbsent says whether a kind is known to have no definition.
func (d definitions) isAbsent(kind schema.GroupKind) bool {
	return d[kind].HasSynced() && len(d[kind].GetStore().ListKeys()) == 0
}

// run calls back for each definition that is created or changed, and for each that can't be watched, until the context ends.
func (d definitions) run(ctx context.Context, changed, unwatched func(schema.GroupKind)) error {
	for kind, watch := range d {
		err := watch.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *toolscache.Reflector, err error) {
			log.FromContext(ctx).V(1).Info("Can't watch the CustomResourceDefinition of a kind of routes; discovery is repeated instead", "kind", kind.Kind, "reason", err.Error())
			unwatched(kind)
		})
		if err != nil {
			return fmt.Errorf("watch the definition of %s: %w", kind, err)
		}
		_, err = watch.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { changed(kind) }, UpdateFunc: func(any, any) { changed(kind) },
		})
		if err != nil {
			return fmt.Errorf("watch the definition of %s: %w", kind, err)
		}
	}
	for _, watch := range d {
		go watch.RunWithContext(ctx)
	}
	return nil
}

// Start discovers kinds of routes until the context ends: at first, and when their definitions are created or changed. For those that can't
// be watched it repeats discovery.
func (i *Informers) Start(ctx context.Context) error {
	pace := workqueue.NewTypedItemExponentialFailureRateLimiter[schema.GroupKind](minRetryDelay, maxRetryDelay)
	queue := workqueue.NewTypedRateLimitingQueue(pace)
	defer context.AfterFunc(ctx, queue.ShutDown)()
	defined := definitions{}
	for _, kind := range optionalKinds {
		defined[kind] = i.Definition(definitionOf(kind))
	}
	changed := func(kind schema.GroupKind) {
		queue.Add(kind)
		queue.AddAfter(kind, settleDelay)
	}
	if err := defined.run(ctx, changed, queue.Add); err != nil {
		return err
	}
	for _, kind := range optionalKinds {
		queue.Add(kind)
	}
	for {
		kind, stopping := queue.Get()
		if stopping {
			return nil
		}
		served, err := i.refreshKind(ctx, kind)
		if err != nil {
			log.FromContext(ctx).Error(err, "Can't discover whether the cluster has a kind of routes; OutlierPolicies for it are pending", "kind", kind.Kind)
		}
		if served || err == nil && defined.isAbsent(kind) {
			queue.Forget(kind)
		} else {
			queue.AddRateLimited(kind)
		}
		queue.Done(kind)
	}
}

// NeedLeaderElection is false: the webhook of every replica needs it.
func (i *Informers) NeedLeaderElection() bool { return false }

// refreshKind starts an informer of a kind if the API server serves it, or one of another version when the informer's is no longer served. Of
// a kind that is no longer served, the known state stays. The informer of an old version isn't stopped, though its watch fails: a
// concurrent reader would start it again.
func (i *Informers) refreshKind(ctx context.Context, kind schema.GroupKind) (served bool, err error) {
	i.mu.Lock()
	found := i.routes[kind]
	i.mu.Unlock()
	if found.informer != nil {
		if _, err := i.Mapper.RESTMapping(kind, found.Version); !meta.IsNoMatchError(err) {
			return err == nil, err
		}
	}
	switch mapping, err := i.Mapper.RESTMapping(kind); {
	case err == nil:
		route := &unstructured.Unstructured{}
		route.SetGroupVersionKind(mapping.GroupVersionKind)
		informer, err := i.startInformer(ctx, route)
		if err != nil {
			return false, err
		}
		found = routeKind{mapping.GroupVersionKind, informer}
	case !meta.IsNoMatchError(err):
		return false, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.routes == nil {
		i.routes = map[schema.GroupKind]routeKind{}
	}
	i.routes[kind] = found
	return found.informer != nil, nil
}
