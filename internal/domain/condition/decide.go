package condition

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

const (
	// heldRequeueAfter is the safety net for a held act that no event may free.
	heldRequeueAfter = time.Minute
	// maxEvictingTaints of one node by one set within historyRetention are the last that may evict.
	maxEvictingTaints = 2
)

// PlanNode plans one node: it reviews the record's claims first, since undoing needs no permission, and then plans new
// taints. A node that is being deleted gets no new taint.
func PlanNode(in Input) Plan {
	p := &planner{Input: in, untainted: map[string]bool{}, plan: Plan{Node: in.Node, Orphans: map[types.UID]string{}}, history: pruned(in.Node.Owned.History, in.At.Now)}
	if in.Node.RecordBroken {
		p.plan.Holds = p.holdAll(HeldByRecord, "the node's annotation of owned taints can't be read; repair or remove it")
		return p.plan
	}
	for _, claim := range in.Node.Owned.Taints {
		p.reviewClaim(claim)
	}
	p.forgetWithdrawn()
	for _, c := range in.Claimants {
		p.planFirstTaint(c)
	}
	p.handOver()
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
	// adopted are claims that a restored set took over: the record changes though no taint does.
	adopted []OwnedTaint
	// untainted are keys whose claims are kept without their taint.
	untainted map[string]bool
	// pending are sets that match, and whose `for` isn't over yet.
	pending []pendingClaimant
}

// planFirstTaint plans a set's first taint on the node.
func (p *planner) planFirstTaint(c Claimant) {
	claimed := func(t OwnedTaint) bool { return t.Set == c.UID && t.Key == c.Key }
	if slices.ContainsFunc(p.next, claimed) || c.State.IsWithdrawn() || c.State.IsFrozen() || ecosystem.ReservedKey(c.Key) {
		return
	}
	if slices.ContainsFunc(p.Node.Owned.Taints, claimed) {
		return // just dropped
	}
	m := c.Match(p.Node, p.At)
	if m.Phase != Matching || p.untainted[c.Key] {
		return
	}
	if p.At.Now.Before(m.DueAt) {
		p.plan.requeueAt(m.DueAt)
		p.pending = append(p.pending, pendingClaimant{c, m})
		return
	}
	claim := p.claim(c)
	want, at := c.effectFor(claim, p.At.Now)
	if p.addFirstTaint(c, claim, want, m) {
		p.plan.requeueAt(at)
		p.reportFlapping(c, claim, m)
		p.steps[len(p.steps)-1].Due = m.DueAt
	}
}

// claim is a set's first one on the node.
func (p *planner) claim(c Claimant) OwnedTaint {
	return OwnedTaint{Key: c.Key, Set: c.UID, Name: c.Name, Generation: c.Generation, Since: p.now(), TaintCount: p.taintCount(c)}
}

// addFirstTaint plans a set's first taint on the node, of this effect or as much of it as is permitted, and says whether any is.
func (p *planner) addFirstTaint(c Claimant, claim OwnedTaint, want corev1.TaintEffect, m Match) bool {
	to := p.permitted(c, want, m, "", !p.alreadyTainted(c.UID))
	if to == "" {
		return false
	}
	p.step(c, Taint, Matched, claim, to, p.trigger(c, m))
	claim.Effect = to
	p.next = append(p.next, p.recordTaint(c, claim))
	return true
}

// alreadyTainted says whether the set has tainted the node already: under another key it counts for the set's own cap all the same.
func (p *planner) alreadyTainted(set types.UID) bool {
	return slices.ContainsFunc(p.Node.Owned.Taints, func(t OwnedTaint) bool { return t.Set == set && p.mayOwn(t.Key) && p.taintPresent(t) })
}

// effectFor is the effect that a set asks for a claim now, and when it will ask for more. What evicts already goes on
// to, though our clock be set back.
func (s *Set) effectFor(claim OwnedTaint, now time.Time) (corev1.TaintEffect, time.Time) {
	if s.Effect != corev1.TaintEffectNoExecute {
		return s.Effect, time.Time{}
	}
	if claim.flaps() {
		return corev1.TaintEffectNoSchedule, time.Time{}
	}
	evictAt := claim.Since.Add(s.EvictAfter)
	if claim.EvictSince == nil && s.EvictAfter > 0 && now.Before(evictAt) {
		return corev1.TaintEffectNoSchedule, evictAt
	}
	return corev1.TaintEffectNoExecute, time.Time{}
}

// taintCount says which taint of the node by the set, or by one of its name before it, within historyRetention the next one would be, under whatever
// key; 0 for the first ones, which don't count as flapping. What people do to a set makes no conditions flap, though it gives no further
// eviction either.
func (p *planner) taintCount(c Claimant) int {
	var seen []PastTaint
	if p.Tainted != nil {
		seen = slices.DeleteFunc(pruned(p.Tainted(c.Name), p.At.Now), func(t PastTaint) bool {
			forged := inFuture(t.At.Time, p.At.Now) || !p.mayOwn(t.Key)
			return forged || t.Withdrawn && c.Effect != corev1.TaintEffectNoExecute
		})
	}
	n := len(seen) + 1
	for _, h := range p.history {
		if h.Set == c.UID && !slices.ContainsFunc(seen, func(t PastTaint) bool { return t.At.Equal(&h.At) }) {
			n++
		}
	}
	if n <= maxEvictingTaints {
		return 0
	}
	return n
}

// flaps says whether the claim is one taint too many to evict, or to go at once.
func (t OwnedTaint) flaps() bool { return t.TaintCount > maxEvictingTaints }

