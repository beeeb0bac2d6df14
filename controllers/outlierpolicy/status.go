package outlierpolicy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/set"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/policy"
)

// controllerName is who writes the status, in GEP-713's terms.
const controllerName = "autohealer.resourcestack.com/outlierpolicy"

// statusOf returns a policy's status. The same snapshot and the same progress give the same status, so that nothing is written when
// nothing changed. Envoys is nil when no xDS is served; gateways are the ancestors for Gateways.
func statusOf(op *v1alpha1.OutlierPolicy, snap *policySnapshot, envoys *actuate.Clusters, gateways []v1alpha1.OutlierAncestorStatus) v1alpha1.OutlierPolicyStatus {
	s := snap.policies[client.ObjectKeyFromObject(op)]
	of := snap.clustersOf(s.policy)
	after := *op.Status.DeepCopy()
	after.ObservedGeneration, after.Clusters, after.Hosts = op.Generation, int32(len(of.holds)), countHosts(of.holds)
	after.Ancestors = nil
	targets := op.Spec.TargetRefs
	if len(targets) == 0 {
		after.Ancestors = append(after.Ancestors, ancestorStatus(op, snap, of, envoys, nil))
	}
	for i := range targets {
		after.Ancestors = append(after.Ancestors, ancestorStatus(op, snap, of, envoys, &targets[i]))
	}
	after.Ancestors = append(after.Ancestors, gateways[:min(len(gateways), maxAncestors-len(after.Ancestors))]...)
	commonConditions(op, s, of, snap, envoys != nil || len(gateways) > 0).Apply(&after.Conditions, op.Generation)
	policy.SetWhileTrue(&after.Conditions, op.Generation, atRiskCondition(of.holds))
	policy.SetWhileTrue(&after.Conditions, op.Generation, removalDelayedCondition(s.policy, snap, envoys))
	return after
}

// commonConditions are the conditions that every kind has.
func commonConditions(op *v1alpha1.OutlierPolicy, s *policyState, of policyClusters, snap *policySnapshot, reachesEnvoys bool) policy.Conditions {
	state := policy.Conditions{
		Acceptance: policy.AcceptanceOf(s.verdict, s.unreadable), Changes: "clusters", Synced: true, Paused: snap.paused,
		Summary: fmt.Sprintf("It holds for %d clusters with %d hosts; for %d more another policy does.", len(of.holds), countHosts(of.holds), of.overridden+of.conflicted),
	}
	if !reachesEnvoys {
		state.Stalled = policy.Cause{Reason: v1alpha1.ReasonNotServed, Message: "No Envoy is served: start Autohealer with --xds-bind-address, or label a Gateway of Envoy Gateway's."}
	}
	if op.Spec.Mode == v1alpha1.Observe {
		state.Observes, state.Summary = true, "Mode Observe: Envoy counts, and ejects nobody. "+state.Summary
	}
	return state
}

// atRiskCondition: the policy may eject all hosts of a cluster at once.
func atRiskCondition(clusters []cluster) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAtRisk}
	var names []string
	for _, c := range clusters {
		if c.Policy.Detects() && c.Policy.Settings.EjectsEverything(len(c.hosts)) {
			names = append(names, c.Key.String())
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		c.Reason = v1alpha1.ReasonEjectsEverything
		c.Message = fmt.Sprintf("All ready hosts of %d clusters may be ejected at once: %s.", len(names), strings.Join(names[:min(5, len(names))], ", "))
	}
	return c
}

// removalDelayedCondition: Envoys keep clusters of Services and routes that are gone. Policies in their namespaces have it, and the
// cluster's default.
func removalDelayedCondition(p *outlier.Policy, snap *policySnapshot, envoys *actuate.Clusters) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionClusterRemovalDelayed}
	if envoys == nil {
		return c
	}
	delayed := envoys.DelayedRemovals()
	names := slices.DeleteFunc(delayed.Clusters, func(name string) bool {
		key, _ := outlier.ParseKey(name)
		return key.Service.Namespace != p.Namespace && !snap.index.IsGlobal(p)
	})
	if len(names) > 0 {
		c.Reason = v1alpha1.ReasonTooManyRemovals
		c.Message = fmt.Sprintf("Envoys keep %d clusters whose Services or routes are gone, because more than a tenth of all would go at once: %s. "+
			"From %s on a tenth goes each minute. A Guardrail with frozen: true keeps them.",
			len(names), strings.Join(names[:min(5, len(names))], ", "), delayed.Start.UTC().Format(time.RFC3339))
	}
	return c
}

