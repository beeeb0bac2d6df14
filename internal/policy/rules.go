package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

// judge asks the rules about a policy as it is now; ok is false when it is gone.
func (p *Policies[T, R]) judge(ctx context.Context, key types.NamespacedName) (ok bool) {
	p.mu.Lock()
	object, ok := p.latest[key]
	was, changes := p.judged[key], p.changes
	p.mu.Unlock()
	if !ok {
		return false
	}
	judged := Policy[T, R]{
		UID: object.GetUID(), Generation: object.GetGeneration(),
		labels: object.GetLabels(), annotations: object.GetAnnotations(),
		JudgedAt: p.hooks.Clock.Now(), Invalidations: was.Invalidations,
	}
	if was.Outdated {
		judged.Invalidations++
	}
	evaluations.WithLabelValues(p.hooks.Kind).Inc()
	judged.Admitted, judged.Verdict = guard.Admit(ctx, p.hooks.Guard, object)
	return p.storeVerdict(key, judged, changes)
}

// storeVerdict takes in what was judged. What changed meanwhile, the policy or the rules, it may not have been of.
func (p *Policies[T, R]) storeVerdict(key types.NamespacedName, judged Policy[T, R], changes int) (ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	latest, ok := p.latest[key]
	if !ok || latest.GetUID() != judged.UID {
		return false
	}
	if p.changes != changes || !judged.JudgedAs(latest) {
		judged.Outdated = true
		p.toJudge.Add(key)
		if was, ok := p.judged[key]; ok && was.JudgedAs(latest) {
			return true // by another one, of a newer state
		}
	}
	judged.Object, judged.Read = latest, p.hooks.Read(latest, p.judged[key].Read)
	p.judged[key] = judged
	p.hooks.Rejections.Set(p.name(key), judged.Verdict.RuleIDs())
	if at := judged.Verdict.RecheckAt; !at.IsZero() {
		p.toJudge.AddAfter(key, at.Sub(p.hooks.Clock.Now())+kube.PastDeadline)
	}
	return true
}

// RulesChanged has the policies judged again that a change concerns, and no others.
func (p *Policies[T, R]) RulesChanged(c guard.Change) {
	p.outdate(c) // before a pause ends: nobody acts by what was judged
	if c.Policy {
		p.followGuardrails()
	}
}

func (p *Policies[T, R]) outdate(c guard.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes++
	if slices.Contains(c.Kinds, p.hooks.Kind) {
		p.requeueAll()
	}
	for _, target := range c.Targets {
		if target.Kind == p.hooks.Kind {
			p.requeue(types.NamespacedName{Namespace: target.Namespace, Name: target.Name})
		}
	}
}

func (p *Policies[T, R]) requeueAll() {
	for key := range p.judged {
		p.requeue(key)
	}
}

// requeue has a policy judged again; until then nobody acts for it. It needs p.mu.
func (p *Policies[T, R]) requeue(key types.NamespacedName) {
	was, ok := p.judged[key]
	if !ok {
		return // it is judged when it comes, or being judged, which storeVerdict notices
	}
	was.Outdated = true
	p.judged[key] = was
	p.toJudge.Add(key)
}

// followGuardrails puts in force what all of them together say.
func (p *Policies[T, R]) followGuardrails() {
	if p.applyGuardrails() {
		p.updateAll()
	}
}

// applyGuardrails takes in the latest that they say. Who asked for it first may come last, so it is read under the lock.
func (p *Policies[T, R]) applyGuardrails() (turned bool) {
	p.following.Lock()
	defer p.following.Unlock()
	all := p.hooks.Guard.Policy()
	if p.hooks.Guardrails != nil {
		p.hooks.Guardrails(all)
	}
	return p.setPause(all)
}

// Pause has all policies learn at once what pauses them, when that is something else than before.
func (p *Policies[T, R]) Pause(all guardrail.Policy) {
	if p.setPause(all) {
		p.updateAll()
	}
}

func (p *Policies[T, R]) updateAll() {
	for _, key := range p.Keys() {
		p.update(context.Background(), key)
	}
}

// setPause takes in what pauses; turned says that it is something else than before.
func (p *Policies[T, R]) setPause(all guardrail.Policy) (turned bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.guardrailsUnread
	p.guardrailsUnread = slices.Contains(all.PausedBy, guardrail.UnreadName)
	if was && !p.guardrailsUnread {
		p.requeueAll()
	}
	by := PausedBy(all)
	turned = p.paused != by
	p.paused = by
	return turned
}

