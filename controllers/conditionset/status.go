package conditionset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/policy"
)

const taintKeysKept = 16

// statusInput is everything that a status depends on.
type statusInput struct {
	storedSet
	summary condition.Summary
	// synced: caches are full, so that counts mean something.
	synced      bool
	writeErrors *policy.WriteErrors
	// remaining are nodes that a deleted set must still be undone on.
	remaining policy.Remaining
}

// statusOf describes a set. It is pure: the same state gives the same status, so that nothing is written when nothing
// changed.
func statusOf(cs *v1alpha1.ConditionSet, st statusInput) v1alpha1.ConditionSetStatus {
	after := *cs.Status.DeepCopy()
	after.ObservedGeneration = cs.Generation
	after.TaintKeys = declaredKeys(cs)
	after.Nodes = &v1alpha1.NodeCounts{
		Selected: int32(st.summary.Selected), Matching: int32(st.summary.Matching), Tainted: int32(st.summary.Tainted),
		HeldBack: int32(st.summary.HeldBack), Doubtful: int32(st.summary.Doubtful),
	}
	after.SampleNodes = st.summary.Samples
	after.Breaker = nil
	if b := st.summary.Breaker; b != nil {
		after.Breaker = &v1alpha1.Breaker{ID: b.ID, OpenedAt: metav1.NewTime(b.OpenedAt.Truncate(1e9)), Reset: b.Reset}
	}
	commonConditions(cs, st).Apply(&after.Conditions, cs.Generation)
	policy.SetWhileTrue(&after.Conditions, cs.Generation, limitHolds.Reached(st.heldBack))
	policy.SetWhileTrue(&after.Conditions, cs.Generation, breakerOpen(cs, st))
	return after
}

// commonConditions is the input of the conditions that every kind has.
func commonConditions(cs *v1alpha1.ConditionSet, st statusInput) policy.Conditions {
	s := policy.Conditions{
		Acceptance: policy.AcceptanceOf(st.Verdict, st.Read.unreadable),
		Changes:    "nodes", Synced: st.synced, WriteErrors: st.writeErrors, Paused: st.Pause, Deleting: cs.DeletionTimestamp != nil, Summary: operativeMessage(st),
	}
	if cs.Spec.Mode == v1alpha1.Observe {
		s.Observes = true
		s.Summary = fmt.Sprintf("Mode Observe: %d of %d selected nodes match, and nothing is touched%s.", st.summary.Matching, st.summary.Selected, unselectedHint(st))
	}
	if st.remaining.Targets > 0 {
		s.Undoing = undoingMessage(st)
	}
	return s
}

// operativeMessage says in numbers what the set does, and why it does less than specified: many tools show only the message
// of Ready.
func operativeMessage(st statusInput) string {
	clauses := []string{fmt.Sprintf("%d of %d selected nodes match, %s%s", st.summary.Matching, st.summary.Selected,
		sample.Clause(st.summary.Tainted, "is tainted", "are tainted"), unselectedHint(st))}
	if n := st.summary.Doubtful; n > 0 {
		clauses = append(clauses, fmt.Sprintf("conditions of %s are Unknown, missing or stale: nothing is done and nothing undone there", sample.Count(n, "node")))
	}
	if nodes := st.summary.Unreadable; len(nodes) > 0 {
		clauses = append(clauses, fmt.Sprintf("the record of %s can't be read: %s", sample.Count(len(nodes), "node"), unreadableHint(nodes)))
	}
	for _, reason := range slices.Sorted(maps.Keys(st.summary.Holds)) {
		if !limitHolds.Has(reason) && reason != condition.HeldByBreaker && reason != condition.HeldByPause {
			clauses = append(clauses, st.heldBack(reason))
		}
	}
	if t := st.writeErrors; t != nil && t.Partial {
		clauses = append(clauses, sample.Example(t.Targets, "node", "can't be written", fmt.Sprintf("%s: %s", t.Sample, t.Err)))
	}
	if limitHolds.Reached(st.heldBack).Reason != "" {
		clauses = append(clauses, "a limit holds nodes back, see LimitReached")
	}
	if b := st.summary.Breaker; b != nil && !b.Reset {
		clauses = append(clauses, "the breaker is open and nothing new is done, see BreakerOpen")
	}
	return policy.Sentence(clauses...)
}

// unselectedHint says what to do about a set that is about no node.
func unselectedHint(st statusInput) string {
	if !st.synced || st.summary.Selected > 0 {
		return ""
	}
	return "; no node is selected: compare nodeSelector with kubectl get nodes --show-labels; control-plane nodes take includeControlPlane"
}

// undoingMessage says what a deletion waits for.
func undoingMessage(st statusInput) string {
	message := fmt.Sprintf("The ConditionSet is deleted once its taints are off %s: %s", sample.Count(st.remaining.Targets, "node"), joinFirst(st.remaining.Sample))
	if st.remaining.Targets > len(st.remaining.Sample) {
		message += ", …"
	}
	if nodes := st.summary.Unreadable; len(nodes) > 0 {
		message += "; can't read the record of " + unreadableHint(nodes)
	}
	if st.writeErrors != nil {
		message += "; " + st.writeErrors.Err.Error()
	}
	return message + "."
}

