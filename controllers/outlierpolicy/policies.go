package outlierpolicy

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
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
