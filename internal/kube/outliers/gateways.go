package outliers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// Gateways are what Envoy Gateway is patched by.
type Gateways struct {
	// World has the Gateways that may be patched, all routes, and no Services.
	World outlier.PatchWorld
	// UIDs are of all Gateways that may be patched, and of those that are.
	UIDs map[types.NamespacedName]types.UID
	// Verdicts are Envoy Gateway's on what is patched; none of it means that it said nothing yet.
	Verdicts map[types.NamespacedName]metav1.Condition
	// Unread are the kinds of routes of which isn't known yet which there are.
	Unread map[string]bool
}

// Gateways tells of them; it has none where the cluster has no EnvoyPatchPolicies. An error says what isn't known yet.
func (i *Informers) Gateways(ctx context.Context) (g Gateways, err error) {
	if unread := i.unreadOf(outlier.PatchKinds); len(unread) > 0 {
		return g, fmt.Errorf("objects of these kinds aren't read yet: %s", strings.Join(slices.Sorted(maps.Keys(unread)), ", "))
	}
	if _, has := i.RouteKind(outlier.PatchPolicyKind.Kind); !has {
		return g, nil
	}
	g = Gateways{UIDs: map[types.NamespacedName]types.UID{}, Verdicts: map[types.NamespacedName]metav1.Condition{}, Unread: i.unread()}
	var unreadable []error
	note := func(err error) {
		if err != nil {
			unreadable = append(unreadable, err)
		}
	}
	note(i.each(ctx, outlier.PatchPolicyKind, "", func(object map[string]any) {
		u := unstructured.Unstructured{Object: object}
		_, ours := u.GetAnnotations()[v1alpha1.AnnotationPatchedFor]
		if gateway, named := outlier.PatchedGateway(types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}); ours && named {
			g.UIDs[gateway] = "" // also of a Gateway that is gone, until it is found
			said, err := outlier.ReadVerdict(object)
			note(err)
			if said != nil {
				g.Verdicts[gateway] = *said
			}
		}
	}))
	note(i.each(ctx, outlier.GatewayKind, "", func(object map[string]any) {
		u := unstructured.Unstructured{Object: object}
		gateway := outlier.Gateway{NamespacedName: types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}, Labels: u.GetLabels()}
		may := gateway.Labels[v1alpha1.LabelEnvoyPatches] == "true" && u.GetDeletionTimestamp() == nil
		if may {
			g.World.Gateways = append(g.World.Gateways, gateway)
		}
		if _, patched := g.UIDs[gateway.NamespacedName]; may || patched {
			g.UIDs[gateway.NamespacedName] = u.GetUID()
		}
	}))
	note(i.each(ctx, outlier.TrafficPolicyKind, "", func(object map[string]any) {
		p, detects, err := outlier.ReadTrafficPolicy(object)
		note(err)
		if detects {
			g.World.Traffic = append(g.World.Traffic, p)
		}
	}))
	for _, kind := range outlier.RouteKinds {
		note(i.each(ctx, kind, "", func(object map[string]any) {
			r, err := outlier.ReadGatewayRoute(kind.Kind, object)
			note(err)
			g.World.Routes = append(g.World.Routes, r)
		}))
	}
	if len(unreadable) > 0 {
		return Gateways{}, unreadable[0]
	}
	return g, nil
}
