package condition

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

const (
	shortestBackoff = time.Minute
	longestBackoff  = 30 * time.Minute
)

// backoff is for the n-th time a minute, two, four, up to half an hour; none for none.
func backoff(n int) time.Duration {
	if n <= 0 {
		return 0
	}
	return min(shortestBackoff<<min(n-1, 5), longestBackoff)
}

// reviewClaim decides what becomes of one claim of the record. A set that isn't known may be one that can't be read just now,
// with its keys unknown as well: its claims wait until it is confirmed to be gone.
func (p *planner) reviewClaim(claim OwnedTaint) {
	c, known := p.claimantOf(claim)
	switch {
	case ecosystem.NeverOurs(claim.Key):
		p.drop(claim, RecordInvalid)
	case !known && !p.Withdrawn(claim.Set):
		p.plan.Orphans[claim.Set] = claim.Name
		p.keep(claim)
	case p.doubtful(claim, c, known), known && c.State.IsFrozen():
		p.keep(claim)
	case !p.Declared(claim.Key):
		p.drop(claim, RecordInvalid)
	case !known || c.State.IsWithdrawn():
		p.drop(claim, PolicyWithdrawn)
	case c.Key != claim.Key:
		p.drop(claim, KeyChanged)
	default:
		p.reviewMatch(c, p.adopt(c, claim))
	}
}

// doubtful: nobody can say any more whether the claim was ours, also where another set came under its name. A human, or a
// later set with the key, decides.
func (p *planner) doubtful(claim OwnedTaint, c Claimant, known bool) bool {
	return (!known || c.UID != claim.Set) && !p.Declared(claim.Key)
}

// claimantOf finds the claim's set: by UID, or, since it was deleted and restored, by name.
func (p *planner) claimantOf(claim OwnedTaint) (Claimant, bool) {
	byName := -1
	for i, c := range p.Claimants {
		if c.UID == claim.Set {
			return c, true
		}
		if c.Name == claim.Name {
			byName = i
		}
	}
	if byName < 0 {
		return Claimant{}, false
	}
	return p.Claimants[byName], true
}

// keep leaves a claim as it is. One whose taint somebody removed isn't kept, since the next write would put the taint back.
func (p *planner) keep(claim OwnedTaint) {
	if p.taintPresent(claim) {
		p.next = append(p.next, claim)
	}
}

// taintPresent says whether the claim's taint is still on the node.
func (p *planner) taintPresent(claim OwnedTaint) bool {
	return p.Node.hasTaint(claim.Key, p.Node.Owned.Effect(claim.Key))
}

// adopt gives a claim, and its set's history, to the set that was restored under the same name.
func (p *planner) adopt(c Claimant, claim OwnedTaint) OwnedTaint {
	if claim.Set == c.UID {
		return claim
	}
	for i, h := range p.history {
		if h.Set == claim.Set {
			p.history[i].Set = c.UID
		}
	}
	claim.Set, claim.Generation = c.UID, c.Generation
	p.adopted = append(p.adopted, claim)
	return claim
}

func (p *planner) reviewMatch(c Claimant, claim OwnedTaint) {
	m := c.matchWithClaim(claim, p.Node, p.At)
	removed := !p.taintPresent(claim)
	switch {
	case m.Phase == NotSelected:
		p.drop(claim, NoLongerSelected)
	case m.Phase == Doubtful && p.Node.neverReported(c.Set, claim):
		p.drop(claim, ConditionsChanged)
	case m.Phase == Clear && (removed || !p.At.Now.Before(m.ClearAt)):
		p.drop(claim, Recovered)
	case m.Phase == Matching && removed && c.State == lifecycle.Active:
		p.restore(c, claim, m)
	case removed:
		p.drop(claim, TaintRestored) // someone else took it away, and there's no ground to put it back
	case m.Phase == Matching:
		p.next = append(p.next, p.withCurrentEffect(c, claim, m))
	default:
		p.reportFlapping(c, claim, m)
		p.plan.requeueAt(m.ClearAt)
		p.next = append(p.next, claim)
	}
}

// neverReported says whether the set was edited since the claim, and asks for a condition that the node doesn't report, and didn't while we
// looked: that condition is no cause of the taint.
func (n *Node) neverReported(s *Set, claim OwnedTaint) bool {
	return claim.Generation != s.Generation && slices.ContainsFunc(s.Members, func(m Member) bool { return !n.Observations.has(m.Type) })
}

// withCurrentEffect is a claim with the effect that its set requires now.
func (p *planner) withCurrentEffect(c Claimant, claim OwnedTaint, m Match) OwnedTaint {
	p.reportFlapping(c, claim, m)
	want, at := c.effectFor(claim, p.At.Now)
	p.plan.requeueAt(at)
	switch {
	case want == claim.Effect:
	case rank[want] < rank[claim.Effect]:
		p.step(c, Deescalate, EffectChanged, claim, want, m.Since)
		claim.Effect, claim.EvictSince, claim.Generation = want, nil, c.Generation
	case p.At.Now.Before(m.DueAt): // the higher effect has a hold of its own
		p.plan.requeueAt(m.DueAt)
	default:
		return p.escalate(c, claim, want, m)
	}
	return claim
}

func (p *planner) escalate(c Claimant, claim OwnedTaint, want corev1.TaintEffect, m Match) OwnedTaint {
	reason := EffectChanged
	switch {
	case want == corev1.TaintEffectNoExecute && c.EvictAfter > 0:
		reason = EvictAfterOver
	case claim.Generation == c.Generation: // the set asked for it all along
		reason = NoLongerHeld
	}
	to := p.permitted(c, want, m, claim.Effect, false)
	if rank[to] <= rank[claim.Effect] {
		return claim
	}
	p.step(c, Escalate, reason, claim, to, timing.Later(m.Since, claim.Since.Time))
	claim.Effect, claim.Generation = to, c.Generation
	return p.markEvicting(claim)
}

