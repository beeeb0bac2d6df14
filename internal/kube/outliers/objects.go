package outliers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// Forecast returns what a policy would do if it were in force now.
func (i *Informers) Forecast(ctx context.Context, op *v1alpha1.OutlierPolicy, _ limit.Limits, _ time.Time) (outlier.Forecast, error) {
	namespace := op.Namespace
	if len(op.Spec.TargetRefs) == 0 && namespace == i.OwnNamespace {
		namespace = "" // it is the cluster's default
	}
	objects, err := i.Objects(ctx, namespace)
	if err != nil {
		return outlier.Forecast{}, err
	}
	return outlier.ForecastOf(op, objects, i.OwnNamespace), nil
}

// Objects are those of a namespace with the cluster's default, or with "" of all namespaces. They are the cache's: read-only.
func (i *Informers) Objects(ctx context.Context, namespace string) (outlier.Objects, error) {
	objects := outlier.Objects{Slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{}}
	var services corev1.ServiceList
	var endpoints discoveryv1.EndpointSliceList
	for _, list := range []client.ObjectList{&services, &endpoints} {
		if err := i.list(ctx, list, namespace); err != nil {
			return objects, err
		}
	}
	for n := range services.Items {
		objects.Services = append(objects.Services, &services.Items[n])
	}
	for n := range endpoints.Items {
		s := &endpoints.Items[n]
		of := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
		objects.Slices[of] = append(objects.Slices[of], s)
	}
	var err error
	if objects.Policies, err = i.Policies(ctx, namespace); err != nil {
		return objects, err
	}
	objects.Unread = i.unread() // before routes: a kind that is synced in between counts next time
	objects.Routes, err = i.Routes(ctx, namespace)
	return objects, err
}

// ObjectsIn are those of some namespaces and nothing else, not the cluster's default either. They are the cache's: read-only.
func (i *Informers) ObjectsIn(ctx context.Context, names map[string]bool) (outlier.Objects, error) {
	all := outlier.Objects{Slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{}}
	for name := range names {
		objects, err := i.Objects(ctx, name)
		if err != nil {
			return all, err
		}
		all.Services, all.Routes = append(all.Services, objects.Services...), append(all.Routes, objects.Routes...)
		maps.Copy(all.Slices, objects.Slices)
		for _, p := range objects.Policies {
			if p.Namespace == name {
				all.Policies = append(all.Policies, p)
			}
		}
	}
	return all, nil
}

// Policies of a namespace, of all with "", and the cluster's default.
func (i *Informers) Policies(ctx context.Context, namespace string) (all []*v1alpha1.OutlierPolicy, err error) {
	var policies, own v1alpha1.OutlierPolicyList
	if err := i.list(ctx, &policies, namespace); err != nil {
		return nil, err
	}
	for n := range policies.Items {
		all = append(all, &policies.Items[n])
	}
	if namespace == "" || namespace == i.OwnNamespace || i.OwnNamespace == "" {
		return all, nil
	}
	if err := i.list(ctx, &own, i.OwnNamespace); err != nil {
		return nil, err
	}
	for n := range own.Items {
		if own.Items[n].Name == outlier.DefaultName {
			all = append(all, &own.Items[n])
		}
	}
	return all, nil
}