// unreadableHint says what to do about nodes with a taint of the set's key and a record that can't be read.
func unreadableHint(nodes []string) string {
	return fmt.Sprintf("%s, so that nothing is done and nothing undone there; repair the annotation %s, or remove the taint if it is this set's, and then the annotation",
		joinFirst(nodes), v1alpha1.AnnotationOwnedTaints)
}

func joinFirst(nodes []string) string {
	if len(nodes) > 5 {
		return strings.Join(nodes[:5], ", ") + ", …"
	}
	return strings.Join(nodes, ", ")
}

// limitHolds are the holds that are a limit's.
var limitHolds = policy.LimitHolds[condition.Reason]{
	{Hold: condition.HeldByLimit, Reason: v1alpha1.ReasonTooManyTainted},
	{Hold: condition.HeldByEvictLimit, Reason: v1alpha1.ReasonTooManyEvicting},
	{Hold: condition.HeldByEvictPace, Reason: v1alpha1.ReasonTooManyEvicting},
	{Hold: condition.HeldByControlPlane, Reason: v1alpha1.ReasonControlPlaneLimit},
	{Hold: condition.HeldByMaxNodes, Reason: v1alpha1.ReasonMaxNodesReached},
}

// heldBack says how many nodes a hold holds back, and why; "" when it holds none.
func (st statusInput) heldBack(by condition.Reason) string {
	if count, ok := st.summary.Holds[by]; ok {
		return fmt.Sprintf("%s held back: %s", sample.Count(count.Nodes, "node"), count.Message)
	}
	return ""
}

func breakerOpen(cs *v1alpha1.ConditionSet, st statusInput) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionBreakerOpen}
	b := st.summary.Breaker
	if b == nil || b.Reset {
		return c
	}
	c.Reason = v1alpha1.ReasonTooManyMatchAtOnce
	deleted := ""
	if n := st.summary.DeletedMatching; n > 0 {
		deleted = ", and " + sample.Clause(n, "was deleted while it matched", "were deleted while they matched")
	}
	c.Message = fmt.Sprintf("Too many nodes matched at once at %s; now %d of %d match%s. The ConditionSet does nothing new. Look at what reports the conditions; then, to let the ConditionSet act: kubectl annotate conditionset %s %s=%s --overwrite",
		b.OpenedAt.UTC().Format("2006-01-02T15:04:05Z"), st.summary.Matching, st.summary.Selected, deleted, cs.Name, v1alpha1.AnnotationResetBreaker, b.ID)
	return c
}

// declaredKeys adds the present key to those declared before. The oldest fall out: a set that had more keys than that
// has long cleaned up after the first.
func declaredKeys(cs *v1alpha1.ConditionSet) []string {
	keys := cs.Status.TaintKeys
	if slices.Contains(keys, cs.Spec.TaintKey) {
		return keys
	}
	keys = append(slices.Clone(keys), cs.Spec.TaintKey)
	return keys[max(0, len(keys)-taintKeysKept):]
}

// steps keep sets' finalizers and statuses. The acting is the NodeReconciler's.
func (o *Observer) steps() policy.Steps[*v1alpha1.ConditionSet] {
	return policy.Steps[*v1alpha1.ConditionSet]{
		New: func() *v1alpha1.ConditionSet { return &v1alpha1.ConditionSet{} }, Describe: o.describe, Remaining: o.remaining, Gone: forgetStates,
	}
}

// remaining counts the nodes that carry a record of the set.
func (o *Observer) remaining(_ context.Context, cs *v1alpha1.ConditionSet) (remaining policy.Remaining, err error) {
	fleet := o.Facts.Fleet
	remaining.Targets, remaining.Sample = fleet.Recorded(cs.UID)
	remaining.Unknown = !fleet.Synced() || remaining.Targets == 0 && !fleet.Undone(cs.UID)
	return remaining, nil
}

// describe computes the status, once this generation is judged by known rules.
func (o *Observer) describe(_ context.Context, cs *v1alpha1.ConditionSet, remaining policy.Remaining) (is policy.Description[*v1alpha1.ConditionSet], err error) {
	set, ok := o.policies.Current(cs)
	if !ok {
		return policy.Description[*v1alpha1.ConditionSet]{Skip: true}, nil
	}
	st := statusInput{storedSet: set, synced: o.Facts.Fleet.Synced(), writeErrors: o.policies.Errors.Get(cs.UID), remaining: remaining}
	if st.summary, ok = o.Facts.Fleet.Summary(cs.UID, o.Facts.Moment()); !ok {
		st.summary = condition.Summary{}
	}
	is.After = cs.DeepCopy()
	is.After.Status = statusOf(cs, st)
	is.RequeueAfter = max(policy.Delay, set.Read.set.StaleAfter) // no event shows that a reporter fell silent
	gaugeStates(cs.Name, st.summary, meta.IsStatusConditionTrue(is.After.Status.Conditions, v1alpha1.ConditionLimitReached))
	return is, nil
}
