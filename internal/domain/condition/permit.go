package condition

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// permitted is the highest effect up to want that a set may give its taint on this node now; never less than current,
// which it has already. What it may not do is noted as a Hold. A NoExecute that may not be is NoSchedule meanwhile: the
// node is sick, and keeping new pods away harms no running one.
func (p *planner) permitted(c Claimant, want corev1.TaintEffect, m Match, current corev1.TaintEffect, first bool) corev1.TaintEffect {
	if p.Node.Deleting {
		return current
	}
	for _, g := range []Gate{p.holdGate(), p.stateGate(c)} {
		if g.Closed() {
			p.hold(c, g, m)
			return current
		}
	}
	if g := p.limitGate(c, want, first, m); g.Closed() {
		p.hold(c, g, m)
		return current
	}
	to := want
	if want == corev1.TaintEffectNoExecute && current != corev1.TaintEffectNoExecute {
		to = p.evictGate(c, m)
	}
	if rank[to] <= rank[current] {
		return current
	}
	if p.conflictsWithForeign(c, to, m) {
		return current
	}
	return to
}

// conflictsWithForeign says whether this very taint is someone else's.
func (p *planner) conflictsWithForeign(c Claimant, effect corev1.TaintEffect, m Match) bool {
	if !p.Node.foreignTaint(c.Key, effect) {
		return false
	}
	p.hold(c, Gate{Reason: HeldByForeign, Message: fmt.Sprintf("someone else's taint %s:%s is on the node", c.Key, effect)}, m)
	return true
}

// limitGate is the first limit that blocks the set's taint, or one of this effect, on the node.
func (p *planner) limitGate(c Claimant, want corev1.TaintEffect, first bool, m Match) Gate {
	if first {
		if own := p.headroomGate(CapMaxNodes, c, m); own.Closed() {
			return own
		}
	}
	if p.Node.ControlPlane && !p.planned(corev1.TaintEffectPreferNoSchedule) {
		if plane := p.headroomGate(CapControlPlane, c, m); plane.Closed() {
			return plane
		}
	}
	if rank[want] >= rank[corev1.TaintEffectNoSchedule] && !p.planned(corev1.TaintEffectNoSchedule) {
		return p.headroomGate(CapTainted, c, m)
	}
	return Gate{}
}

// headroomGate checks a limit. The node ranks by the longest-waiting of the sets that need it, so that one write serves
// them all. A set with another hold doesn't lend the node its rank.
func (p *planner) headroomGate(of Cap, c Claimant, m Match) Gate {
	if p.Headroom == nil {
		return Gate{}
	}
	expired := m.ForElapsedAt
	for _, o := range p.Claimants {
		if of == CapMaxNodes || o.UID == c.UID {
			continue
		}
		if other := o.Match(p.Node, p.At); other.ForElapsedAt.Before(expired) && p.needsHeadroom(o, of, other) {
			expired = other.ForElapsedAt
		}
	}
	return p.Headroom(of, c, expired)
}

// needsHeadroom says whether only a limit that all sets share blocks the set's taint.
func (p *planner) needsHeadroom(c Claimant, of Cap, m Match) bool {
	if m.Phase != Matching || p.At.Now.Before(m.DueAt) || ecosystem.ReservedKey(c.Key) || p.stateGate(c).Closed() {
		return false
	}
	claim := OwnedTaint{Since: p.now(), TaintCount: p.taintCount(c)}
	at := slices.IndexFunc(p.Node.Owned.Taints, func(t OwnedTaint) bool { return t.Set == c.UID && t.Key == c.Key })
	if at >= 0 {
		claim = p.Node.Owned.Taints[at]
	} else if p.Headroom(CapMaxNodes, c, m.ForElapsedAt).Closed() {
		return false
	}
	want, _ := c.effectFor(claim, p.At.Now)
	return rank[want] >= minEffect[of]
}

// minEffect is the lowest effect that a limit applies to.
var minEffect = map[Cap]int{
	CapControlPlane: rank[corev1.TaintEffectPreferNoSchedule],
	CapTainted:      rank[corev1.TaintEffectNoSchedule],
	CapEvicting:     rank[corev1.TaintEffectNoExecute],
}

