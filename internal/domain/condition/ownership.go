package condition

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// Ownership is a node's record of what ConditionSets did to it, kept in an annotation and written together with the
// taints, so that neither a restart nor a lost object forgets whose a taint is.
type Ownership struct {
	// Taints has one entry for each set that asks for a taint; the node's taint of a key has the highest effect asked.
	Taints []OwnedTaint `json:"taints,omitempty"`
	// History are the taints of the last hour, to notice flapping and to pace evictions.
	History []PastTaint `json:"history,omitempty"`
}

// OwnedTaint is one set's claim on a taint.
type OwnedTaint struct {
	Key        string             `json:"key"`
	Effect     corev1.TaintEffect `json:"effect"`
	Set        types.UID          `json:"set"`
	Name       string             `json:"name"`
	Generation int64              `json:"generation"`
	// Since is when this set's taint was set, or put back, by our clock.
	Since metav1.Time `json:"since"`
	// EvictSince is when it became NoExecute.
	EvictSince *metav1.Time `json:"evictSince,omitempty"`
	// TaintCount says which taint of the node by sets of this name within an hour it is, from the third on: such a one never becomes NoExecute,
	// and goes only some time after its conditions recovered.
	TaintCount int `json:"times,omitempty"`
}

// PastTaint is one time at which a set tainted the node.
type PastTaint struct {
	Set types.UID   `json:"set"`
	Key string      `json:"key,omitempty"`
	At  metav1.Time `json:"at"`
	// Evicted is when that taint became NoExecute, if it did.
	Evicted *metav1.Time `json:"evicted,omitempty"`
	// TaintRestored: someone else had removed it.
	TaintRestored bool `json:"putBack,omitempty"`
	// Withdrawn: it went with its set, which was deleted or only observed, and not since conditions came and went.
	Withdrawn bool `json:"-"`
}

// historyRetention bounds the record: what lies further back says nothing about flapping.
const (
	historyRetention = time.Hour
	// maxHistory bounds its length, whatever fights over the node.
	maxHistory = 32
)

// ParseOwnership reads a node's annotation; empty text is an empty record.
func ParseOwnership(annotation string) (Ownership, error) {
	var o Ownership
	if annotation == "" {
		return o, nil
	}
	if err := json.Unmarshal([]byte(annotation), &o); err != nil {
		return Ownership{}, fmt.Errorf("read ownership record: %w", err)
	}
	return o, nil
}

// String is the annotation's value, "" for an empty record. Equal records give equal text.
func (o Ownership) String() string {
	if len(o.Taints) == 0 && len(o.History) == 0 {
		return ""
	}
	o.Taints = slices.Clone(o.Taints)
	slices.SortFunc(o.Taints, func(a, b OwnedTaint) int {
		if c := strings.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		return strings.Compare(string(a.Set), string(b.Set))
	})
	text, err := json.Marshal(o)
	if err != nil { // strings and times always marshal
		panic(fmt.Sprintf("marshal ownership record: %v", err))
	}
	return string(text)
}

// Effect is the highest effect that the record asks for a key, "" for none.
func (o Ownership) Effect(key string) corev1.TaintEffect {
	var effect corev1.TaintEffect
	for _, t := range o.Taints {
		if t.Key == key {
			effect = Higher(effect, t.Effect)
		}
	}
	return effect
}

// Owns says whether the record claims this very taint.
func (o Ownership) Owns(taint corev1.Taint) bool {
	return taint.Effect != "" && o.Effect(taint.Key) == taint.Effect
}

var rank = map[corev1.TaintEffect]int{
	corev1.TaintEffectPreferNoSchedule: 1,
	corev1.TaintEffectNoSchedule:       2,
	corev1.TaintEffectNoExecute:        3,
}

// Higher is the more drastic of two effects: NoExecute, NoSchedule, PreferNoSchedule, none.
func Higher(a, b corev1.TaintEffect) corev1.TaintEffect {
	if rank[a] >= rank[b] {
		return a
	}
	return b
}

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
	present := map[string]bool{}
	for _, t := range p.Node.Taints {
		if !p.mayRemove(t) {
			taints = append(taints, t)
			present[t.Key] = present[t.Key] || t.Effect == owned.Effect(t.Key)
			continue
		}
		present[t.Key] = true
		switch effect := owned.Effect(t.Key); effect {
		case "":
		case t.Effect:
			taints = append(taints, t)
		default:
			taints = append(taints, p.taint(t.Key, effect))
		}
	}
	for _, t := range owned.Taints {
		if !present[t.Key] && !p.untainted[t.Key] && p.mayOwn(t.Key) { // a forged claim puts no taint anywhere
			present[t.Key] = true
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
func Undo(node *Node, exists func(types.UID) bool, at timing.Moment) Plan {
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
