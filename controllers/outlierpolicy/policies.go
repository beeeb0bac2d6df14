package outlierpolicy

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/policy"
)

const kindOutlierPolicy = "OutlierPolicy"

type storedPolicy = policy.Policy[*v1alpha1.OutlierPolicy, parsedPolicy]

// parsedPolicy is a policy as the translation takes it.
type parsedPolicy struct {
	// policy has no settings when the spec can't be read; unreadable says why.
	policy     *outlier.Policy
	unreadable error
}

// Unreadable says why the spec can't be read.
func (r parsedPolicy) Unreadable() error { return r.unreadable }

// parse parses a policy's spec, unless before is of the same generation: most updates are of the status only.
func parse(op *v1alpha1.OutlierPolicy, before parsedPolicy) (r parsedPolicy) {
	if p := before.policy; p != nil && p.UID == op.UID && p.Generation == op.Generation {
		return before
	}
	if r.policy, r.unreadable = outlier.NewPolicy(op); r.unreadable != nil {
		r.policy.Refused = true
	}
	return r
}

// onPolicy handles a policy that is new or changed. Until the rules are evaluated for it, it is doubtful: what it may apply to stays as
// it is.
func (p *Publisher) onPolicy(ctx context.Context, op *v1alpha1.OutlierPolicy) {
	p.policies.Seen(ctx, op)
	if _, judged := p.policies.Get(client.ObjectKeyFromObject(op)); !judged {
		p.stale.add(op.Namespace)
	}
}

// onVerdict has a policy's namespace translated once the rules are evaluated for it.
func (p *Publisher) onVerdict(_ context.Context, before, now storedPolicy) {
	if now.SameVerdict(before) && isDeleted(now) == isDeleted(before) { // only its status changed
		return
	}
	p.stale.add(now.Object.Namespace)
	if !now.Outdated {
		p.translation.fire()
	}
}

// isDeleted says whether a policy exists only until what it did is undone.
func isDeleted(p storedPolicy) bool { return p.Object != nil && p.Object.DeletionTimestamp != nil }

func (p *Publisher) onDeleted(op *v1alpha1.OutlierPolicy) {
	p.stale.add(op.Namespace)
	p.translation.fire()
}

// onGuardrailChange has everything translated when a pause may have begun or ended.
func (p *Publisher) onGuardrailChange(c guard.Change) {
	if c.Policy {
		p.translation.fire()
	}
}

// policyState is one policy, parsed and admitted. It is immutable.
type policyState struct {
	generation int64
	verdict    guard.Verdict
	parsedPolicy
	admitted guard.Validated[*v1alpha1.OutlierPolicy]
}

// policyClusters are the clusters that a policy holds for. Of its targets' others, overridden are those for which a more specific policy
// holds, and conflicted those for which an older one does.
type policyClusters struct {
	holds                  []cluster
	overridden, conflicted int
}

// cluster is one for which the policy holds.
type cluster struct {
	*outlier.Assignment
	hosts []outlier.Host
	// paused: Envoys keep the cluster as it was because of a pause.
	paused bool
	// unconfirmed is why Envoys keep the cluster as it was although nothing is paused.
	unconfirmed error
}

// doubtfulState is the state of a policy for which the rules aren't evaluated yet. It has no generation, so that no status is written
// from it.
func doubtfulState(op *v1alpha1.OutlierPolicy) *policyState {
	p, err := outlier.NewPolicy(op)
	p.Doubtful = true
	return &policyState{parsedPolicy: parsedPolicy{policy: p, unreadable: err}}
}

// stateOf returns the state of a stored policy; ok is false while nothing is known of it. Where the rules couldn't be evaluated for its
// current spec, the state before stays in force.
func (p *Publisher) stateOf(op *v1alpha1.OutlierPolicy, before *policyState) (s *policyState, ok bool) {
	if before != nil && before.policy.UID != op.UID {
		before = nil // another policy of the same name
	}
	j, judged := p.policies.Get(client.ObjectKeyFromObject(op))
	if current := judged && j.IsCurrent(op); !current {
		return before, before != nil
	}
	s = &policyState{generation: j.Generation, verdict: j.Verdict, parsedPolicy: j.Read, admitted: j.Admitted}
	unknown := !j.Admitted.Valid() && j.Read.unreadable == nil && !policy.AcceptanceOf(j.Verdict, nil).Violated
	switch {
	case unknown && before != nil && !before.policy.Doubtful:
		s.policy, s.admitted = before.policy, before.admitted
	case !j.Admitted.Valid() && !s.policy.Refused:
		refused := *s.policy
		refused.Refused = true
		s.policy = &refused
	}
	return s, true
}