// holdGate is closed while the node has a hold annotation. It comes first: a node that may not be tainted needs no headroom.
func (p *planner) holdGate() Gate {
	if h := p.Node.Hold; h.Active(p.At.Now, p.At.Server) {
		return Gate{Reason: HeldByAnnotation, Message: h.Message(p.At.Now), At: h.RequeueAt(p.At.Now, p.At.Server)}
	}
	return Gate{}
}

func (p *planner) stateGate(c Claimant) Gate {
	unconfirmed := ""
	if p.Evidence != nil {
		unconfirmed = p.Evidence.Unconfirmed[c.UID]
	}
	switch {
	case c.State != lifecycle.Active:
		return Gate{Reason: HeldByRules, Message: "the ConditionSet isn't admitted now; see its condition Accepted"}
	case p.Paused != "":
		return Gate{Reason: HeldByPause, Message: p.Paused}
	case unconfirmed != "":
		return Gate{Reason: HeldByDoubt, Message: unconfirmed}
	case p.clocksSkewed():
		return Gate{Reason: HeldByClock, Message: fmt.Sprintf("the manager's clock and the API server's differ by more than %s", maxClockSkew)}
	case c.HoldReason != "":
		return Gate{Reason: c.HoldReason, Message: fmt.Sprintf("too many nodes match at once; look at what reports the conditions, then: kubectl autohealer reset conditionset/%s", c.Name)}
	case p.At.Now.Before(p.ActsFrom):
		return Gate{Reason: HeldByClock, Message: "the manager's clock stepped", At: p.ActsFrom}
	}
	return Gate{}
}

// maxClockSkew is how far our clock and the API server's may be apart. Deadlines in the record may be another manager's.
const maxClockSkew = 10 * time.Second

func (p *planner) clocksSkewed() bool {
	return !p.At.Server.IsZero() && p.At.Server.Sub(p.At.Now).Abs() > maxClockSkew
}

// evictGate checks everything that may block a NoExecute; while something does, the effect is NoSchedule.
func (p *planner) evictGate(c Claimant, m Match) corev1.TaintEffect {
	if p.planned(corev1.TaintEffectNoExecute) && p.plannedEffect(c.Key) == corev1.TaintEffectNoExecute {
		return corev1.TaintEffectNoExecute // the key evicts already
	}
	if p.conflictsWithForeign(c, corev1.TaintEffectNoExecute, m) {
		return corev1.TaintEffectNoSchedule
	}
	if !p.planned(corev1.TaintEffectNoExecute) {
		if full := p.headroomGate(CapEvicting, c, m); full.Closed() {
			p.hold(c, full, m)
			return corev1.TaintEffectNoSchedule
		}
	}
	if p.Evidence != nil && p.Evidence.Unknown != "" {
		p.hold(c, Gate{Reason: HeldByDoubt, Message: p.Evidence.Unknown}, m)
		return corev1.TaintEffectNoSchedule
	}
	if p.Evidence == nil || p.Evidence.NotRead {
		p.plan.NeedsEvidence = true
		return corev1.TaintEffectNoSchedule
	}
	if names := ecosystem.Intolerant(p.Evidence.SystemPods, c.Key); len(names) > 0 {
		p.hold(c, Gate{Reason: HeldByIntolerance, Message: fmt.Sprintf("%s would be evicted and doesn't tolerate %s; add a toleration to it",
			strings.Join(names, ", "), c.Key)}, m)
		return corev1.TaintEffectNoSchedule
	}
	return corev1.TaintEffectNoExecute
}

// planned says whether the node has, or by this plan gets, a taint of ours at least as high, and so counts for the limits
// already. A claim whose taint somebody removed doesn't, nor does a forged one.
func (p *planner) planned(atLeast corev1.TaintEffect) bool {
	high := func(t OwnedTaint) bool {
		return rank[t.Effect] >= rank[atLeast] && p.mayOwn(t.Key)
	}
	return slices.ContainsFunc(p.next, func(t OwnedTaint) bool { return high(t) && !p.untainted[t.Key] }) ||
		slices.ContainsFunc(p.Node.Owned.Taints, func(t OwnedTaint) bool { return high(t) && p.taintPresent(t) })
}

// plannedEffect is the effect that the key will have by what is planned so far.
func (p *planner) plannedEffect(key string) corev1.TaintEffect {
	return Ownership{Taints: p.next}.Effect(key)
}
