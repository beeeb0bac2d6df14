package weederconfig

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/policy"
)

// steps keep configs' statuses. The acting is the PodReconciler's, and a deleted pod needs no undoing.
func (o *Observer) steps() policy.Steps[*v1alpha1.WeederConfig] {
	return policy.Steps[*v1alpha1.WeederConfig]{
		New: func() *v1alpha1.WeederConfig { return &v1alpha1.WeederConfig{} }, Describe: o.describe, Gone: forgetStates,
	}
}

// describe computes the status, once this generation is judged by known rules.
func (o *Observer) describe(_ context.Context, wc *v1alpha1.WeederConfig, _ policy.Remaining) (is policy.Description[*v1alpha1.WeederConfig], err error) {
	unknown := policy.Description[*v1alpha1.WeederConfig]{Skip: true}
	config, ok := o.policies.Current(wc)
	if !ok || config.Object.ResourceVersion != wc.ResourceVersion { // the planner knows another status
		return unknown, nil
	}
	st := statusInput{storedConfig: config, synced: o.weeder().Synced(), writeErrors: o.policies.Errors.Get(wc.UID)}
	if st.summary, ok = o.weeder().Summary(wc.UID, o.Facts.Moment()); !ok && config.Read.unreadable == nil {
		return unknown, nil
	}
	is.After = wc.DeepCopy()
	is.After.Status = statusOf(wc, st)
	gaugeStates(client.ObjectKeyFromObject(wc), st.summary, meta.IsStatusConditionTrue(is.After.Status.Conditions, v1alpha1.ConditionLimitReached))
	return is, nil
}

// statusInput is everything that a status depends on.
type statusInput struct {
	storedConfig
	summary weeder.Summary
	// synced: caches are full, so that counts mean something.
	synced      bool
	writeErrors *policy.WriteErrors
}

// statusOf describes a config. It is pure: the same state gives the same status, so that nothing is written when nothing
// changed.
func statusOf(wc *v1alpha1.WeederConfig, st statusInput) v1alpha1.WeederConfigStatus {
	after := *wc.Status.DeepCopy()
	if st.synced && st.Read.unreadable == nil {
		counted := st.summary.WeederConfigStatus
		counted.Conditions, counted.LastTriggered = after.Conditions, cmp.Or(counted.LastTriggered, after.LastTriggered)
		after = counted
	}
	after.ObservedGeneration = wc.Generation
	commonConditions(wc, st).Apply(&after.Conditions, wc.Generation)
	policy.SetWhileTrue(&after.Conditions, wc.Generation, limitReached(st))
	return after
}

// commonConditions is the input of the conditions that every kind has.
func commonConditions(wc *v1alpha1.WeederConfig, st statusInput) policy.Conditions {
	s := policy.Conditions{
		Acceptance: policy.AcceptanceOf(st.Verdict, st.Read.unreadable),
		Changes:    "pods", Synced: st.synced, WriteErrors: st.writeErrors, Paused: st.Pause, Summary: operativeMessage(st),
	}
	if wc.Spec.Mode == v1alpha1.Observe {
		s.Observes = true
		s.Summary = fmt.Sprintf("Mode Observe: %d of %d Services are there, %d recovered lately; %d pods would be deleted now, and none is.",
			st.summary.Services, st.summary.Named, st.summary.ActiveWindows, st.summary.Held[weeder.HeldByMode].Pods)
	}
	return s
}

// operativeMessage says in numbers what the config does, and why it does less than specified: many tools show only the message
// of Ready.
func operativeMessage(st statusInput) string {
	clauses := []string{fmt.Sprintf("%d of %d Services are there, %d recovered lately, %d pods were deleted so far", st.summary.Services, st.summary.Named, st.summary.ActiveWindows, st.summary.Deleted)}
	for _, reason := range slices.Sorted(maps.Keys(st.summary.Held)) {
		if ofLimit(reason) || reason == weeder.HeldByPause {
			continue
		}
		held := st.summary.Held[reason]
		clauses = append(clauses, sample.Example(held.Pods, "pod", "held back", held.Message))
	}
	if t := st.writeErrors; t != nil && t.Partial {
		clauses = append(clauses, sample.Example(t.Targets, "pod", "can't be deleted", fmt.Sprintf("%s: %s", t.Sample, t.Err)))
	}
	if limitReached(st).Reason != "" {
		clauses = append(clauses, "a limit holds pods back, see LimitReached")
	}
	return policy.Sentence(clauses...)
}

// limitReasons are the holds that are a limit's, with the reason that status gives for them.
var limitReasons = []struct {
	hold   weeder.Reason
	reason string
}{
	{weeder.HeldByLimit, v1alpha1.ReasonTooManyPodDeletions},
	{weeder.HeldByBudget, v1alpha1.ReasonBudgetSpent},
	{weeder.HeldByRepeats, v1alpha1.ReasonBudgetSpent},
}

func ofLimit(hold weeder.Reason) bool {
	for _, l := range limitReasons {
		if l.hold == hold {
			return true
		}
	}
	return false
}

func limitReached(st statusInput) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionLimitReached}
	var clauses []string
	for _, l := range limitReasons {
		held, ok := st.summary.Held[l.hold]
		if !ok {
			continue
		}
		if c.Reason == "" {
			c.Reason = l.reason
		}
		clauses = append(clauses, sample.Example(held.Pods, "pod", "held back", held.Message))
	}
	if len(clauses) > 0 {
		c.Message = policy.Sentence(clauses...)
	}
	return c
}