// apply has clusters served. One whose policy can't be confirmed stays as it was sent before. Namespaces with such clusters, or where
// something is missing, stay stale.
func (p *Publisher) apply(ctx context.Context, snap *policySnapshot, clusters []actuate.Cluster) (again time.Duration, err error) {
	missing := p.clusters(snap)
	if len(missing.Missing) > 0 && !snap.paused.Frozen {
		again = unansweredRetry
	}
	held, removed, err := p.Clusters.Apply(ctx, clusters, missing)
	if err != nil {
		return 0, err
	}
	for _, key := range missing.Missing {
		p.stale.add(key.Service.Namespace)
	}
	for key, err := range held {
		again = retryAfter
		p.stale.add(key.Service.Namespace)
		log.FromContext(ctx).V(1).Info("Can't confirm a cluster's policy; Envoys keep the cluster as it was; retrying", "cluster", key.String(), "reason", err.Error())
	}
	snap.setUnconfirmed(held)
	sent := make(map[outlier.Key]outlier.Protocol, len(clusters))
	for i := range clusters {
		if last, wasSent := p.Clusters.Last(clusters[i].Key); wasSent {
			sent[last.Key] = last.Protocol()
		}
	}
	p.addServed(sent)
	p.forgetRemoved(removed)
	return again, nil
}

// previousState is what a translation starts from.
type previousState struct {
	// isFirst: nothing was sent yet, or no xDS is served.
	isFirst bool
	// last is a cluster as Envoys were sent it last. Those of Services and routes that are missing stay: one that returns during a freeze, or
	// while its policy is doubtful, continues as it was.
	last func(outlier.Key) (cluster actuate.Cluster, sent bool)
	// served are the clusters that Envoys may have in the namespaces that are translated, by Service.
	served map[types.NamespacedName]map[outlier.Key]outlier.Protocol
}

// translate returns the desired clusters of the namespaces that a snapshot covers. A process that has sent nothing yet takes what it finds
// as sent by the process before, whatever is paused since: else detection would end with each restart during an incident.
func translate(snap *policySnapshot, objects outlier.Objects, previous previousState) []actuate.Cluster {
	clusters := make([]actuate.Cluster, 0, len(objects.Services))
	for _, svc := range objects.Services {
		name := client.ObjectKeyFromObject(svc)
		served := previous.served[name]
		for _, a := range snap.index.Assign(svc, slices.Collect(maps.Keys(served))) {
			last, was := previous.last(a.Key)
			if _, isServed := served[a.Key]; a.Policy != nil && a.Policy.Doubtful && !previous.isFirst && !was && !isServed {
				continue // no Envoy has it: it is served once the rules are evaluated for its policy
			}
			c := snap.desiredCluster(a, last, previous.isFirst, served[a.Key])
			c.Hosts = outlier.HostsOf(svc, a.Port, objects.Slices[name])
			clusters = append(clusters, c)
			snap.addCluster(a, c.Hosts, c.Policy != a.Policy)
		}
		snap.presentServices[name] = true
	}
	return clusters
}

// desiredCluster returns a cluster as it is to be served, given what Envoys were sent before; first: nothing was sent yet. Protocol is the
// recorded one.
func (snap *policySnapshot) desiredCluster(a *outlier.Assignment, before actuate.Cluster, first bool, protocol outlier.Protocol) actuate.Cluster {
	c := actuate.Cluster{Assignment: *a}
	state := snap.state()
	switch {
	case first:
		state = lifecycle.Active
	case a.Policy != nil && a.Policy.Doubtful:
		state = lifecycle.Frozen
	}
	switch c.Policy = outlier.EffectivePolicy(state, a.Policy, before.Policy); c.Policy {
	case nil:
	case before.Policy:
		c.Admitted = before.Admitted
	default:
		c.Admitted = snap.policies[c.Policy.Key()].admitted
	}
	route := a.Key.Route
	if route != (outlier.RouteKey{}) && (a.TLS || !snap.index.HasRoute(a.Key.Service.Namespace, route)) { // which only the route says
		c.TCP, c.HTTP2 = a.TCP || before.TCP, a.HTTP2 || protocol == outlier.H2C
	}
	return c
}

// missingClusters are the served clusters whose Services or routes are missing in the namespaces that a snapshot covers, which include all
// where something was missing before; and those of them that live reads confirm to be gone, unless a freeze keeps them.
func (p *Publisher) clusters(snap *policySnapshot) (clusters actuate.Absent) {
	all := p.missingObjects(snap)
	for _, keys := range all {
		clusters.Missing = append(clusters.Missing, keys...)
	}
	if snap.paused.Frozen {
		return clusters
	}
	objects := make(map[objectRef]bool, len(all))
	for o := range all {
		objects[o] = true
	}
	for o := range p.confirmer.confirmedGone(objects) {
		clusters.Gone = append(clusters.Gone, all[o]...)
	}
	return clusters
}
