package outliers

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

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
