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

type storedPolicy = policy.Policy[*v1alpha1.OutlierPolicy, reading]

// reading is a policy as the translation takes it.
type reading struct {
	// policy has no settings when the spec can't be read; unreadable says why.
	policy     *outlier.Policy
	unreadable error
}

// Unreadable says why the spec can't be read.
func (r reading) Unreadable() error { return r.unreadable }

// read reads a policy. Most news of one are of its status only.
func read(op *v1alpha1.OutlierPolicy, before reading) (r reading) {
	if p := before.policy; p != nil && p.UID == op.UID && p.Generation == op.Generation {
		return before
	}
	if r.policy, r.unreadable = outlier.NewPolicy(op); r.unreadable != nil {
		r.policy.Refused = true
	}
	return r
}

// policy takes in a policy that is new or changed. One that isn't judged yet holds back what it may be about.
func (p *Publisher) policy(ctx context.Context, op *v1alpha1.OutlierPolicy) {
	p.policies.Seen(ctx, op)
	if _, judged := p.policies.Get(client.ObjectKeyFromObject(op)); !judged {
		p.stale.add(op.Namespace)
	}
}

// update has translated what a policy concerns, once it is judged.
func (p *Publisher) update(_ context.Context, before, now storedPolicy) {
	if now.SameJudgement(before) && isDeleted(now) == isDeleted(before) { // but for its status
		return
	}
	p.stale.add(now.Object.Namespace)
	if !now.Outdated {
		p.changed()
	}
}

// isDeleted says whether a policy waits only for what it did to be undone.
func isDeleted(p storedPolicy) bool { return p.Object != nil && p.Object.DeletionTimestamp != nil }

func (p *Publisher) forget(op *v1alpha1.OutlierPolicy) {
	p.stale.add(op.Namespace)
	p.changed()
}

// guardrailsChanged has translated what a pause, or its end, may have changed.
func (p *Publisher) guardrailsChanged(c guard.Change) {
	if c.Policy {
		p.changed()
	}
}

// standing is how one policy stands.
type standing struct {
	generation int64
	verdict    guard.Verdict
	reading
	admitted guard.Validated[*v1alpha1.OutlierPolicy]

	clusters []cluster
	// overridden and conflicted are clusters for which another policy holds.
	overridden, conflicted []*outlier.Assignment
}

// cluster is one for which the policy holds.
type cluster struct {
	*outlier.Assignment
	hosts []outlier.Host
	// withheld: a pause keeps Envoys from being told.
	withheld bool
	// doubt is why Envoys aren't told yet.
	doubt error
}

// doubtful is how a policy stands of which nobody knows yet what the rules say. It is of no generation: no status tells of it.
func doubtful(op *v1alpha1.OutlierPolicy) *standing {
	p, err := outlier.NewPolicy(op)
	p.Doubtful = true
	return &standing{reading: reading{policy: p, unreadable: err}}
}

// stand says how a stored policy stands; ok is false while nothing is known of it. Where nobody can tell what is to be thought of
// it as it is now, it goes on as it was before.
func (p *Publisher) stand(op *v1alpha1.OutlierPolicy, before *standing) (s *standing, ok bool) {
	if before != nil && before.policy.UID != op.UID {
		before = nil // somebody else's of the same name
	}
	j, judged := p.policies.Get(client.ObjectKeyFromObject(op))
	if current := judged && j.IsCurrent(op); !current {
		return before.anew(), before != nil
	}
	s = &standing{generation: j.Generation, verdict: j.Verdict, reading: j.Read, admitted: j.Admitted}
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

// anew is the same without what was counted; nil of nil.
func (s *standing) anew() *standing {
	if s == nil {
		return nil
	}
	return &standing{generation: s.generation, verdict: s.verdict, reading: s.reading, admitted: s.admitted}
}
