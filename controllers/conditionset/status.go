package conditionset

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
)

const taintKeysKept = 16

// state is everything that a status tells.
type state struct {
	judgement
	summary condition.Summary
	// synced: caches are full, so that counts mean something.
	synced  bool
	trouble *troubles
	// undoing are nodes that a deleted set must still be undone on.
	undoing int
	on      []string
}

// statusOf describes a set. It is pure: the same state gives the same status, so that nothing is written when nothing
// changed.
func statusOf(cs *v1alpha1.ConditionSet, st state) v1alpha1.ConditionSetStatus {
	status := *cs.Status.DeepCopy()
	status.ObservedGeneration = cs.Generation
	status.TaintKeys = declaredKeys(cs)
	status.Nodes = &v1alpha1.NodeCounts{
		Selected: int32(st.summary.Selected), Matching: int32(st.summary.Matching), Tainted: int32(st.summary.Tainted),
		HeldBack: int32(st.summary.HeldBack), Stale: int32(st.summary.Stale),
	}
	status.SampleNodes = st.summary.Samples
	status.Breaker = nil
	if b := st.summary.Breaker; b != nil {
		status.Breaker = &v1alpha1.Breaker{ID: b.ID, OpenedAt: metav1.NewTime(b.OpenedAt.Truncate(1e9)), Reset: b.Reset}
	}
	for _, c := range []metav1.Condition{accepted(st), readyCondition(cs, st)} {
		set(&status, cs, c)
	}
	setWhileTrue(&status, cs, reconciling(st))
	setWhileTrue(&status, cs, stalled(st))
	setWhileTrue(&status, cs, limitReached(st))
	setWhileTrue(&status, cs, breakerOpen(cs, st))
	return status
}

func set(status *v1alpha1.ConditionSetStatus, cs *v1alpha1.ConditionSet, c metav1.Condition) {
	c.ObservedGeneration = cs.Generation
	meta.SetStatusCondition(&status.Conditions, c)
}

// setWhileTrue keeps a condition only while there is a reason for it.
func setWhileTrue(status *v1alpha1.ConditionSetStatus, cs *v1alpha1.ConditionSet, c metav1.Condition) {
	if c.Reason == "" {
		meta.RemoveStatusCondition(&status.Conditions, c.Type)
		return
	}
	c.Status = metav1.ConditionTrue
	set(status, cs, c)
}

func accepted(st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAdmitted,
		Message: "All rules admit it (rule set " + st.verdict.RuleSetHash + ")."}
	switch {
	case st.unreadable != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, st.unreadable.Error()
	case !st.verdict.Allowed && len(st.verdict.Violations) == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonRulesNotEvaluated, st.verdict.Message()
	case !st.verdict.Allowed:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonRuleViolated, st.verdict.Message()
	}
	return c
}

func (st state) rejected() bool { return st.unreadable != nil || !st.verdict.Allowed }

func readyCondition(cs *v1alpha1.ConditionSet, st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOperative, Message: operative(st)}
	switch {
	case st.rejected():
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, accepted(st).Reason, "Nothing new is done while the rules refuse it; see Accepted."
	case st.trouble.forbidden():
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonForbidden, "Autohealer's account may not change nodes; see Stalled."
	case !st.synced:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonStarting, "Nodes are being read."
	case st.trouble.retrying():
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonRetrying, "A write failed and is tried again: "+st.trouble.err.Error()
	case cs.Spec.Mode == v1alpha1.Observe:
		c.Reason = v1alpha1.ReasonObserving
		c.Message = fmt.Sprintf("Mode Observe: %d of %d selected nodes match, and nothing is touched.", st.summary.Matching, st.summary.Selected)
	}
	return c
}