// ancestorStatus is a policy's status for a target; a nil target stands for a default's namespace.
func ancestorStatus(op *v1alpha1.OutlierPolicy, snap *policySnapshot, of policyClusters, envoys *actuate.Clusters, ref *v1alpha1.OutlierTargetReference) v1alpha1.OutlierAncestorStatus {
	s := snap.policies[client.ObjectKeyFromObject(op)]
	clusters := clustersFor(ref, of.holds)
	a := v1alpha1.OutlierAncestorStatus{
		AncestorRef: ancestorReference(op.Namespace, ref), ControllerName: controllerName, Clusters: int32(len(clusters)), Hosts: countHosts(clusters),
	}
	for _, before := range op.Status.Ancestors {
		if equality.Semantic.DeepEqual(before.AncestorRef, a.AncestorRef) {
			a.Conditions = slices.Clone(before.Conditions)
		}
	}
	policy.Set(&a.Conditions, op.Generation, acceptedCondition(op, s, snap, ref, clusters, of.overridden))
	programmed, proxies := programmedCondition(clusters, envoys, snap.paused)
	policy.Set(&a.Conditions, op.Generation, programmed)
	if envoys != nil && envoys.OthersKnown() {
		a.Proxies = &proxies
	}
	if len(clusters) > 0 && s.policy.Detects() {
		effective := s.policy.Settings.WithDefaults()
		a.Effective = &effective
	}
	return a
}

// acceptedCondition says whether the policy holds for a target, and why not.
func acceptedCondition(op *v1alpha1.OutlierPolicy, s *policyState, snap *policySnapshot, ref *v1alpha1.OutlierTargetReference, clusters []cluster, overridden int) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse}
	overTLS, missing := snap.overTLS(op.Namespace, ref), ""
	if ref != nil {
		missing = snap.index.Missing(op.Namespace, *ref, snap.services[op.Namespace])
	}
	switch holder := holderOf(op, snap, ref); {
	case s.policy.Refused:
		c.Reason, c.Message = v1alpha1.ReasonInvalid, "The rules refuse the policy; see its condition Accepted."
	case holder != nil && holder != s.policy:
		c.Reason, c.Message = v1alpha1.ReasonConflicted, fmt.Sprintf("OutlierPolicy %s is older and has the same target.", holder.Key())
	case ref != nil && snap.unreadKinds[ref.Kind]:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonPending, fmt.Sprintf("Objects of kind %s can't be read yet; Envoys keep what they have of them.", ref.Kind)
	case missing != "":
		c.Reason, c.Message = v1alpha1.ReasonTargetNotFound, "There is no "+missing+"."
	default:
		setAccepted(&c, clusters, overridden, overTLS)
	}
	return c
}

// setAccepted sets the condition of a policy that nothing prevents: for how many clusters it holds, and what Envoys don't do for them;
// overTLS is where its traffic goes over TLS.
func setAccepted(c *metav1.Condition, clusters []cluster, overridden int, overTLS string) {
	switch {
	case len(clusters) == 0 && overTLS != "":
		c.Reason, c.Message = v1alpha1.ReasonOverTLS, fmt.Sprintf("Its traffic to %s goes over TLS, whose names, certificates and authorities Autohealer doesn't know: Envoys get no cluster for it.", overTLS)
	case len(clusters) == 0 && overridden > 0:
		c.Reason, c.Message = v1alpha1.ReasonOverridden, "More specific policies hold for all of it."
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonPolicyAccepted, fmt.Sprintf("It holds for %d clusters.", len(clusters))
		if overTLS != "" {
			c.Message += fmt.Sprintf(" Traffic to %s goes over TLS: there is no cluster for it.", overTLS)
		}
		c.Message += notFollowedText(clusters)
	}
}

// notFollowedText has sentences about settings of the clusters' Services that Envoys don't follow.
func notFollowedText(clusters []cluster) (text string) {
	all := set.New[string]()
	for _, c := range clusters {
		all.Insert(c.NotFollowed()...)
	}
	const shown = 3
	for i, one := range all.SortedList() {
		if i == shown {
			return text + fmt.Sprintf(" And %d more.", len(all)-shown)
		}
		text += fmt.Sprintf(" Not followed: %s.", one)
	}
	return text
}

