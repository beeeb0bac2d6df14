package condition

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// lookAgainHeld is the safety net for a held act that no event may free.
	lookAgainHeld = time.Minute
	// flappingTaints of one node by one set within historyKept are the last that may evict.
	flappingTaints = 2
)

// PlanNode plans one node: it reads the record's claims first, since undoing needs no permission, and then what the
// sets want anew.
func PlanNode(in Input) Plan {
	p := &planner{Input: in, plan: Plan{Node: in.Node, Orphans: map[types.UID]string{}}, history: pruned(in.Node.Owned.History, in.At.Now)}
	if in.Node.Deleting {
		return p.plan
	}
	if in.Node.RecordBroken {
		p.plan.Holds = p.holdAll(HeldByRecord, "the node's annotation of owned taints can't be read; repair or remove it")
		return p.plan
	}
	for _, claim := range in.Node.Owned.Taints {
		p.review(claim)
	}
	for _, c := range in.Claimants {
		p.want(c)
	}
	p.applyNodePrecedence()
	p.collapse()
	return p.plan
}

type planner struct {
	Input
	plan    Plan
	next    []OwnedTaint
	steps   []Step
	history []PastTaint
	// repair: the record changes though no taint does.
	repair bool
}

// review decides what becomes of one claim of the record.
func (p *planner) review(claim OwnedTaint) {
	if Reserved(claim.Key) || !p.Declared(claim.Key) {
		p.drop(claim, RecordInvalid)
		return
	}
	c, known := p.claimantOf(claim)
	switch {
	case !known && p.Withdrawn(claim.Set):
		p.drop(claim, PolicyWithdrawn)
		p.forget(claim.Set)
	case !known:
		p.plan.Orphans[claim.Set] = claim.Name
		p.next = append(p.next, claim)
	case c.Standing == Frozen:
		p.next = append(p.next, claim)
	case c.Standing == Withdrawn:
		p.drop(claim, PolicyWithdrawn)
		p.forget(claim.Set)
	case c.Key != claim.Key:
		p.drop(claim, KeyChanged)
	default:
		p.reviewMatch(c, p.adopt(c, claim))
	}
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

func (p *planner) adopt(c Claimant, claim OwnedTaint) OwnedTaint {
	if claim.Set != c.UID {
		p.forget(claim.Set)
		claim.Set, claim.Generation, p.repair = c.UID, c.Generation, true
	}
	return claim
}

func (p *planner) reviewMatch(c Claimant, claim OwnedTaint) {
	m := c.Match(p.Node, p.At)
	removed := !p.Node.hasTaint(claim.Key, p.Node.Owned.Effect(claim.Key))
	switch {
	case m.Phase == NotSelected:
		p.drop(claim, NoLongerSelected)
	case m.Phase == Clear && (removed || !p.At.Now.Before(m.ClearAt)):
		p.drop(claim, Recovered)
	case m.Phase == Matching && removed && c.Standing == Active:
		p.restore(c, claim, m)
	case removed:
		p.drop(claim, PutBack) // someone else took it away, and there's no ground to put it back
	case m.Phase == Matching:
		p.retune(c, claim, m)
	default:
		if m.Phase == Clear {
			p.plan.lookAgainAt(m.ClearAt)
		}
		p.next = append(p.next, claim)
	}
}

// retune moves a claim to the effect that its set asks for now.
func (p *planner) retune(c Claimant, claim OwnedTaint, m Match) {
	p.noteFlapping(c, claim, m)
	want, at := c.effectFor(claim, p.At.Now)
	p.plan.lookAgainAt(at)
	switch {
	case want == claim.Effect:
	case rank[want] < rank[claim.Effect]:
		p.step(c, Deescalate, EffectChanged, claim, want, m.Since)
		claim.Effect, claim.EvictSince, claim.Generation = want, nil, c.Generation
	default:
		reason := EffectChanged
		if want == corev1.TaintEffectNoExecute && c.EvictAfter > 0 {
			reason = EvictAfterOver
		}
		to := p.permitted(c, want, m, claim.Effect, false)
		if rank[to] > rank[claim.Effect] {
			p.step(c, Escalate, reason, claim, to, m.Since)
			claim.Effect, claim.Generation = to, c.Generation
			p.markEvicting(&claim)
		}
	}
	p.next = append(p.next, claim)
}

// restore puts back a taint that someone else removed.
func (p *planner) restore(c Claimant, claim OwnedTaint, m Match) {
	want, at := c.effectFor(claim, p.At.Now)
	p.plan.lookAgainAt(at)
	to := p.permitted(c, want, m, "", false)
	if to == "" {
		p.drop(claim, PutBack)
		return
	}
	p.step(c, Taint, PutBack, OwnedTaint{Key: claim.Key}, to, p.At.Now) // the removal, not the match, is what it answers
	claim.Effect, claim.Generation = to, c.Generation
	p.markEvicting(&claim)
	p.next = append(p.next, claim)
}

// want plans a set's first taint on the node.
func (p *planner) want(c Claimant) {
	claimed := func(t OwnedTaint) bool { return t.Set == c.UID && t.Key == c.Key }
	if slices.ContainsFunc(p.next, claimed) || c.Standing == Withdrawn || c.Standing == Frozen || Reserved(c.Key) {
		return
	}
	if slices.ContainsFunc(p.Node.Owned.Taints, claimed) {
		return // just dropped
	}
	m := c.Match(p.Node, p.At)
	if m.Phase != Matching {
		return
	}
	if p.At.Now.Before(m.HoldsAt) {
		p.plan.lookAgainAt(m.HoldsAt)
		return
	}
	claim := OwnedTaint{Key: c.Key, Set: c.UID, Name: c.Name, Generation: c.Generation, Since: metav1.NewTime(p.At.Now.UTC().Truncate(time.Second))}
	claim.Flapping = c.Effect == corev1.TaintEffectNoExecute && p.taintsOf(c.UID) >= flappingTaints
	want, at := c.effectFor(claim, p.At.Now)
	to := p.permitted(c, want, m, "", true)
	if to == "" {
		return
	}
	p.plan.lookAgainAt(at)
	p.noteFlapping(c, claim, m)
	p.step(c, Taint, Matched, claim, to, m.Since)
	p.steps[len(p.steps)-1].Due = m.HoldsAt
	claim.Effect = to
	if c.Effect == corev1.TaintEffectNoExecute {
		p.history = append(p.history, PastTaint{Set: c.UID, At: claim.Since})
	}
	p.markEvicting(&claim)
	p.next = append(p.next, claim)
}

// effectFor is the effect that a set asks for a claim now, and when it will ask for more.
func (s *Set) effectFor(claim OwnedTaint, now time.Time) (corev1.TaintEffect, time.Time) {
	if s.Effect != corev1.TaintEffectNoExecute {
		return s.Effect, time.Time{}
	}
	if claim.Flapping {
		return corev1.TaintEffectNoSchedule, time.Time{}
	}
	evictAt := claim.Since.Add(s.EvictAfter)
	if s.EvictAfter > 0 && now.Before(evictAt) {
		return corev1.TaintEffectNoSchedule, evictAt
	}
	return corev1.TaintEffectNoExecute, time.Time{}
}

func (p *planner) noteFlapping(c Claimant, claim OwnedTaint, m Match) {
	if claim.Flapping && c.Effect == corev1.TaintEffectNoExecute {
		p.plan.Holds = append(p.plan.Holds, Hold{Set: c.UID, Reason: HeldByFlapping, At: m.HoldsAt,
			Message: "tainted for the third time within an hour; it stays at NoSchedule"})
	}
}

func (p *planner) taintsOf(set types.UID) int {
	n := 0
	for _, h := range p.history {
		if h.Set == set {
			n++
		}
	}
	return n
}

func (p *planner) markEvicting(claim *OwnedTaint) {
	if claim.Effect != corev1.TaintEffectNoExecute || claim.EvictSince != nil {
		return
	}
	now := metav1.NewTime(p.At.Now.UTC().Truncate(time.Second))
	claim.EvictSince = &now
	for i := len(p.history) - 1; i >= 0; i-- {
		if p.history[i].Set == claim.Set {
			p.history[i].Evicted = &now
			return
		}
	}
}

func (p *planner) drop(claim OwnedTaint, reason Reason) {
	verb := Untaint
	if reason == RecordInvalid || !p.Node.hasTaint(claim.Key, p.Node.Owned.Effect(claim.Key)) {
		verb = Repair
	}
	p.steps = append(p.steps, Step{Verb: verb, Reason: reason, Set: claim.Set, SetName: claim.Name, Generation: claim.Generation,
		Key: claim.Key, From: claim.Effect, Trigger: claim.Since.Time})
}

// forget clears a set's history too: what is withdrawn leaves no trace.
func (p *planner) forget(set types.UID) {
	p.history = slices.DeleteFunc(p.history, func(h PastTaint) bool { return h.Set == set })
}

func (p *planner) step(c Claimant, verb Verb, reason Reason, claim OwnedTaint, to corev1.TaintEffect, trigger time.Time) {
	p.steps = append(p.steps, Step{Verb: verb, Reason: reason, Set: c.UID, SetName: c.Name, Generation: c.Generation,
		Key: c.Key, From: claim.Effect, To: to, Trigger: trigger})
}

func (p *planner) hold(c Claimant, g Gate, m Match) {
	p.plan.Holds = append(p.plan.Holds, Hold{Set: c.UID, Reason: g.Reason, Message: g.Message, At: m.HoldsAt, dimension: g.dimension})
	at := g.At
	if at.IsZero() {
		at = p.At.Now.Add(lookAgainHeld)
	}
	p.plan.lookAgainAt(at)
}

func (p *planner) holdAll(reason Reason, message string) []Hold {
	var holds []Hold
	for _, c := range p.Claimants {
		if c.Match(p.Node, p.At).Phase == Matching {
			holds = append(holds, Hold{Set: c.UID, Reason: reason, Message: message})
		}
	}
	return holds
}

func pruned(history []PastTaint, now time.Time) []PastTaint {
	var kept []PastTaint
	for _, h := range history {
		if now.Sub(h.At.Time) < historyKept {
			kept = append(kept, h)
		}
	}
	return kept
}

// applyNodePrecedence keeps, where the operator chose so, only the claims with the node's highest effect.
func (p *planner) applyNodePrecedence() {
	if p.Precedence != PrecedenceNode {
		return
	}
	var highest corev1.TaintEffect
	for _, t := range p.next {
		highest = Higher(highest, t.Effect)
	}
	p.next = slices.DeleteFunc(p.next, func(t OwnedTaint) bool {
		lower := t.Effect != highest
		if lower && slices.ContainsFunc(p.Node.Owned.Taints, func(o OwnedTaint) bool { return o.Set == t.Set && o.Key == t.Key }) {
			p.drop(t, EffectChanged)
		} else if lower {
			p.steps = slices.DeleteFunc(p.steps, func(s Step) bool { return s.Set == t.Set && s.Key == t.Key })
		}
		return lower
	})
}

func describe(effect corev1.TaintEffect, key string) string {
	return strings.TrimSpace(fmt.Sprintf("%s:%s", key, effect))
}
