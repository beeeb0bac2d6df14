package policy

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Acceptance is what the rules said of a stored policy. The zero value admits nothing.
type Acceptance struct {
	// Unreadable says why the stored spec can't be read; then nothing else counts.
	Unreadable error
	// Allowed: the rules admit it. Violated: a rule refuses it. When neither, a rule couldn't be evaluated.
	Allowed, Violated bool
	// RuleSet names the rules; Message is theirs when they don't admit it.
	RuleSet, Message string
	// Lifted are the rules that it breaks and that exceptions lift, with whose they are; "" for none.
	Lifted string
}

// Rejected says that nothing new is done for the policy.
func (a Acceptance) Rejected() bool { return a.Unreadable != nil || !a.Allowed }

// Accepted is the condition that reports the rules' verdict.
func (a Acceptance) Accepted() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Message: a.Message}
	switch {
	case a.Unreadable != nil:
		c.Reason, c.Message = v1alpha1.ReasonInvalidSpec, a.Unreadable.Error()
	case a.Allowed:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonAdmitted
		if c.Message = "All rules admit it (rule set " + a.RuleSet + ")."; a.Lifted != "" {
			c.Message = "All other rules admit it (rule set " + a.RuleSet + "). " + a.Lifted
		}
	case a.Violated:
		c.Reason = v1alpha1.ReasonRuleViolated
	default:
		c.Reason = v1alpha1.ReasonRulesNotEvaluated
	}
	return c
}

// Cause is the reason of a condition and its message.
type Cause struct{ Reason, Message string }

// Conditions is what the conditions that every kind has are made from.
type Conditions struct {
	Acceptance
	// Changes are what the kind changes, and reads first, in the plural: "nodes".
	Changes string
	// Synced: caches are full, so that counts mean something.
	Synced      bool
	WriteErrors *WriteErrors
	// Stalled is what a human must change before anything can be done; no Reason when nothing is.
	Stalled Cause
	// Deleting: the policy goes once all that it did is undone. Undoing says what that waits for; "" when nobody knows.
	Deleting bool
	Undoing  string
	Paused   Pause
	// Observes: mode is Observe. Summary has in numbers what the policy does, or would do.
	Observes bool
	Summary  string
}

// Apply writes Accepted, Ready, Reconciling and Stalled. It is pure: the same state gives the same conditions, so that
// nothing is written when nothing changed.
func (s Conditions) Apply(conditions *[]metav1.Condition, generation int64) {
	Set(conditions, generation, s.Accepted())
	Set(conditions, generation, s.ready())
	SetWhileTrue(conditions, generation, s.reconciling())
	SetWhileTrue(conditions, generation, s.stalled())
}

func (s Conditions) ready() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOperative, Message: s.Summary}
	switch {
	case s.Deleting:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonUndoing, s.undoing()
	case s.Rejected():
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, s.Accepted().Reason, "Autohealer does nothing new for the policy while the rules refuse it; see Accepted."
	case s.WriteErrors.Forbidden():
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonForbidden, "Autohealer's account may not change "+s.Changes+"; see Stalled."
	case s.Stalled.Reason != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, s.Stalled.Reason, "Autohealer can't act for the policy; see Stalled."
	case !s.Synced:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonStarting, s.starting()
	case s.Paused.Unknown:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonGuardrailsUnknown, s.paused()
	case s.WriteErrors.Retrying():
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonRetrying, "A write failed and is tried again: "+s.WriteErrors.Err.Error()
	case s.Paused.Frozen:
		c.Reason, c.Message = v1alpha1.ReasonFrozen, s.Paused.By+". "+s.Summary
	case s.Observes:
		c.Reason = v1alpha1.ReasonObserving
	case s.Paused.By != "":
		c.Reason, c.Message = v1alpha1.ReasonPaused, s.paused()
	}
	return c
}

func (s Conditions) paused() string { return s.Paused.By + "; undo goes on. " + s.Summary }

