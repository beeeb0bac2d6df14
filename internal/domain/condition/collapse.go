package condition

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
)

// collapse turns the claims into the node's taints: one for each key, with the highest effect claimed. Foreign taints stay.
// The plan has no steps when an eviction still needs evidence, or when nothing changes.
func (p *planner) collapse() {
	if p.plan.NeedsEvidence {
		return
	}
	owned := Ownership{Taints: p.next, History: p.history}
	p.dropConflicting(&owned)
	taints := p.taints(owned)
	if owned.String() == p.Node.record && sameTaints(taints, p.Node.Taints) {
		return
	}
	p.addAdoptedSteps()
	if len(p.steps) == 0 {
		return // only old history would go: not worth a write
	}
	if p.Frozen {
		p.plan.Frozen = p.steps
		return
	}
	p.plan.Taints, p.plan.Owned, p.plan.Steps = taints, owned, p.steps
}

// addAdoptedSteps adds a step for each claim of which only the set changed.
func (p *planner) addAdoptedSteps() {
	for _, t := range p.adopted {
		if !slices.ContainsFunc(p.steps, func(s Step) bool { return s.Set == t.Set && s.Key == t.Key }) {
			p.steps = append(p.steps, Step{Verb: Repair, Reason: Restored, Set: t.Set, SetName: t.Name, Generation: t.Generation,
				Key: t.Key, From: t.Effect, To: t.Effect, Trigger: t.Since.Time})
		}
	}
}

// dropConflicting drops the claims to a key whose lowered effect is someone else's taint already: two owners of one taint
// would remove each other's.
func (p *planner) dropConflicting(owned *Ownership) {
	conflicting := map[string]bool{}
	for _, t := range owned.Taints {
		conflicting[t.Key] = p.Node.foreignTaint(t.Key, owned.Effect(t.Key))
	}
	owned.Taints = slices.DeleteFunc(owned.Taints, func(t OwnedTaint) bool { return conflicting[t.Key] })
}

func (p *planner) taints(owned Ownership) []corev1.Taint {
	var taints []corev1.Taint
	placed := map[string]bool{}
	for _, t := range p.Node.Taints {
		if !p.mayRemove(t) {
			taints = append(taints, t)
			placed[t.Key] = placed[t.Key] || t.Effect == owned.Effect(t.Key)
			continue
		}
		placed[t.Key] = true
		switch effect := owned.Effect(t.Key); effect {
		case "":
		case t.Effect:
			taints = append(taints, t)
		default:
			taints = append(taints, p.taint(t.Key, effect))
		}
	}
	for _, t := range owned.Taints {
		if !placed[t.Key] && !p.untainted[t.Key] && p.mayOwn(t.Key) { // a forged claim puts no taint anywhere
			placed[t.Key] = true
			taints = append(taints, p.taint(t.Key, owned.Effect(t.Key)))
		}
	}
	return taints
}

// mayRemove says whether a taint may be removed: the record claims it, and its key may be ours.
func (p *planner) mayRemove(t corev1.Taint) bool { return p.Node.Owned.Owns(t) && p.mayOwn(t.Key) }

// mayOwn says whether a claim to the key can be true: a set declared it, and it isn't reserved.
func (p *planner) mayOwn(key string) bool { return !ecosystem.NeverOurs(key) && p.Declared(key) }

func (p *planner) taint(key string, effect corev1.TaintEffect) corev1.Taint {
	t := corev1.Taint{Key: key, Effect: effect}
	if effect == corev1.TaintEffectNoExecute { // tolerationSeconds count from it
		now := p.now()
		t.TimeAdded = &now
	}
	return t
}

func sameTaints(a, b []corev1.Taint) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.Taint) bool { return x.MatchTaint(&y) && x.Value == y.Value })
}

// Undo plans to remove all taints that a node's record claims, whatever the policies say: for undoing by hand, without a
// manager or even without policies. Reserved keys stay. The record keeps the history of sets that exist, which paces the
// next eviction.
func Undo(node *Node, exists func(types.UID) bool, at Moment) Plan {
	plan := PlanNode(Input{
		Node: node, At: at, Precedence: PrecedenceKey,
		Declared:  func(string) bool { return true },
		Withdrawn: func(types.UID) bool { return true },
	})
	plan.Steps = slices.DeleteFunc(plan.Steps, func(s Step) bool { return s.Key == "" && exists(s.Set) })
	for _, past := range pruned(node.Owned.History, at.Now) {
		if exists(past.Set) {
			plan.Owned.History = append(plan.Owned.History, past)
		}
	}
	return plan
}