// operative tells in numbers what the set does, and why it does less than it asks or where that stands: many tools show
// the message of Ready alone.
func operative(st state) string {
	says := []string{fmt.Sprintf("%d of %d selected nodes match, %d are tainted", st.summary.Matching, st.summary.Selected, st.summary.Tainted)}
	for _, reason := range slices.Sorted(maps.Keys(st.summary.Holds)) {
		if ofLimit(reason) || reason == condition.HeldByBreaker {
			continue
		}
		count := st.summary.Holds[reason]
		says = append(says, fmt.Sprintf("%d held back: %s", count.Nodes, count.Message))
	}
	if t := st.trouble; t != nil && t.partly {
		says = append(says, fmt.Sprintf("%d can't be written, %s: %s", t.nodes, t.sample, t.err))
	}
	if limitReached(st).Reason != "" {
		says = append(says, "a limit holds nodes back, see LimitReached")
	}
	if b := st.summary.Breaker; b != nil && !b.Reset {
		says = append(says, "the breaker is open and nothing new is done, see BreakerOpen")
	}
	return strings.Join(says, "; ") + "."
}

func reconciling(st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReconciling}
	switch {
	case st.undoing > 0:
		c.Reason, c.Message = v1alpha1.ReasonUndoing, undoing(st)
	case st.rejected() || st.trouble.forbidden():
	case !st.synced:
		c.Reason, c.Message = v1alpha1.ReasonStarting, "Nodes are being read."
	case st.trouble.retrying():
		c.Reason, c.Message = v1alpha1.ReasonRetrying, st.trouble.err.Error()
	}
	return c
}

// undoing says what a deletion waits for.
func undoing(st state) string {
	says := fmt.Sprintf("It is deleted once it is undone on %d nodes: %s", st.undoing, strings.Join(st.on, ", "))
	if st.undoing > len(st.on) {
		says += ", …"
	}
	if st.trouble != nil {
		says += "; " + st.trouble.err.Error()
	}
	return says + "."
}

func stalled(st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionStalled}
	switch {
	case st.rejected():
		c.Reason, c.Message = accepted(st).Reason, accepted(st).Message
	case st.trouble.forbidden():
		c.Reason, c.Message = v1alpha1.ReasonForbidden, st.trouble.err.Error()
	}
	return c
}

// limitReasons are the holds that are a limit's, with the reason that status gives for them.
var limitReasons = []struct {
	hold   condition.Reason
	reason string
}{
	{condition.HeldByLimit, v1alpha1.ReasonTooManyTainted},
	{condition.HeldByPace, v1alpha1.ReasonTooManyEvicting},
	{condition.HeldByPlane, v1alpha1.ReasonTooManyTainted},
	{condition.HeldByOwnCap, v1alpha1.ReasonOwnCapReached},
}

func ofLimit(hold condition.Reason) bool {
	for _, l := range limitReasons {
		if l.hold == hold {
			return true
		}
	}
	return false
}

func limitReached(st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionLimitReached}
	var says []string
	for _, l := range limitReasons {
		count, ok := st.summary.Holds[l.hold]
		if !ok {
			continue
		}
		if c.Reason == "" {
			c.Reason = l.reason
		}
		says = append(says, fmt.Sprintf("%d held back: %s", count.Nodes, count.Message))
	}
	c.Message = strings.Join(says, "; ")
	return c
}

func breakerOpen(cs *v1alpha1.ConditionSet, st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionBreakerOpen}
	b := st.summary.Breaker
	if b == nil || b.Reset {
		return c
	}
	c.Reason = v1alpha1.ReasonTooManyMatchAtOnce
	c.Message = fmt.Sprintf("Too many nodes matched at once at %s; now %d of %d match. Nothing new is done. Look at the conditions' reporter; then, to let it act: kubectl annotate conditionset %s %s=%s --overwrite",
		b.OpenedAt.UTC().Format("2006-01-02T15:04:05Z"), st.summary.Matching, st.summary.Selected, cs.Name, v1alpha1.AnnotationResetBreaker, b.ID)
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
