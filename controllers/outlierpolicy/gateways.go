package outlierpolicy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/kube/outliers"
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

// patchRetryAfter after a write that failed.
const patchRetryAfter = 5 * time.Second

// patcher writes EnvoyPatchPolicies that have Envoy Gateway's Gateways detect outliers. It is a Runnable of the leader.
type patcher struct {
	*Publisher
	Gateways interface {
		Gateways(ctx context.Context) (outliers.Gateways, error)
	}
	Patches interface {
		Apply(ctx context.Context, g actuate.GatewayPatches) (held map[string]error, err error)
	}
}

// NeedLeaderElection is true: one replica writes.
func (*patcher) NeedLeaderElection() bool { return true }

// Start patches whenever something is translated, until the context ends.
func (p *patcher) Start(ctx context.Context) error {
	problem := ""
	p.loop(ctx, p.patching, func(ctx context.Context) time.Duration {
		err := p.patch(ctx)
		switch logger := log.FromContext(ctx); {
		case err == nil:
			problem = ""
			return 0
		case problem == err.Error(): // log it once
		case apierrors.IsConflict(err): // Envoy Gateway has just written its status
			logger.V(1).Info("An EnvoyPatchPolicy changed since it was read; retrying", "conflict", err.Error())
		default:
			logger.Info("Can't patch all Gateways, which keep the EnvoyPatchPolicies that they have; retrying", "reason", err.Error())
		}
		problem = err.Error()
		return patchRetryAfter
	})
	return nil
}

// patch applies the EnvoyPatchPolicies of all labeled Gateways, and removes those of Gateways that are no longer labeled.
func (p *patcher) patch(ctx context.Context) error {
	snap := p.snapshot()
	if snap == nil {
		return nil
	}
	g, err := p.Gateways.Gateways(ctx)
	if err != nil {
		return err
	}
	g.Objects.Services = map[types.NamespacedName]*corev1.Service{}
	for _, services := range snap.services {
		for _, svc := range services {
			g.Objects.Services[client.ObjectKeyFromObject(svc)] = svc
		}
	}
	byGateway, view := map[types.NamespacedName][]outlier.Patched{}, &gatewayStatuses{patchStatuses: g.PatchStatuses, writeErrors: map[types.NamespacedName]error{}}
	for _, c := range snap.index.Patches(g.Objects) {
		byGateway[c.Gateway] = append(byGateway[c.Gateway], c)
	}
	var failed error
	for _, gateway := range slices.SortedFunc(maps.Keys(g.UIDs), compareNames) { // sorted, so that of several errors the same one is reported each time
		held, err := p.Patches.Apply(ctx, snap.patches(gateway, &g, byGateway[gateway]))
		for _, cluster := range slices.Sorted(maps.Keys(held)) {
			err = cmp.Or(err, held[cluster])
		}
		if err != nil {
			view.writeErrors[gateway], failed = err, cmp.Or(failed, err)
		}
	}
	view.clusters = byGateway
	p.setGateways(view, snap)
	return failed
}

// patches are the desired patches of a Gateway's clusters, by the policies in the snapshot.
func (snap *policySnapshot) patches(gateway types.NamespacedName, g *outliers.Gateways, clusters []outlier.Patched) actuate.GatewayPatches {
	doubtful := map[string]bool{}
	wants := actuate.GatewayPatches{
		Gateway: gateway, GatewayUID: g.UIDs[gateway], Wanted: outlier.NewPatchSet(clusters), State: snap.state(), Admitted: map[types.UID]actuate.AdmittedOutlier{},
		Doubtful: func(cluster string) bool { return doubtful[cluster] || unreadKind(g.Unread, cluster) },
	}
	for i := range clusters {
		doubtful[clusters[i].Cluster] = clusters[i].Doubtful()
		for _, of := range clusters[i].Policies {
			wants.Admitted[of.UID] = snap.policies[of.Key()].admitted
		}
	}
	return wants
}

// unreadKind says whether a cluster is of a kind of routes whose informer isn't synced.
func unreadKind(unread map[string]bool, cluster string) bool {
	kind, _, _ := strings.Cut(cluster, "/")
	for of := range unread {
		if strings.EqualFold(of, kind) {
			return true
		}
	}
	return false
}

func compareNames(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }
