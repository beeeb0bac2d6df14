package outliers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

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