// Routes of a namespace, or of all with "", of those kinds that are read.
func (i *Informers) Routes(ctx context.Context, namespace string) (all []outlier.Route, err error) {
	for _, kind := range outlier.RouteKinds {
		if err := i.forEach(ctx, kind, namespace, func(object map[string]any) { all = append(all, outlier.ReadRoute(object)) }); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// forEach calls back for the objects of a kind in a namespace, or in all with ""; for none while the kind isn't read: a list would block.
func (i *Informers) forEach(ctx context.Context, kind schema.GroupKind, namespace string, take func(object map[string]any)) error {
	i.mu.Lock()
	found := i.routes[kind]
	i.mu.Unlock()
	if found.informer == nil || !found.read() {
		return nil
	}
	objects := &unstructured.UnstructuredList{}
	objects.SetGroupVersionKind(found.GroupVersion().WithKind(kind.Kind + "List"))
	if err := i.list(ctx, objects, namespace); err != nil {
		return err
	}
	for n := range objects.Items {
		take(objects.Items[n].Object)
	}
	return nil
}

func (i *Informers) list(ctx context.Context, list client.ObjectList, namespace string) error {
	if err := i.Cache.List(ctx, list, client.UnsafeDisableDeepCopy, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list %T in the cache: %w", list, err)
	}
	return nil
}

// ErrNoPort says that there is no such Service, or none with such a port.
var ErrNoPort = errors.New("there is no such Service, or it has no such port")

// Hosts are the ready endpoints of a Service's port, which is given by its name or number.
func (i *Informers) Hosts(ctx context.Context, service types.NamespacedName, port string) ([]outlier.Host, error) {
	if !i.Synced() {
		return nil, errors.New("not all Services are read yet")
	}
	objects, err := i.Objects(ctx, service.Namespace)
	if err != nil {
		return nil, err
	}
	for _, svc := range objects.Services {
		if svc.Namespace != service.Namespace || svc.Name != service.Name {
			continue
		}
		for _, p := range svc.Spec.Ports {
			if p.Name == port || strconv.Itoa(int(p.Port)) == port {
				return outlier.HostsOf(svc, p, objects.Slices[service]), nil
			}
		}
	}
	return nil, fmt.Errorf("Service %s, port %s: %w", service, port, ErrNoPort) //nolint:staticcheck // a kind's name begins it
}

// Gateways are what patches for Envoy Gateway are made from, with the state of what is patched.
type Gateways struct {
	// Objects have the Gateways that may be patched, all routes, and no Services.
	Objects outlier.PatchObjects
	// UIDs of all Gateways that may be patched, and of those that are.
	UIDs map[types.NamespacedName]types.UID
	// PatchStatuses are the conditions that Envoy Gateway set on EnvoyPatchPolicies; without an entry it set none yet.
	PatchStatuses map[types.NamespacedName]metav1.Condition
	// Unread are the kinds of routes whose informers aren't synced.
	Unread map[string]bool
}

// Gateways lists them; none where the cluster has no kind EnvoyPatchPolicy. The error says what isn't read yet.
func (i *Informers) Gateways(ctx context.Context) (g Gateways, err error) {
	if unread := i.unreadOf(outlier.PatchKinds); len(unread) > 0 {
		return g, fmt.Errorf("objects of these kinds aren't read yet: %s", strings.Join(slices.Sorted(maps.Keys(unread)), ", "))
	}
	if _, has := i.RouteKind(outlier.PatchPolicyKind.Kind); !has {
		return g, nil
	}
	g = Gateways{UIDs: map[types.NamespacedName]types.UID{}, PatchStatuses: map[types.NamespacedName]metav1.Condition{}, Unread: i.unread()}
	var unreadable error
	read := func(kind schema.GroupKind, take func(object map[string]any) error) {
		err := i.forEach(ctx, kind, "", func(object map[string]any) { unreadable = cmp.Or(unreadable, take(object)) })
		unreadable = cmp.Or(unreadable, err)
	}
	read(outlier.PatchPolicyKind, g.addPatchPolicy)
	read(outlier.GatewayKind, g.addGateway)
	read(outlier.TrafficPolicyKind, g.addTrafficPolicy)
	for _, kind := range outlier.RouteKinds {
		read(kind, func(object map[string]any) error {
			r, err := outlier.ReadGatewayRoute(kind.Kind, object)
			g.Objects.Routes = append(g.Objects.Routes, r)
			return err
		})
	}
	if unreadable != nil {
		return Gateways{}, unreadable
	}
	return g, nil
}

// addPatchPolicy adds an EnvoyPatchPolicy.
func (g *Gateways) addPatchPolicy(object map[string]any) error {
	u := unstructured.Unstructured{Object: object}
	gateway, named := outlier.PatchedGateway(types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()})
	if _, ours := u.GetAnnotations()[v1alpha1.AnnotationPatchedFor]; !ours || !named {
		return nil
	}
	g.UIDs[gateway] = "" // addGateway sets it, if the Gateway exists
	status, err := outlier.ReadPatchStatus(object)
	if status != nil {
		g.PatchStatuses[gateway] = *status
	}
	return err
}

// addGateway adds a Gateway, after all EnvoyPatchPolicies are added.
func (g *Gateways) addGateway(object map[string]any) error {
	u := unstructured.Unstructured{Object: object}
	gateway := outlier.Gateway{NamespacedName: types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}, Labels: u.GetLabels()}
	isLabeled := gateway.Labels[v1alpha1.LabelEnvoyPatches] == "true" && u.GetDeletionTimestamp() == nil
	if isLabeled {
		g.Objects.Gateways = append(g.Objects.Gateways, gateway)
	}
	if _, patched := g.UIDs[gateway.NamespacedName]; isLabeled || patched {
		g.UIDs[gateway.NamespacedName] = u.GetUID()
	}
	return nil
}

// addTrafficPolicy adds a BackendTrafficPolicy.
func (g *Gateways) addTrafficPolicy(object map[string]any) error {
	p, detects, err := outlier.ReadTrafficPolicy(object)
	if detects {
		g.Objects.TrafficPolicies = append(g.Objects.TrafficPolicies, p)
	}
	return err
}