func (s Conditions) reconciling() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReconciling}
	switch {
	case s.Deleting:
		c.Reason, c.Message = v1alpha1.ReasonUndoing, s.undoing()
	case s.Rejected() || s.WriteErrors.Forbidden() || s.Stalled.Reason != "":
	case !s.Synced:
		c.Reason, c.Message = v1alpha1.ReasonStarting, s.starting()
	case s.Paused.Unknown:
		c.Reason, c.Message = v1alpha1.ReasonGuardrailsUnknown, s.Paused.By
	case s.WriteErrors.Retrying():
		c.Reason, c.Message = v1alpha1.ReasonRetrying, s.WriteErrors.Err.Error()
	}
	return c
}

// undoing says what a deletion waits for.
func (s Conditions) undoing() string {
	message := s.Undoing
	if message == "" {
		message = "The policy is deleted once all that it did is undone."
	}
	if s.Paused.Frozen {
		message = s.Paused.By + ". " + message
	}
	return message
}

func (s Conditions) starting() string {
	return "The policy begins once all " + s.Changes + " are read."
}

func (s Conditions) stalled() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionStalled}
	switch {
	case s.Rejected() && !s.Deleting: // what rules say holds up no deletion
		c.Reason, c.Message = s.Accepted().Reason, s.Accepted().Message
	case s.WriteErrors.Forbidden():
		c.Reason, c.Message = v1alpha1.ReasonForbidden, s.WriteErrors.Err.Error()
	default:
		c.Reason, c.Message = s.Stalled.Reason, s.Stalled.Message
	}
	return c
}

// LimitHolds are the holds that are a limit's, each with the reason of LimitReached for it, in the order in which its message names them.
type LimitHolds[R comparable] []struct {
	Hold   R
	Reason string
}

// Has says whether a hold is a limit's.
func (l LimitHolds[R]) Has(hold R) bool {
	for _, limit := range l {
		if limit.Hold == hold {
			return true
		}
	}
	return false
}

// Reached is LimitReached, with a clause of each hold that there is; clause gives "" for the others.
func (l LimitHolds[R]) Reached(clause func(hold R) string) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionLimitReached}
	var clauses []string
	for _, limit := range l {
		if text := clause(limit.Hold); text != "" {
			c.Reason, clauses = cmp.Or(c.Reason, limit.Reason), append(clauses, text)
		}
	}
	if len(clauses) > 0 {
		c.Message = Sentence(clauses...)
	}
	return c
}

// Set writes a condition for a generation.
func Set(conditions *[]metav1.Condition, generation int64, c metav1.Condition) {
	c.ObservedGeneration = generation
	meta.SetStatusCondition(conditions, c)
}

// SetWhileTrue keeps a condition only while there is a reason for it.
func SetWhileTrue(conditions *[]metav1.Condition, generation int64, c metav1.Condition) {
	if c.Reason == "" {
		meta.RemoveStatusCondition(conditions, c.Type)
		return
	}
	c.Status = metav1.ConditionTrue
	Set(conditions, generation, c)
}

// EmitTransitions reports transitions of conditions, by Events on the policy.
func EmitTransitions(recorder events.EventRecorder, policy runtime.Object, before, after []metav1.Condition) {
	for _, c := range after {
		if transitioned(meta.FindStatusCondition(before, c.Type), c) && !isRedundant(c, after) {
			recorder.Eventf(policy, nil, eventType(c), c.Reason, c.Type, "%s", Truncate(c.Message))
		}
	}
	for _, c := range before {
		if end, ok := clearedEvents[c.Type]; ok && meta.FindStatusCondition(after, c.Type) == nil {
			recorder.Eventf(policy, nil, corev1.EventTypeNormal, end.reason, c.Type, "%s", end.note)
		}
	}
	if is := readyReason(after); pausesActs(readyReason(before)) && !pausesActs(is) && is != v1alpha1.ReasonUndoing {
		recorder.Eventf(policy, nil, corev1.EventTypeNormal, v1alpha1.ReasonResumed, v1alpha1.ConditionReady, "The policy is no longer paused.")
	}
}