// recoverAfter is how long a node must have been clear before the claim's taint goes: as the set says for the first two within
// historyRetention; of the third a minute at least, then two, four, up to half an hour. Conditions that flap take the node out and back as fast
// as they come, and whoever schedules by it, too. No longer than half of StaleAfter: without heartbeats that is how long it is
// known to be clear.
func (s *Set) recoverAfter(t OwnedTaint) time.Duration {
	return max(s.RecoverAfter, min(backoff(t.TaintCount-maxEvictingTaints), s.StaleAfter/2))
}

// matchWithClaim matches a node that the set has a claim on: where conditions flap, it counts as clear later.
func (s *Set) matchWithClaim(t OwnedTaint, n *Node, at timing.Moment) Match {
	m := s.Match(n, at)
	if m.Phase == Clear {
		m.ClearAt = m.ClearAt.Add(s.recoverAfter(t) - s.RecoverAfter)
	}
	return m
}

// reportFlapping adds a Hold that says what happens to a claim whose node the set taints repeatedly.
func (p *planner) reportFlapping(c Claimant, claim OwnedTaint, m Match) {
	if !claim.flaps() {
		return
	}
	message := fmt.Sprintf("the node was tainted %d times within an hour, last at %s", claim.TaintCount, claim.Since.UTC().Format(time.RFC3339))
	if c.Effect == corev1.TaintEffectNoExecute {
		message += "; the taint stays at NoSchedule"
	}
	if wait := c.recoverAfter(claim); wait > c.RecoverAfter {
		message += fmt.Sprintf("; the taint goes once the conditions have been clear for %s", wait)
	}
	p.plan.Holds = append(p.plan.Holds, Hold{Set: c.UID, Reason: HeldByFlapping, At: m.ForElapsedAt, Message: message})
}

// recordTaint puts a taint that is set now into the history, to notice flapping.
func (p *planner) recordTaint(c Claimant, claim OwnedTaint) OwnedTaint {
	if c.Effect == corev1.TaintEffectNoExecute {
		p.history = append(p.history, PastTaint{Set: c.UID, Key: claim.Key, At: p.now()})
	}
	return p.markEvicting(claim)
}

// markEvicting notes when a claim began to evict, in the history too: the pace holds after the claim is gone.
func (p *planner) markEvicting(claim OwnedTaint) OwnedTaint {
	if claim.Effect != corev1.TaintEffectNoExecute || claim.EvictSince != nil {
		return claim
	}
	now := p.now()
	claim.EvictSince = &now
	for i := len(p.history) - 1; i >= 0; i-- {
		if p.history[i].Set == claim.Set && p.history[i].Key == claim.Key {
			p.history[i].Evicted = &now
			break
		}
	}
	return claim
}

// now is the present as the record can hold it.
func (p *planner) now() metav1.Time { return metav1.NewTime(p.At.Now.UTC().Truncate(time.Second)) }

func (p *planner) step(c Claimant, verb Verb, reason Reason, claim OwnedTaint, to corev1.TaintEffect, trigger time.Time) {
	p.steps = append(p.steps, Step{Verb: verb, Reason: reason, Set: c.UID, SetName: c.Name, Generation: c.Generation,
		Key: c.Key, From: claim.Effect, To: to, Trigger: trigger})
}

// trigger is what a first taint answers: the transition that made the set match, or, where the set had tainted the node
// for that one already, that its taint was taken back: a node relabelled out and in again, an outranked claim. Without
// that both acts would have one id. A restart in between forgets it.
func (p *planner) trigger(c Claimant, m Match) time.Time {
	if p.Undone == nil {
		return m.Since
	}
	return timing.Later(m.Since, p.Undone(c.UID, c.Key))
}

func (p *planner) hold(c Claimant, g Gate, m Match) {
	p.plan.Holds = append(p.plan.Holds, Hold{Set: c.UID, Reason: g.Reason, Message: g.Message, At: m.ForElapsedAt, queue: g.queue})
	at := g.At
	if at.IsZero() {
		at = p.At.Now.Add(heldRequeueAfter)
	}
	p.plan.requeueAt(at)
}

func (p *planner) holdAll(reason Reason, message string) []Hold {
	var holds []Hold
	for _, c := range p.Claimants {
		if !p.Node.Deleting && c.Match(p.Node, p.At).Phase == Matching {
			holds = append(holds, Hold{Set: c.UID, Reason: reason, Message: message})
		}
	}
	return holds
}

func pruned(history []PastTaint, now time.Time) []PastTaint {
	var kept []PastTaint
	for _, h := range history {
		if now.Sub(h.At.Time) < historyRetention {
			kept = append(kept, h)
		}
	}
	return kept[max(0, len(kept)-maxHistory):]
}

// pendingClaimant is a set that matches the node, and whose `for` isn't over yet.
type pendingClaimant struct {
	Claimant
	match Match
}

// handOver lets a set whose `for` isn't over yet keep the taint of its key that other sets give up: otherwise pods would be scheduled in
// between. It evicts no pod before the set's own `for` is over, and raises no effect.
func (p *planner) handOver() {
	for _, e := range p.pending {
		was := p.Node.Owned.Effect(e.Key)
		if p.plannedEffect(e.Key) != "" || !p.mayOwn(e.Key) || !p.Node.hasTaint(e.Key, was) {
			continue
		}
		claim := p.claim(e.Claimant)
		want, _ := e.effectFor(claim, p.At.Now)
		p.addFirstTaint(e.Claimant, claim, lower(lower(want, was), corev1.TaintEffectNoSchedule), e.match)
	}
}

func lower(a, b corev1.TaintEffect) corev1.TaintEffect {
	if rank[a] <= rank[b] {
		return a
	}
	return b
}
