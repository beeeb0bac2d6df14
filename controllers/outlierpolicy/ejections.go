package outlierpolicy

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/outlier/ejection"
	"github.com/resourcestack/autohealer/internal/policy"
)

// maxListedEjections bounds the ejections that a status lists.
const namedEjections = 20

// ejectionState is what is known of a policy's ejected hosts.
type ejected struct {
	// unknown is the reason and message of condition EjectionsUnknown, empty when ejections are known; pending: Envoys were polled for the
	// first time only just now, so neither is certain yet.
	unknown policy.Stuck
	waits   bool
	// ejections by host.
	hosts map[ejection.Host]v1alpha1.OutlierEjection
	// hosts are all of the policy's clusters, ejected or not.
	there map[ejection.Host]outlier.Host
}

// envoyObservations are what is known of the Envoys that may have ejected hosts.
type envoysKnown struct {
	view *ejection.View // nil before the first poll
	// connected counts the Envoys that get a namespace's clusters, by identity; known is false while other replicas' aren't known.
	connected func(namespace string) (by map[string]int, known bool)
	// recentlyConnected says whether Envoys that aren't polled connected so recently that they may not be ready yet.
	soon func(namespace string, notAsked bool) bool
}

// observeEjections returns what Envoys report of a policy's clusters.
func ejectedOf(clusters []cluster, envoys envoysKnown) ejected {
	view := envoys.view
	e := ejected{hosts: map[ejection.Host]v1alpha1.OutlierEjection{}, there: map[ejection.Host]outlier.Host{}}
	if view == nil {
		e.waits = true
		return e
	}
	namespaces := map[string]bool{}
	for _, c := range clusters {
		namespaces[c.Key.Service.Namespace] = true
		for _, h := range c.hosts {
			at := ejection.Host{Cluster: c.Key, Address: net.JoinHostPort(h.Address, strconv.FormatUint(uint64(h.Port), 10))}
			e.there[at] = h
			if x, is := view.Of(at); is {
				e.hosts[at] = v1alpha1.OutlierEjection{
					Cluster: at.Cluster.String(), Address: at.Address, Pod: h.Pod, Envoys: int32(x.Envoys), Since: metav1.NewTime(x.Since),
				}
			}
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		unknown, soon := envoys.unknownIn(namespace)
		e.waits = e.waits || soon || view.Waits(namespace)
		if e.unknown.Reason == "" {
			e.unknown = unknown
		}
	}
	return e
}

// unknownReason says why ejections of a namespace's Services aren't known; pending: they may be known in a moment.
func (k *envoysKnown) unknownIn(namespace string) (why policy.Stuck, waits bool) {
	connected, known := k.connected(namespace)
	notAsked := k.view.NotAsked(namespace, connected)
	soon := k.soon(namespace, notAsked > 0)
	if why = silentIn(k.view, namespace); why.Reason != "" {
		return why, false
	}
	switch {
	case !known:
		return policy.Stuck{Reason: v1alpha1.ReasonEnvoysNotAsked, Message: "It isn't known yet which Envoys are connected to other replicas, and so it isn't known whom they have ejected."}, false
	case notAsked > 0:
		return policy.Stuck{Reason: v1alpha1.ReasonEnvoysNotAsked, Message: fmt.Sprintf("%d Envoys get clusters of namespace %s and aren't asked whom they have ejected, and so it isn't known: "+
			"the Services in --ejections-from don't lead to them, or they aren't ready, as while they drain.", notAsked, namespace)}, soon
	}
	return why, false
}

// silentReason says why the Envoys that are polled don't report the ejections of a namespace's Services.
func silentIn(view *ejection.View, namespace string) policy.Stuck {
	silent := view.Silent(namespace)
	switch n := len(silent); {
	case n > 0:
		return policy.Stuck{Reason: v1alpha1.ReasonEnvoysNotAnswering, Message: cut(fmt.Sprintf("%d of %d Envoys don't say whom they have ejected, and so it isn't known: %s: %s.",
			n, n+view.Answering(namespace), silent[0].Name, silent[0].Problem))}
	case len(view.Missing) > 0:
		return policy.Stuck{Reason: v1alpha1.ReasonNoEnvoys, Message: "Not all Envoys are known, and so it isn't known whom they have ejected: " + strings.Join(view.Missing, "; ") + "."}
	case view.Answering(namespace) == 0:
		return policy.Stuck{Reason: v1alpha1.ReasonNoEnvoys, Message: fmt.Sprintf("No Envoy that is asked may see namespace %s.", namespace)}
	}
	return policy.Stuck{}
}

// writeStatus writes the ejections to a status. While they are pending the status keeps what it has.
func (e *ejected) put(op *v1alpha1.OutlierPolicy, after *v1alpha1.OutlierPolicyStatus, of *standing) {
	if e.waits {
		for i := range after.Ancestors {
			for _, before := range op.Status.Ancestors {
				if equality.Semantic.DeepEqual(before.AncestorRef, after.Ancestors[i].AncestorRef) {
					after.Ancestors[i].Ejected = before.Ejected
				}
			}
		}
		return
	}
	e.unknown = cmp.Or(e.unknown, notAskedOf(after.Ancestors))
	policy.SetWhileTrue(&after.Conditions, op.Generation, metav1.Condition{Type: v1alpha1.ConditionEjectionsUnknown, Reason: e.unknown.Reason, Message: e.unknown.Message})
	after.Ejected, after.Ejections = nil, nil
	if e.unknown.Reason != "" {
		return
	}
	after.Ejected, after.Ejections = new(int32(len(e.hosts))), e.named()
	for i := range max(1, len(op.Spec.TargetRefs)) { // what follows are Gateways
		var ref *v1alpha1.OutlierTargetReference
		if len(op.Spec.TargetRefs) > 0 {
			ref = &op.Spec.TargetRefs[i]
		}
		after.Ancestors[i].Ejected = new(e.in(of.of(ref)))
	}
}

// gatewayNotAsked says that ejections aren't known where a policy applies to Gateways: their proxies aren't polled.
func notAskedOf(ancestors []v1alpha1.OutlierAncestorStatus) policy.Stuck {
	for _, a := range ancestors {
		if a.AncestorRef.Kind == outlier.GatewayKind.Kind && a.Clusters > 0 {
			return policy.Stuck{Reason: v1alpha1.ReasonEnvoysNotAsked, Message: fmt.Sprintf("The proxies of Gateway %s/%s aren't asked whom they have ejected, and so it isn't known.", a.AncestorRef.Namespace, a.AncestorRef.Name)}
		}
	}
	return policy.Stuck{}
}

// countIn counts the ejections of some clusters.
func (e *ejected) in(clusters []cluster) (n int32) {
	for h := range e.hosts {
		if slices.ContainsFunc(clusters, func(c cluster) bool { return c.Key == h.Cluster }) {
			n++
		}
	}
	return n
}

// longest are the ejections that a status lists: the oldest.
func (e *ejected) named() []v1alpha1.OutlierEjection {
	all := slices.SortedFunc(maps.Values(e.hosts), func(a, b v1alpha1.OutlierEjection) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Address, b.Address))
	})
	return all[:min(namedEjections, len(all))]
}

// clearEjections removes ejections from a status when Envoys are no longer polled.
func noEjections(after *v1alpha1.OutlierPolicyStatus) {
	meta.RemoveStatusCondition(&after.Conditions, v1alpha1.ConditionEjectionsUnknown)
	after.Ejected, after.Ejections = nil, nil
}
