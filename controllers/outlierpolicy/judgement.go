package outlierpolicy

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/judging"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

const kindOutlierPolicy = "OutlierPolicy"

// reading is a policy as the translation takes it.
type reading struct {
	// policy has no settings when the spec can't be read; unreadable says why.
	policy     *outlier.Policy
	unreadable error
}

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

// policy takes in a policy that is new or changed.
func (p *Publisher) policy(op *v1alpha1.OutlierPolicy) {
	if op.DeletionTimestamp != nil {
		p.policyGone(op)
		return
	}
	if !p.judge.Observe(op) {
		p.stale.add(op.Namespace)
		p.judge.Soon(client.ObjectKeyFromObject(op))
	}
}

func (p *Publisher) policyGone(op *v1alpha1.OutlierPolicy) {
	p.judge.Forget(op)
	p.stale.add(op.Namespace)
	p.changed()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enqueue(client.ObjectKeyFromObject(op)) // its series go with it
}

// judgeNow asks the rules about a stored policy as it is now.
func (p *Publisher) judgeNow(ctx context.Context, key types.NamespacedName) {
	if p.judge.Judge(ctx, key) {
		p.stale.add(key.Namespace)
		p.changed()
	}
}

// rulesChanged has the affected policies judged again, and no others.
func (p *Publisher) rulesChanged(c guard.Change) {
	if c.Policy && p.judge.FollowPolicy(p.Guard.Policy()) {
		p.changed()
	}
	p.judge.RulesChanged(c)
}

// stanceOf a pause.
func stanceOf(by status.Pause) outlier.Stance {
	switch {
	case by.Frozen:
		return outlier.Frozen
	case by.By != "":
		return outlier.Paused
	}
	return outlier.Acting
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
	j, judged := p.judge.Of(client.ObjectKeyFromObject(op))
	if current := judged && j.Settled(op); !current {
		return before.anew(), before != nil
	}
	s = &standing{generation: j.Generation, verdict: j.Verdict, reading: j.Read, admitted: j.Admitted}
	unknown := !j.Admitted.Valid() && j.Read.unreadable == nil && !judging.Told(j.Verdict, nil).Violated
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
