package outlierpolicy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/policy"
)

// maxAncestors of a status, by its schema.
const mostAncestors = 16

// gatewayStatuses are the results of patching Gateways. They are immutable once they are set.
type gatewaysView struct {
	// clusters of each Gateway that some policy is for.
	clusters map[types.NamespacedName][]outlier.Patched
	// writeErrors of the Gateways whose EnvoyPatchPolicy couldn't be written.
	troubles map[types.NamespacedName]error
	verdicts map[types.NamespacedName]metav1.Condition
}

// setGateways stores the results, and has statuses updated if they changed.
func (p *Publisher) showGateways(view *gatewaysView, by *picture) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.patched = by
	if p.gateways == nil || !reflect.DeepEqual(*p.gateways, *view) {
		p.gateways = view
		p.enqueueAll()
	}
}

// ancestorsOf returns the status of a policy for each Gateway that it is for, sorted by name.
func (v *gatewaysView) gatewaysOf(op *v1alpha1.OutlierPolicy) (ancestors []v1alpha1.OutlierAncestorStatus) {
	if v == nil {
		return nil
	}
	for _, gateway := range slices.SortedFunc(maps.Keys(v.clusters), compareNames) {
		var mine []outlier.Patched
		for _, c := range v.clusters[gateway] {
			if slices.ContainsFunc(c.Policies, func(p *outlier.Policy) bool { return p.UID == op.UID }) {
				mine = append(mine, c)
			}
		}
		if len(mine) == 0 {
			continue
		}
		a := v1alpha1.OutlierAncestorStatus{
			AncestorRef:    v1alpha1.OutlierAncestorReference{Group: outlier.GatewayKind.Group, Kind: outlier.GatewayKind.Kind, Namespace: gateway.Namespace, Name: gateway.Name},
			ControllerName: controllerName,
		}
		for _, before := range op.Status.Ancestors {
			if equality.Semantic.DeepEqual(before.AncestorRef, a.AncestorRef) {
				a.Conditions = slices.Clone(before.Conditions)
			}
		}
		holds, accepted := takenOf(mine)
		a.Clusters = int32(holds)
		policy.Set(&a.Conditions, op.Generation, accepted)
		policy.Set(&a.Conditions, op.Generation, v.programmed(gateway, holds))
		ancestors = append(ancestors, a)
	}
	return ancestors
}

// acceptedByGateway returns condition Accepted for a Gateway, and for how many of its clusters the policies hold.
func takenOf(clusters []outlier.Patched) (holds int, c metav1.Condition) {
	var obstacles []string
	for i := range clusters {
		switch one := &clusters[i]; one.Why {
		case outlier.NotUnpatched:
			holds++
		case outlier.Decided:
			obstacles = append(obstacles, fmt.Sprintf("BackendTrafficPolicy %s says how %s detects outliers", one.Traffic, one.Cluster))
		default:
			obstacles = append(obstacles, fmt.Sprintf("%s is one cluster of backends for which not the same policies hold", one.Cluster))
		}
	}
	c = metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPolicyAccepted, Message: fmt.Sprintf("It holds for %d clusters of the Gateway.", holds)}
	if holds == 0 {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonConflicted
	}
	if len(obstacles) > 0 {
		c.Message = cut(fmt.Sprintf("It holds for %d of %d clusters of the Gateway: %s.", holds, len(clusters), strings.Join(obstacles, "; ")))
	}
	return holds, c
}

// writeError is the reason and message of a Gateway's write error.
func (v *gatewaysView) trouble(gateway types.NamespacedName) (reason, message string) {
	trouble := v.troubles[gateway]
	if apierrors.IsForbidden(trouble) {
		return v1alpha1.ReasonMayNotPatch, fmt.Sprintf("Autohealer may not write EnvoyPatchPolicies in namespace %s; who runs the Gateway may let it: kubectl create rolebinding autohealer-envoy-patches -n %s "+
			"--clusterrole=autohealer-envoy-patches --serviceaccount=AUTOHEALER-NAMESPACE:autohealer-manager", gateway.Namespace, gateway.Namespace)
	}
	return v1alpha1.ReasonPending, cut(fmt.Sprintf("The Gateway keeps what it has: %s.", trouble))
}

// writeErrorOf is the message of the write error of an EnvoyPatchPolicy, by namespace/name; "" for none.
func (p *Publisher) troubleOf(name string) (message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for gateway := range p.gateways.troubles {
		if gateway.Namespace+"/"+outlier.PatchesName(gateway.Name) == name {
			_, message = p.gateways.trouble(gateway)
		}
	}
	return message
}

// programmed returns condition Programmed for a Gateway, from the status of its EnvoyPatchPolicy.
func (v *gatewaysView) programmed(gateway types.NamespacedName, holds int) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionProgrammed, Status: metav1.ConditionFalse}
	said := v.verdicts[gateway]
	switch {
	case v.troubles[gateway] != nil:
		c.Reason, c.Message = v.trouble(gateway)
	case holds == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonNoClusters, "It holds for no cluster of the Gateway, so there is nothing to patch."
	case said.Reason == "":
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonPending, "Envoy Gateway has said nothing yet of the EnvoyPatchPolicy. If that stays so, it doesn't run, or extensionApis.enableEnvoyPatchPolicy isn't true in its configuration (EnvoyGateway)."
	case said.Reason == "Disabled":
		c.Reason, c.Message = said.Reason, "Envoy Gateway takes no EnvoyPatchPolicies: set extensionApis.enableEnvoyPatchPolicy: true in its configuration (EnvoyGateway)."
	default:
		c.Status, c.Reason, c.Message = said.Status, said.Reason, cut("Envoy Gateway says of the EnvoyPatchPolicy: "+said.Message)
	}
	return c
}