// overTLS is where a target's traffic goes over TLS; "" for nowhere.
func (snap *policySnapshot) overTLS(namespace string, ref *v1alpha1.OutlierTargetReference) string {
	if ref == nil {
		return ""
	}
	return snap.index.OverTLS(namespace, *ref, snap.services[namespace])
}

func holderOf(op *v1alpha1.OutlierPolicy, snap *policySnapshot, ref *v1alpha1.OutlierTargetReference) *outlier.Policy {
	if ref == nil {
		return nil
	}
	return snap.index.Holder(op.Namespace, *ref)
}

// envoyProgress is how far Envoys are with some clusters.
type envoyProgress struct {
	nacks, unconfirmed []string
	paused             int
	proxies            v1alpha1.OutlierProxies
	// unknown: it isn't known yet which Envoys are connected to other replicas.
	unknown bool
}

func progressOf(clusters []cluster, envoys *actuate.Clusters) (t envoyProgress) {
	keys, rejections := make([]outlier.Key, len(clusters)), envoys.Rejections()
	for i, one := range clusters {
		keys[i] = one.Key
		if one.paused {
			t.paused++
		}
		if one.unconfirmed != nil {
			t.unconfirmed = append(t.unconfirmed, one.unconfirmed.Error())
		}
		if len(rejections) == 0 {
			continue
		}
		for _, r := range rejections[one.Key.String()] {
			t.nacks = append(t.nacks, fmt.Sprintf("%s: %s", one.Key, r.Message))
		}
	}
	t.unknown = !envoys.OthersKnown() // read before the counts, which may only be newer
	connected, acked := envoys.CountProxies(keys)
	t.proxies = v1alpha1.OutlierProxies{Connected: int32(connected), Acked: int32(acked)}
	return t
}

// programmedCondition says how far Envoys are with some clusters.
func programmedCondition(clusters []cluster, envoys *actuate.Clusters, paused policy.Pause) (metav1.Condition, v1alpha1.OutlierProxies) {
	c := metav1.Condition{Type: v1alpha1.ConditionProgrammed, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNoProxies, Message: "No Envoy that may see it is connected."}
	if envoys == nil {
		return c, v1alpha1.OutlierProxies{}
	}
	if len(clusters) == 0 {
		c.Reason, c.Message = v1alpha1.ReasonNoClusters, "It holds for no cluster, so there is nothing that Envoys could have."
		return c, v1alpha1.OutlierProxies{}
	}
	t := progressOf(clusters, envoys)
	all := t.proxies
	if len(t.nacks)+t.paused+len(t.unconfirmed) > 0 || all.Connected > 0 {
		c.Status = metav1.ConditionFalse
	}
	switch {
	case len(t.nacks) > 0:
		slices.Sort(t.nacks)
		c.Reason, c.Message = v1alpha1.ReasonNacked, truncate(t.nacks[0])
	case t.paused > 0:
		c.Reason, c.Message = v1alpha1.ReasonPaused, fmt.Sprintf("%s: Envoys keep %d of %d clusters as they were.", paused.By, t.paused, len(clusters))
	case len(t.unconfirmed) > 0:
		c.Reason, c.Message = v1alpha1.ReasonPending, truncate(fmt.Sprintf("Envoys keep %d of %d clusters as they were: %s.", len(t.unconfirmed), len(clusters), slices.Min(t.unconfirmed)))
	case t.unknown:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonPending, "It isn't known yet which Envoys are connected to other replicas."
	case all.Connected > 0:
		c.Reason, c.Message = v1alpha1.ReasonPending, fmt.Sprintf("%d of %d connected Envoys acknowledged the clusters.", all.Acked, all.Connected)
		if all.Acked == all.Connected {
			c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonProgrammed
		}
	}
	return c, all
}

// truncate shortens a message to what a condition may have.
func truncate(text string) string {
	const longest = 1024
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}

func countHosts(clusters []cluster) (n int32) {
	for _, c := range clusters {
		n += int32(len(c.hosts))
	}
	return n
}

// ancestorReference refers to a target; nil stands for a default's namespace.
func ancestorReference(namespace string, ref *v1alpha1.OutlierTargetReference) v1alpha1.OutlierAncestorReference {
	if ref == nil {
		return v1alpha1.OutlierAncestorReference{Kind: "Namespace", Name: namespace}
	}
	return v1alpha1.OutlierAncestorReference{
		Group: ref.Group, Kind: ref.Kind, Namespace: namespace, Name: ref.Name, SectionName: ref.SectionName, Backend: ref.Backend,
	}
}
