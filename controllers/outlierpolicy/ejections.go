package outlierpolicy

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/outlier/ejection"
	"github.com/resourcestack/autohealer/internal/policy"
)

// maxListedEjections bounds the ejections that a status lists.
const maxListedEjections = 20

// ejectionState is what is known of a policy's ejected hosts.
type ejectionState struct {
	// unknown is the reason and message of condition EjectionsUnknown, empty when ejections are known; pending: Envoys were polled for the
	// first time only just now, so neither is certain yet.
	unknown policy.Cause
	pending bool
	// ejections by host.
	ejections map[ejection.Host]v1alpha1.OutlierEjection
	// hosts are all of the policy's clusters, ejected or not.
	hosts map[ejection.Host]outlier.Host
}

// envoyObservations are what is known of the Envoys that may have ejected hosts.
type envoyObservations struct {
	view *ejection.View // nil before the first poll
	// connected counts the Envoys that get a namespace's clusters, by identity; known is false while other replicas' aren't known.
	connected func(namespace string) (by map[string]int, known bool)
	// recentlyConnected says whether Envoys that aren't polled connected so recently that they may not be ready yet.
	recentlyConnected func(namespace string, unpolled bool) bool
}

// observeEjections returns what Envoys report of a policy's clusters.
func observeEjections(clusters []cluster, envoys envoyObservations) ejectionState {
	view := envoys.view
	e := ejectionState{ejections: map[ejection.Host]v1alpha1.OutlierEjection{}, hosts: map[ejection.Host]outlier.Host{}}
	if view == nil {
		e.pending = true
		return e
	}
	namespaces := map[string]bool{}
	for _, c := range clusters {
		namespaces[c.Key.Service.Namespace] = true
		for _, h := range c.hosts {
			host := ejection.Host{Cluster: c.Key, Address: net.JoinHostPort(h.Address, strconv.FormatUint(uint64(h.Port), 10))}
			e.hosts[host] = h
			if x, is := view.EjectionOf(host); is {
				e.ejections[host] = v1alpha1.OutlierEjection{
					Cluster: host.Cluster.String(), Address: host.Address, Pod: h.Pod, Envoys: int32(x.Envoys), Since: metav1.NewTime(x.Since),
				}
			}
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		unknown, recent := envoys.unknownReason(namespace)
		e.pending = e.pending || recent || view.Pending(namespace)
		if e.unknown.Reason == "" {
			e.unknown = unknown
		}
	}
	return e
}

// unknownReason says why ejections of a namespace's Services aren't known; pending: they may be known in a moment.
func (k *envoyObservations) unknownReason(namespace string) (cause policy.Cause, pending bool) {
	connected, known := k.connected(namespace)
	unpolled := k.view.NotPolled(namespace, connected)
	recent := k.recentlyConnected(namespace, unpolled > 0)
	if cause = silentReason(k.view, namespace); cause.Reason != "" {
		return cause, false
	}
	switch {
	case !known:
		return policy.Cause{Reason: v1alpha1.ReasonEnvoysNotAsked, Message: "It isn't known yet which Envoys are connected to other replicas, and so it isn't known whom they have ejected."}, false
	case unpolled > 0:
		return policy.Cause{Reason: v1alpha1.ReasonEnvoysNotAsked, Message: fmt.Sprintf("%d Envoys get clusters of namespace %s and aren't asked whom they have ejected, and so it isn't known: "+
			"the Services in --ejections-from don't lead to them, or they aren't ready, as while they drain.", unpolled, namespace)}, recent
	}
	return cause, false
}

// silentReason says why the Envoys that are polled don't report the ejections of a namespace's Services.
func silentReason(view *ejection.View, namespace string) policy.Cause {
	silent := view.Silent(namespace)
	switch n := len(silent); {
	case n > 0:
		return policy.Cause{Reason: v1alpha1.ReasonEnvoysNotAnswering, Message: truncate(fmt.Sprintf("%d of %d Envoys don't say whom they have ejected, and so it isn't known: %s: %s.",
			n, n+view.Answering(namespace), silent[0].Name, silent[0].Problem))}
	case len(view.Missing) > 0:
		return policy.Cause{Reason: v1alpha1.ReasonNoEnvoys, Message: "Not all Envoys are known, and so it isn't known whom they have ejected: " + strings.Join(view.Missing, "; ") + "."}
	case view.Answering(namespace) == 0:
		return policy.Cause{Reason: v1alpha1.ReasonNoEnvoys, Message: fmt.Sprintf("No Envoy that is asked may see namespace %s.", namespace)}
	}
	return policy.Cause{}
}

// writeStatus writes the ejections to a status. While they are pending the status keeps what it has.
func (e *ejectionState) writeStatus(op *v1alpha1.OutlierPolicy, after *v1alpha1.OutlierPolicyStatus, holds []cluster) {
	if e.pending {
		for i := range after.Ancestors {
			for _, before := range op.Status.Ancestors {
				if equality.Semantic.DeepEqual(before.AncestorRef, after.Ancestors[i].AncestorRef) {
					after.Ancestors[i].Ejected = before.Ejected
				}
			}
		}
		return
	}
	e.unknown = cmp.Or(e.unknown, gatewayNotPolled(after.Ancestors))
	policy.SetWhileTrue(&after.Conditions, op.Generation, metav1.Condition{Type: v1alpha1.ConditionEjectionsUnknown, Reason: e.unknown.Reason, Message: e.unknown.Message})
	after.Ejected, after.Ejections = nil, nil
	if e.unknown.Reason != "" {
		return
	}
	after.Ejected, after.Ejections = new(int32(len(e.ejections))), e.longest()
	for i := range max(1, len(op.Spec.TargetRefs)) { // what follows are Gateways
		var ref *v1alpha1.OutlierTargetReference
		if len(op.Spec.TargetRefs) > 0 {
			ref = &op.Spec.TargetRefs[i]
		}
		after.Ancestors[i].Ejected = new(e.countIn(clustersFor(ref, holds)))
	}
}

// gatewayNotPolled says that ejections aren't known where a policy applies to Gateways: their proxies aren't polled.
func gatewayNotPolled(ancestors []v1alpha1.OutlierAncestorStatus) policy.Cause {
	for _, a := range ancestors {
		if a.AncestorRef.Kind == outlier.GatewayKind.Kind && a.Clusters > 0 {
			return policy.Cause{Reason: v1alpha1.ReasonEnvoysNotAsked, Message: fmt.Sprintf("The proxies of Gateway %s/%s aren't asked whom they have ejected, and so it isn't known.", a.AncestorRef.Namespace, a.AncestorRef.Name)}
		}
	}
	return policy.Cause{}
}

// countIn counts the ejections of some clusters.
func (e *ejectionState) countIn(clusters []cluster) (n int32) {
	for h := range e.ejections {
		if slices.ContainsFunc(clusters, func(c cluster) bool { return c.Key == h.Cluster }) {
			n++
		}
	}
	return n
}

// longest are the ejections that a status lists: the oldest.
func (e *ejectionState) longest() []v1alpha1.OutlierEjection {
	all := slices.SortedFunc(maps.Values(e.ejections), func(a, b v1alpha1.OutlierEjection) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Address, b.Address))
	})
	return all[:min(maxListedEjections, len(all))]
}

