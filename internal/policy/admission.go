package policy

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// unasked is for how long a judgement is used for acts that may be over without any event, as one over an account's rights: asking anew
// costs a preview, and in a storm there are many acts.
const unasked = time.Second

// Admission gives the policy of this UID whose admission covers an act now; ok is false when none does. What may change without any
// event is asked once more, for all who wait for that at once.
func (p *Policies[T, R]) Admission(ctx context.Context, key types.NamespacedName, uid types.UID) (now Policy[T, R], ok bool) {
	if now, ok = p.Get(key); ok && p.fades(now) {
		now, ok = p.judgeOnce(ctx, key)
	}
	return now, ok && now.UID == uid && !now.Outdated && now.Admitted.Valid() && now.Verdict.RuleSetHash == p.hooks.Guard.RuleSetHash(p.hooks.Kind)
}

// fades says whether time may have changed what the rules say.
func (p *Policies[T, R]) fades(policy Policy[T, R]) bool {
	recheck, now := policy.Verdict.RecheckAt, p.hooks.Clock.Now()
	return !recheck.IsZero() && !policy.Outdated && (now.Sub(policy.JudgedAt) >= unasked || !now.Before(recheck))
}

func (p *Policies[T, R]) judgeOnce(ctx context.Context, key types.NamespacedName) (Policy[T, R], bool) {
	p.asking.LockKey(key.String())
	defer func() { _ = p.asking.UnlockKey(key.String()) }() // it is locked
	if policy, ok := p.Get(key); !ok || !p.fades(policy) {
		return policy, ok
	}
	p.Judge(ctx, key)
	return p.Get(key)
}
