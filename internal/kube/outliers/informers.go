// Package outliers keeps what OutlierPolicies are about, by the manager's informers: policies, Services, EndpointSlices, and
// routes of those kinds that the cluster has.
package outliers

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// lookAgain is how often it is asked whether the cluster has got a kind of routes by now.
const lookAgain = 30 * time.Second

// Informers are a Runnable of every replica: the webhook asks them too.
type Informers struct {
	Cache        cache.Cache
	Mapper       meta.RESTMapper
	OwnNamespace string

	mu sync.Mutex
	// routes are the kinds that the cluster has; all were asked about once looked is set. Both need mu.
	routes map[schema.GroupKind]schema.GroupVersionKind
	looked bool
	// informers that must have synced; needs mu.
	informers []cache.Informer
	// handlers are told of whatever changes; needs mu.
	handlers []toolscache.ResourceEventHandler
}

// Follow begins to watch what every cluster has. The cache does so when it starts.
func (i *Informers) Follow(ctx context.Context) error {
	for _, object := range []client.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}, &v1alpha1.OutlierPolicy{}} {
		if err := i.follow(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// OnChange has a handler told of each object that comes, changes or goes.
func (i *Informers) OnChange(handler toolscache.ResourceEventHandler) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = append(i.handlers, handler)
	for _, informer := range i.informers {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("add a handler: %w", err)
		}
	}
	return nil
}

func (i *Informers) follow(ctx context.Context, object client.Object) error {
	informer, err := i.Cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch %T: %w", object, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.informers = append(i.informers, informer)
	for _, handler := range i.handlers {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	return nil
}

// Start looks for kinds of routes until the context ends.
func (i *Informers) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := i.look(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Can't find out which kinds of routes there are; OutlierPolicies wait")
		}
	}, lookAgain)
	return nil
}

// NeedLeaderElection is false: the webhook of every replica asks.
func (i *Informers) NeedLeaderElection() bool { return false }

// look begins to watch kinds of routes that weren't there before.
func (i *Informers) look(ctx context.Context) error {
	for _, kind := range outlier.RouteKinds {
		i.mu.Lock()
		_, known := i.routes[kind]
		i.mu.Unlock()
		if known {
			continue
		}
		mapping, err := i.Mapper.RESTMapping(kind)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look for %s: %w", kind, err)
		}
		route := &unstructured.Unstructured{}
		route.SetGroupVersionKind(mapping.GroupVersionKind)
		if err := i.follow(ctx, route); err != nil {
			return err
		}
		i.mu.Lock()
		if i.routes == nil {
			i.routes = map[schema.GroupKind]schema.GroupVersionKind{}
		}
		i.routes[kind] = mapping.GroupVersionKind
		i.mu.Unlock()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.looked = true
	return nil
}

// Synced says whether everything is known.
func (i *Informers) Synced() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, informer := range i.informers {
		if !informer.HasSynced() {
			return false
		}
	}
	return i.looked
}

// Preview tells what a policy would mean if it were in force now.
func (i *Informers) Preview(ctx context.Context, op *v1alpha1.OutlierPolicy, _ limit.Limits, _ time.Time) (outlier.Preview, error) {
	namespace := op.Namespace
	if len(op.Spec.TargetRefs) == 0 && namespace == i.OwnNamespace {
		namespace = "" // it is the cluster's default
	}
	w, err := i.World(ctx, namespace)
	if err != nil {
		return outlier.Preview{}, err
	}
	return outlier.PreviewOf(op, w, i.OwnNamespace), nil
}

// World is a namespace with the cluster's default, or with "" everything. It is the cache's own: nobody may change it.
func (i *Informers) World(ctx context.Context, namespace string) (outlier.World, error) {
	w := outlier.World{Slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{}}
	var services corev1.ServiceList
	var slices discoveryv1.EndpointSliceList
	for _, list := range []client.ObjectList{&services, &slices} {
		if err := i.list(ctx, list, namespace); err != nil {
			return w, err
		}
	}
	for n := range services.Items {
		w.Services = append(w.Services, &services.Items[n])
	}
	for n := range slices.Items {
		s := &slices.Items[n]
		of := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
		w.Slices[of] = append(w.Slices[of], s)
	}
	var err error
	if w.Policies, err = i.Policies(ctx, namespace); err != nil {
		return w, err
	}
	w.Routes, err = i.Routes(ctx, namespace)
	return w, err
}

// Policies of a namespace, with the cluster's default.
func (i *Informers) Policies(ctx context.Context, namespace string) (all []*v1alpha1.OutlierPolicy, err error) {
	var policies v1alpha1.OutlierPolicyList
	if err := i.list(ctx, &policies, ""); err != nil {
		return nil, err
	}
	for n := range policies.Items {
		p := &policies.Items[n]
		if namespace == "" || p.Namespace == namespace || p.Namespace == i.OwnNamespace && p.Name == outlier.DefaultName {
			all = append(all, p)
		}
	}
	return all, nil
}

// Routes of a namespace, of all with "".
func (i *Informers) Routes(ctx context.Context, namespace string) (all []outlier.Route, err error) {
	i.mu.Lock()
	kinds := make([]schema.GroupVersionKind, 0, len(i.routes))
	for _, kind := range i.routes {
		kinds = append(kinds, kind)
	}
	i.mu.Unlock()
	for _, kind := range kinds {
		routes := &unstructured.UnstructuredList{}
		routes.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := i.list(ctx, routes, namespace); err != nil {
			return nil, err
		}
		for n := range routes.Items {
			all = append(all, outlier.ReadRoute(routes.Items[n].Object))
		}
	}
	return all, nil
}

func (i *Informers) list(ctx context.Context, list client.ObjectList, namespace string) error {
	if err := i.Cache.List(ctx, list, client.UnsafeDisableDeepCopy, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list %T in the cache: %w", list, err)
	}
	return nil
}