// clearEjections removes ejections from a status when Envoys are no longer polled.
func clearEjections(after *v1alpha1.OutlierPolicyStatus) {
	meta.RemoveStatusCondition(&after.Conditions, v1alpha1.ConditionEjectionsUnknown)
	after.Ejected, after.Ejections = nil, nil
}

// reportedEjections are the ejections that were reported for each policy. A manager that starts takes those in the status, so that
// nothing is reported twice.
type reportedEjections struct{ byPolicy sync.Map }

// reportedEjection is since when this process has observed an ejection, and the since that was reported.
type reportedEjection struct{ observedAt, since time.Time }

// get returns what was reported for a policy.
func (r *reportedEjections) get(key types.NamespacedName, status *v1alpha1.OutlierPolicyStatus) map[ejection.Host]reportedEjection {
	if before, ok := r.byPolicy.Load(key); ok {
		return before.(map[ejection.Host]reportedEjection)
	}
	before := map[ejection.Host]reportedEjection{}
	for _, x := range status.Ejections {
		if cluster, ok := outlier.ParseKey(x.Cluster); ok {
			before[ejection.Host{Cluster: cluster, Address: x.Address}] = reportedEjection{since: x.Since.Time}
		}
	}
	return before
}

func (r *reportedEjections) set(key types.NamespacedName, now map[ejection.Host]reportedEjection) {
	r.byPolicy.Store(key, now)
}

func (r *reportedEjections) forget(key types.NamespacedName) { r.byPolicy.Delete(key) }

// keepSince keeps the since that was reported before for ejections that continue, and returns what is to be reported now.
func keepSince(e *ejectionState, before map[ejection.Host]reportedEjection) map[ejection.Host]reportedEjection {
	now := make(map[ejection.Host]reportedEjection, len(e.ejections))
	for h, x := range e.ejections {
		t := reportedEjection{observedAt: x.Since.Time, since: x.Since.Truncate(time.Second)}
		if was, ok := before[h]; ok && (was.observedAt.IsZero() || was.observedAt.Equal(t.observedAt)) && was.since.Before(t.since) {
			t.since = was.since
		}
		now[h] = t
		x.Since = metav1.NewTime(t.since)
		e.ejections[h] = x
	}
	return now
}

// unpolled is since when some Envoy that gets clusters of a namespace isn't polled for ejections. A short interruption, as while an Envoy
// reconnects, doesn't begin a new period.
type unpolled struct {
	mu  sync.Mutex
	all map[string]period // needs mu
}

// period is a time span; its end is zero as long as it continues.
type period struct{ start, end time.Time }

// since updates a namespace's period, and returns for how long it has lasted; 0 when there is none.
func (n *unpolled) since(namespace string, isUnpolled bool, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, known := n.all[namespace]
	over := !p.end.IsZero() && now.Sub(p.end) >= ejection.StaleAfter
	if !isUnpolled {
		if over {
			delete(n.all, namespace)
		} else if known && p.end.IsZero() {
			n.all[namespace] = period{p.start, now}
		}
		return 0
	}
	if !known || over {
		p.start = now
	}
	if n.all == nil {
		n.all = map[string]period{}
	}
	n.all[namespace] = period{start: p.start}
	return now.Sub(p.start)
}
