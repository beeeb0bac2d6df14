package actuate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/guard"
)

// Admitted is a ConditionSet that the rules admitted.
type Admitted = guard.Validated[*v1alpha1.ConditionSet]

// Taints writes node taints together with the record of whose they are.
type Taints struct {
	Client  client.Client
	Current Current
	// Leads says whether this process may act at all. Default: it may.
	Leads func() bool
	// Acts takes the audit trail: one line an act.
	Acts logr.Logger
}

// Apply carries out a plan in one write and gives the node's new resource version. Each harmful step needs its set's
// admission at the planned generation; steps that undo need their claim in the node's record. After an error Certain
// says whether the node surely stayed as it was.
func (t *Taints) Apply(ctx context.Context, plan condition.Plan, admitted []Admitted) (version string, err error) {
	for _, step := range plan.Steps {
		if err := t.covered(ctx, plan.Node, step, admitted); err != nil {
			return "", err
		}
	}
	patch, err := taintPatch(plan.Node, plan.Taints, plan.Owned, plan.Harmful())
	if err != nil {
		return "", fmt.Errorf("build the patch of node %s: %w", plan.Node.Name, err)
	}
	if t.Leads != nil && !t.Leads() {
		return "", fmt.Errorf("patch node %s: this replica may no longer be the leader: %w", plan.Node.Name, ErrStale)
	}
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Node"})
	node.Name = plan.Node.Name
	if err := t.Client.Patch(ctx, node, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner("autohealer")); err != nil {
		if !Certain(err) && !stale(err) {
			t.record(plan, admitted, err)
		}
		if stale(err) {
			return "", fmt.Errorf("patch node %s: %w", plan.Node.Name, ErrStale)
		}
		return "", fmt.Errorf("patch node %s: %w", plan.Node.Name, err)
	}
	t.record(plan, admitted, nil)
	return node.ResourceVersion, nil
}

// covered finds what allows a step: the admission of its set, still current, or a record.
func (t *Taints) covered(ctx context.Context, node *condition.Node, step condition.Step, admitted []Admitted) error {
	if !step.Harmful() {
		if !recorded(node.Owned, step) {
			return fmt.Errorf("%s %s on node %s: the node's record doesn't claim it: %w", step.Verb, step.Key, node.Name, ErrNotValidated)
		}
		return nil
	}
	v, ok := find(admitted, step)
	if !ok {
		return &Unconfirmed{step.Set, fmt.Errorf("%s %s on node %s for ConditionSet %s: %w", step.Verb, step.Key, node.Name, step.SetName, ErrNotValidated)}
	}
	return confirm(ctx, t.Current, "ConditionSet", types.NamespacedName{Name: v.Object().Name}, v.UID(), v.Generation())
}

// recorded says whether the record has what a step undoes: a claim of its key or, for a step that only forgets what is
// past and so has no key, an entry of its set's history.
func recorded(o condition.Ownership, step condition.Step) bool {
	if step.Key == "" {
		return slices.ContainsFunc(o.History, func(p condition.PastTaint) bool { return p.Set == step.Set })
	}
	return slices.ContainsFunc(o.Taints, func(c condition.OwnedTaint) bool { return c.Key == step.Key })
}

func find(admitted []Admitted, step condition.Step) (Admitted, bool) {
	i := slices.IndexFunc(admitted, func(v Admitted) bool {
		return v.Enforces() && v.UID() == step.Set && v.Generation() == step.Generation
	})
	if i < 0 {
		return Admitted{}, false
	}
	return admitted[i], true
}

// record writes the audit line of each step, which unconfirmed leaves in doubt.
func (t *Taints) record(plan condition.Plan, admitted []Admitted, unconfirmed error) {
	for _, step := range plan.Steps {
		t.recordStep(plan.Node, step, admitted, unconfirmed)
	}
}

func (t *Taints) recordStep(node *condition.Node, step condition.Step, admitted []Admitted, unconfirmed error) {
	v, _ := find(admitted, step)
	act := Act{
		Verb: string(step.Verb), Reason: string(step.Reason),
		PolicyKind: "ConditionSet", Policy: types.NamespacedName{Name: step.SetName}, PolicyUID: step.Set, PolicyGeneration: step.Generation, RuleSet: v.RuleSetHash(),
		TargetKind: "Node", Target: types.NamespacedName{Name: node.Name}, TargetUID: node.UID, Part: step.Key + ":" + string(step.To),
		Trigger: step.Trigger, Unconfirmed: unconfirmed,
	}
	if step.Key == "" { // it only forgets what is past, and so answers that
		act.Trigger = lastTaint(node.Owned, step.Set)
		act.record(t.Acts, "Forgot a node's past taints")
		return
	}
	act.record(t.Acts, "Changed a node's taint", "taintKey", step.Key, "before", string(step.From), "after", string(step.To))
}

// lastTaint is when a set tainted the node for the last time, by the record's history.
func lastTaint(o condition.Ownership, set types.UID) (last time.Time) {
	for _, p := range o.History {
		if p.Set == set && p.At.After(last) {
			last = p.At.Time
		}
	}
	return last
}