// restore puts back a taint that someone else removed. It is one more taint by this set, whose evictAfter restarts: two
// programs that undo each other must not evict over and over, nor write as fast as they can.
func (p *planner) restore(c Claimant, claim OwnedTaint, m Match) {
	if at := p.restoreAt(claim.Key); p.At.Now.Before(at) {
		p.hold(c, Gate{Reason: HeldByRemoval, At: at,
			Message: "someone else keeps removing the taint; find out who, or exclude the node by nodeSelector"}, m)
		p.keepWithoutTaint(claim)
		return
	}
	was := claim
	claim.Since, claim.EvictSince, claim.TaintCount = p.now(), nil, max(claim.TaintCount, p.taintCount(c))
	want, at := c.effectFor(claim, p.At.Now)
	to := p.permitted(c, want, m, "", true)
	if to == "" {
		p.drop(was, TaintRestored)
		return
	}
	p.plan.requeueAt(at)
	p.reportFlapping(c, claim, m)
	p.step(c, Taint, TaintRestored, OwnedTaint{}, to, p.now().Time)
	claim.Effect, claim.Generation = to, c.Generation
	p.history = append(p.history, PastTaint{Set: c.UID, Key: claim.Key, At: p.now(), TaintRestored: true})
	p.next = append(p.next, p.markEvicting(claim))
}

// restoreAt is until when a removed taint stays removed: the first time it is put back at once, then after one minute,
// two, four, up to half an hour.
// All claims of a key wait together, since they share the taint.
func (p *planner) restoreAt(key string) (at time.Time) {
	n := 0
	for _, h := range p.history {
		if h.TaintRestored && h.Key == key {
			n++
			at = timing.Later(at, h.At.Add(backoff(n)))
		}
	}
	return at
}

// keepWithoutTaint keeps a claim in the record while its taint stays removed.
func (p *planner) keepWithoutTaint(claim OwnedTaint) {
	p.untainted[claim.Key] = true
	p.next = append(p.next, claim)
}

func (p *planner) drop(claim OwnedTaint, reason Reason) {
	verb := Untaint
	if reason == RecordInvalid || !p.taintPresent(claim) {
		verb = Repair
	}
	p.steps = append(p.steps, Step{Verb: verb, Reason: reason, Set: claim.Set, SetName: claim.Name, Generation: claim.Generation,
		Key: claim.Key, From: claim.Effect, Trigger: claim.Since.Time})
}

// forgetWithdrawn clears withdrawn sets from the history too: they leave no trace.
func (p *planner) forgetWithdrawn() {
	for _, c := range p.Claimants {
		if c.State.IsWithdrawn() {
			p.forget(Step{Verb: Repair, Reason: PolicyWithdrawn, Set: c.UID, SetName: c.Name, Generation: c.Generation})
		}
	}
	for _, h := range p.Node.Owned.History {
		_, known := p.claimantOf(OwnedTaint{Set: h.Set})
		if !known && p.Withdrawn(h.Set) {
			p.forget(Step{Verb: Repair, Reason: PolicyWithdrawn, Set: h.Set})
		}
	}
}

// forget clears a set from the history, by a step of its own where nothing else is undone for it.
func (p *planner) forget(step Step) {
	ofSet := func(h PastTaint) bool { return h.Set == step.Set }
	if !slices.ContainsFunc(p.Node.Owned.History, ofSet) {
		return
	}
	p.history = slices.DeleteFunc(p.history, ofSet)
	if !slices.ContainsFunc(p.steps, func(s Step) bool { return s.Set == step.Set }) {
		p.steps = append(p.steps, step)
	}
}

// applyNodePrecedence keeps, where the operator chose so, only the claims with the node's highest effect, and those that
// mustn't be touched.
func (p *planner) applyNodePrecedence() {
	if p.Precedence != PrecedenceNode {
		return
	}
	var highest OwnedTaint
	for _, t := range p.next {
		if rank[t.Effect] > rank[highest.Effect] {
			highest = t
		}
	}
	p.next = slices.DeleteFunc(p.next, func(t OwnedTaint) bool {
		if t.Effect == highest.Effect || p.mustKeep(t) {
			return false
		}
		p.dropOutranked(t)
		p.plan.Holds = append(p.plan.Holds, Hold{Set: t.Set, Reason: HeldByPrecedence,
			Message: fmt.Sprintf("ConditionSet %s asks for %s:%s on the node, and conditionSetPrecedence: Node of a Guardrail leaves only the highest effect", highest.Name, highest.Key, highest.Effect)})
		return true
	})
}

func (p *planner) mustKeep(claim OwnedTaint) bool {
	c, known := p.claimantOf(claim)
	return !known || c.State.IsFrozen()
}

// dropOutranked removes what was planned for a claim, and drops the claim from the record.
func (p *planner) dropOutranked(claim OwnedTaint) {
	p.steps = slices.DeleteFunc(p.steps, func(s Step) bool { return s.Set == claim.Set && s.Key == claim.Key })
	now := p.now()
	p.history = slices.DeleteFunc(p.history, func(h PastTaint) bool { return h.Set == claim.Set && h.Key == claim.Key && h.At.Equal(&now) })
	for _, was := range p.Node.Owned.Taints {
		if was.Set == claim.Set && was.Key == claim.Key {
			p.drop(was, EffectChanged)
		}
	}
}