// PausedBy says what pauses new acts; known is false while no Guardrail is read.
func (p *Policies[T, R]) PausedBy() (by Pause, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused, !p.guardrailsUnread
}

// Pause is what pauses all new acts; the zero value is nothing.
type Pause struct {
	// By names it; "" when nothing does.
	By string
	// Frozen: it stops undo, too.
	Frozen bool
	// Unknown: nobody paused, but what Guardrails forbid isn't known any more.
	Unknown bool
}

// PausedBy says what pauses new acts, as status and holds tell it.
func PausedBy(p guardrail.Policy) Pause {
	switch {
	case !p.Paused():
		return Pause{}
	case slices.Contains(p.FrozenBy, guardrail.UnreadName):
		return Pause{By: "Guardrails aren't read yet, which freezes everything, undo included", Frozen: true}
	case slices.Contains(p.PausedBy, guardrail.UnreadName):
		return Pause{By: "Guardrails aren't read yet, which pauses all new acts", Frozen: p.Frozen()}
	case len(p.FrozenBy) == 1:
		return Pause{By: "Guardrail " + p.FrozenBy[0] + " freezes everything, undo included", Frozen: true}
	case p.Frozen():
		return Pause{By: "Guardrails " + strings.Join(p.FrozenBy, ", ") + " freeze everything, undo included", Frozen: true}
	case p.Lost != "":
		return Pause{By: "What Guardrails forbid isn't known, which pauses all new acts: " + p.Lost, Unknown: true}
	case len(p.PausedBy) == 1:
		return Pause{By: "Guardrail " + p.PausedBy[0] + " pauses all new acts"}
	}
	return Pause{By: "Guardrails " + strings.Join(p.PausedBy, ", ") + " pause all new acts"}
}

// AcceptanceOf is what the conditions that every kind has tell of a verdict. Unreadable says why the spec can't be read.
func AcceptanceOf(v guard.Verdict, unreadable error) Acceptance {
	return Acceptance{
		Unreadable: unreadable, Allowed: v.Allowed, Violated: len(v.Violations) > 0,
		RuleSet: v.RuleSetHash, Message: v.Message(), Lifted: liftedMessage(v.Lifted),
	}
}

// liftedMessage tells which exceptions keep which rules from refusing the policy.
func liftedMessage(all []guard.Lifted) string {
	messages := make([]string, 0, len(all))
	for _, l := range all {
		messages = append(messages, fmt.Sprintf("GuardrailException %s lifts %s until %s", l.Exception, l.Rule, l.Until.UTC().Format(time.RFC3339)))
	}
	if len(messages) == 0 {
		return ""
	}
	return Sentence(messages...)
}

// verdictTTL is for how long a judgement is used for acts that may be over without any event, as one over an account's rights: asking anew
// costs a preview, and in a storm there are many acts.
const verdictTTL = time.Second

// Admission gives the policy of this UID whose admission covers an act now; ok is false when none does. What may change without any
// event is asked once more, for all who wait for that at once.
func (p *Policies[T, R]) Admission(ctx context.Context, key types.NamespacedName, uid types.UID) (now Policy[T, R], ok bool) {
	if now, ok = p.Get(key); ok && p.mayHaveChanged(now) {
		now, ok = p.judgeOnce(ctx, key)
	}
	return now, ok && now.UID == uid && !now.Outdated && now.Admitted.Valid() && now.Verdict.RuleSetHash == p.hooks.Guard.RuleSetHash(p.hooks.Kind)
}

// mayHaveChanged says whether time may have changed what the rules say.
func (p *Policies[T, R]) mayHaveChanged(policy Policy[T, R]) bool {
	recheck, now := policy.Verdict.RecheckAt, p.hooks.Clock.Now()
	return !recheck.IsZero() && !policy.Outdated && (now.Sub(policy.JudgedAt) >= verdictTTL || !now.Before(recheck))
}

func (p *Policies[T, R]) judgeOnce(ctx context.Context, key types.NamespacedName) (Policy[T, R], bool) {
	p.rejudging.LockKey(key.String())
	defer func() { _ = p.rejudging.UnlockKey(key.String()) }() // it is locked
	if policy, ok := p.Get(key); !ok || !p.mayHaveChanged(policy) {
		return policy, ok
	}
	p.Judge(ctx, key)
	return p.Get(key)
}
