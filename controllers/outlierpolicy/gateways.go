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
const maxAncestors = 16

// gatewayStatuses are the results of patching Gateways. They are immutable once they are set.
type gatewayStatuses struct {
	// clusters of each Gateway that some policy is for.
	clusters map[types.NamespacedName][]outlier.Patched
	// writeErrors of the Gateways whose EnvoyPatchPolicy couldn't be written.
	writeErrors   map[types.NamespacedName]error
	patchStatuses map[types.NamespacedName]metav1.Condition
}

// setGateways stores the results, and has statuses updated if they changed.
func (p *Publisher) setGateways(view *gatewayStatuses, snap *policySnapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.patchedSnapshot = snap
	if p.gateways == nil || !reflect.DeepEqual(*p.gateways, *view) {
		p.gateways = view
		p.enqueueAll()
	}
}

// ancestorsOf returns the status of a policy for each Gateway that it is for, sorted by name.
func (v *gatewayStatuses) ancestorsOf(op *v1alpha1.OutlierPolicy) (ancestors []v1alpha1.OutlierAncestorStatus) {
	if v == nil {
		return nil
	}
	for _, gateway := range slices.SortedFunc(maps.Keys(v.clusters), compareNames) {
		var clusters []outlier.Patched
		for _, c := range v.clusters[gateway] {
			if slices.ContainsFunc(c.Policies, func(p *outlier.Policy) bool { return p.UID == op.UID }) {
				clusters = append(clusters, c)
			}
		}
		if len(clusters) == 0 {
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
		count, accepted := acceptedByGateway(clusters)
		a.Clusters = int32(count)
		policy.Set(&a.Conditions, op.Generation, accepted)
		policy.Set(&a.Conditions, op.Generation, v.programmed(gateway, count))
		ancestors = append(ancestors, a)
	}
	return ancestors
}

// acceptedByGateway returns condition Accepted for a Gateway, and for how many of its clusters the policies hold.
func acceptedByGateway(clusters []outlier.Patched) (count int, c metav1.Condition) {
	var obstacles []string
	for i := range clusters {
		switch one := &clusters[i]; one.Obstacle {
		case outlier.NoObstacle:
			count++
		case outlier.DecidedByTrafficPolicy:
			obstacles = append(obstacles, fmt.Sprintf("BackendTrafficPolicy %s says how %s detects outliers", one.TrafficPolicy, one.Cluster))
		default:
			obstacles = append(obstacles, fmt.Sprintf("%s is one cluster of backends for which not the same policies hold", one.Cluster))
		}
	}
	c = metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPolicyAccepted, Message: fmt.Sprintf("It holds for %d clusters of the Gateway.", count)}
	if count == 0 {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonConflicted
	}
	if len(obstacles) > 0 {
		c.Message = truncate(fmt.Sprintf("It holds for %d of %d clusters of the Gateway: %s.", count, len(clusters), strings.Join(obstacles, "; ")))
	}
	return count, c
}

// writeError is the reason and message of a Gateway's write error.
func (v *gatewayStatuses) err(gateway types.NamespacedName) (reason, message string) {
	err := v.writeErrors[gateway]
	if apierrors.IsForbidden(err) {
		return v1alpha1.ReasonMayNotPatch, fmt.Sprintf("Autohealer may not write EnvoyPatchPolicies in namespace %s; who runs the Gateway may let it: kubectl create rolebinding autohealer-envoy-patches -n %s "+
			"--clusterrole=autohealer-envoy-patches --serviceaccount=AUTOHEALER-NAMESPACE:autohealer-manager", gateway.Namespace, gateway.Namespace)
	}
	return v1alpha1.ReasonPending, truncate(fmt.Sprintf("The Gateway keeps what it has: %s.", err))
}

// writeErrorOf is the message of the write error of an EnvoyPatchPolicy, by namespace/name; "" for none.
func (p *Publisher) writeErrorOf(name string) (message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for gateway := range p.gateways.writeErrors {
		if gateway.Namespace+"/"+outlier.PatchesName(gateway.Name) == name {
			_, message = p.gateways.err(gateway)
		}
	}
	return message
}

// programmed returns condition Programmed for a Gateway, from the status of its EnvoyPatchPolicy.
func (v *gatewayStatuses) programmed(gateway types.NamespacedName, holds int) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionProgrammed, Status: metav1.ConditionFalse}
	patchStatus := v.patchStatuses[gateway]
	switch {
	case v.writeErrors[gateway] != nil:
		c.Reason, c.Message = v.err(gateway)
	case holds == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonNoClusters, "It holds for no cluster of the Gateway, so there is nothing to patch."
	case patchStatus.Reason == "":
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonPending, "Envoy Gateway has said nothing yet of the EnvoyPatchPolicy. If that stays so, it doesn't run, or extensionApis.enableEnvoyPatchPolicy isn't true in its configuration (EnvoyGateway)."
	case patchStatus.Reason == "Disabled":
		c.Reason, c.Message = patchStatus.Reason, "Envoy Gateway takes no EnvoyPatchPolicies: set extensionApis.enableEnvoyPatchPolicy: true in its configuration (EnvoyGateway)."
	default:
		c.Status, c.Reason, c.Message = patchStatus.Status, patchStatus.Reason, truncate("Envoy Gateway says of the EnvoyPatchPolicy: "+patchStatus.Message)
	}
	return c
}
