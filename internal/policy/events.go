package policy

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Tell tells of conditions that turned, by Events on the policy.
func Tell(recorder events.EventRecorder, policy runtime.Object, before, after []metav1.Condition) {
	for _, c := range after {
		if turned(meta.FindStatusCondition(before, c.Type), c) && !repeats(c, after) {
			recorder.Eventf(policy, nil, weight(c), c.Reason, c.Type, "%s", Truncate(c.Message))
		}
	}
	for _, c := range before {
		if end, ok := ends[c.Type]; ok && meta.FindStatusCondition(after, c.Type) == nil {
			recorder.Eventf(policy, nil, corev1.EventTypeNormal, end.reason, c.Type, "%s", end.note)
		}
	}
	if paused(before) && !paused(after) && !deleting(after) {
		recorder.Eventf(policy, nil, corev1.EventTypeNormal, v1alpha1.ReasonResumed, v1alpha1.ConditionReady, "It isn't paused any more.")
	}
}

// good is the status in which a condition is good news.
var good = map[string]metav1.ConditionStatus{
	v1alpha1.ConditionAccepted: metav1.ConditionTrue, v1alpha1.ConditionReady: metav1.ConditionTrue,
	v1alpha1.ConditionInternalHealthy: metav1.ConditionTrue, v1alpha1.ConditionExternalHealthy: metav1.ConditionTrue,
	v1alpha1.ConditionProtectionActive: metav1.ConditionFalse, v1alpha1.ConditionTargetsHealthy: metav1.ConditionTrue,
}

// weight is an Event's type: good news are Normal.
func weight(c metav1.Condition) string {
	if good[c.Type] == c.Status {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}

// turned says whether a condition is news: not one that is there for the first time and says that nothing is known, or that
// nothing happened.
func turned(was *metav1.Condition, c metav1.Condition) bool {
	if c.Type == v1alpha1.ConditionTargetsHealthy && (unlooked(&c) || unlooked(was) && c.Status == metav1.ConditionTrue) {
		return false
	}
	if was != nil {
		return was.Status != c.Status || was.Reason != c.Reason
	}
	switch c.Type {
	case v1alpha1.ConditionInternalHealthy, v1alpha1.ConditionExternalHealthy:
		return c.Status != metav1.ConditionUnknown
	case v1alpha1.ConditionProtectionActive:
		return c.Status == metav1.ConditionTrue
	}
	return true
}

// unlooked says of TargetsHealthy that nobody has looked at them yet, or may.
func unlooked(c *metav1.Condition) bool {
	return c == nil || c.Reason == v1alpha1.ReasonStarting || c.Reason == v1alpha1.ReasonFrozen
}

// deleting says whether a policy is being deleted, of which Ready tells in place of a pause.
func deleting(conditions []metav1.Condition) bool {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Reason == v1alpha1.ReasonUndoing
}

func paused(conditions []metav1.Condition) bool {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	return ready != nil && stops(ready.Reason)
}

// stops says whether a reason of Ready is that Guardrails stop new acts.
func stops(reason string) bool {
	return reason == v1alpha1.ReasonPaused || reason == v1alpha1.ReasonFrozen || reason == v1alpha1.ReasonGuardrailsUnknown
}

// repeats says whether a condition tells nothing that another one doesn't tell better.
func repeats(c metav1.Condition, all []metav1.Condition) bool {
	switch c.Type {
	case v1alpha1.ConditionReconciling:
		return true // Accepted, Stalled, LimitReached and BreakerOpen say it better
	case v1alpha1.ConditionEjectionsUnknown:
		return true // one Envoy that is silent now and then is news of no policy, and there may be thousands of these
	case v1alpha1.ConditionReady: // and better than most of this
		return !stops(c.Reason) && c.Reason != v1alpha1.ReasonActive && (c.Reason != v1alpha1.ReasonExpired || c.Status != metav1.ConditionTrue)
	case v1alpha1.ConditionStalled:
		accepted := meta.FindStatusCondition(all, v1alpha1.ConditionAccepted)
		return accepted != nil && accepted.Reason == c.Reason
	}
	return false
}

// ends are the conditions whose end is news that no other condition brings.
var ends = map[string]struct{ reason, note string }{
	v1alpha1.ConditionLimitReached: {v1alpha1.ReasonLimitCleared, "No limit holds it back any more."},
	v1alpha1.ConditionBreakerOpen:  {v1alpha1.ReasonBreakerClosed, "The breaker is closed; it acts again, within the limits."},

	v1alpha1.ConditionLeasesUnreadable:       {v1alpha1.ReasonLeasesReadable, "The nodes' leases can be listed again."},
	v1alpha1.ConditionWitnessSilent:          {v1alpha1.ReasonWitnessesAnswer, "None of its witnesses is silent any more."},
	v1alpha1.ConditionLeaseProtectionExpired: {v1alpha1.ReasonLeasesRenewed, "The nodes renew their leases again, or are gone."},
}

// Truncate keeps a note within what the Events API takes, 1 kB.
func Truncate(note string) string { return sample.Cut(note, 1000) }