// goodStatus is the status in which a condition is good news.
var goodStatus = map[string]metav1.ConditionStatus{
	v1alpha1.ConditionAccepted: metav1.ConditionTrue, v1alpha1.ConditionReady: metav1.ConditionTrue,
	v1alpha1.ConditionInternalHealthy: metav1.ConditionTrue, v1alpha1.ConditionExternalHealthy: metav1.ConditionTrue,
	v1alpha1.ConditionProtectionActive: metav1.ConditionFalse, v1alpha1.ConditionTargetsHealthy: metav1.ConditionTrue,
}

// eventType is an Event's type: good news are Normal.
func eventType(c metav1.Condition) string {
	if goodStatus[c.Type] == c.Status {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}

// transitioned says whether a condition is news: not one that is there for the first time and says that nothing is known, or that
// nothing happened.
func transitioned(was *metav1.Condition, c metav1.Condition) bool {
	if c.Type == v1alpha1.ConditionTargetsHealthy && (unchecked(&c) || unchecked(was) && c.Status == metav1.ConditionTrue) {
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

// unchecked says of TargetsHealthy that the targets weren't checked yet, or may not be.
func unchecked(c *metav1.Condition) bool {
	return c == nil || c.Reason == v1alpha1.ReasonStarting || c.Reason == v1alpha1.ReasonFrozen
}

// readyReason is the reason of Ready, "" before there is one. A deletion is reported in place of a pause.
func readyReason(conditions []metav1.Condition) string {
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Reason
	}
	return ""
}

// pausesActs says whether a reason of Ready is that Guardrails stop new acts.
func pausesActs(reason string) bool {
	return reason == v1alpha1.ReasonPaused || reason == v1alpha1.ReasonFrozen || reason == v1alpha1.ReasonGuardrailsUnknown
}

// isRedundant says whether another condition reports all that a condition does, and better.
func isRedundant(c metav1.Condition, all []metav1.Condition) bool {
	switch c.Type {
	case v1alpha1.ConditionReconciling:
		return true // Accepted, Stalled, LimitReached and BreakerOpen say it better
	case v1alpha1.ConditionEjectionsUnknown:
		return true // one Envoy that is silent now and then is news of no policy, and there may be thousands of these
	case v1alpha1.ConditionReady: // and better than most of this
		return !pausesActs(c.Reason) && c.Reason != v1alpha1.ReasonActive && (c.Reason != v1alpha1.ReasonExpired || c.Status != metav1.ConditionTrue)
	case v1alpha1.ConditionStalled:
		accepted := meta.FindStatusCondition(all, v1alpha1.ConditionAccepted)
		return accepted != nil && accepted.Reason == c.Reason
	}
	return false
}

// clearedEvents are the conditions whose end is news that no other condition brings.
var clearedEvents = map[string]struct{ reason, note string }{
	v1alpha1.ConditionLimitReached: {v1alpha1.ReasonLimitCleared, "No limit holds the policy back any more."},
	v1alpha1.ConditionBreakerOpen:  {v1alpha1.ReasonBreakerClosed, "The breaker is closed; the policy acts again, within the limits."},

	v1alpha1.ConditionLeasesUnreadable:       {v1alpha1.ReasonLeasesReadable, "The nodes' leases can be listed again."},
	v1alpha1.ConditionWitnessSilent:          {v1alpha1.ReasonWitnessesAnswer, "No witness of the Guardrail is silent any more."},
	v1alpha1.ConditionLeaseProtectionExpired: {v1alpha1.ReasonLeasesRenewed, "The nodes renew their leases again, or are gone."},
}

// Truncate keeps a note within what the Events API takes, 1 kB.
func Truncate(note string) string { return sample.Cut(note, 1000) }
