package policy

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
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

// Accepted is the condition that tells what the rules said.
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

// Stuck is what a human must change.
type Stuck struct{ Reason, Message string }

// Pause is what pauses all new acts; the zero value is nothing.
type Pause struct {
	// By names it; "" when nothing does.
	By string
	// Frozen: it stops undo, too.
	Frozen bool
	// Unknown: nobody paused, but what Guardrails forbid isn't known any more.
	Unknown bool
}

// Conditions is what the conditions that every kind has are made from.
type Conditions struct {
	Acceptance
	// Changes are what the kind changes, and reads first, in the plural: "nodes".
	Changes string
	// Synced: caches are full, so that counts mean something.
	Synced  bool
	Trouble *Trouble
	// Stuck says what a human must change before anything can be done; no Reason when nothing is.
	Stuck Stuck
	// Deleting: the policy goes once all that it did is undone. Undoing says what that waits for; "" when nobody knows.
	Deleting bool
	Undoing  string
	Paused   Pause
	// Observes: mode is Observe. Says tells in numbers what the policy does, or would do.
	Observes bool
	Says     string
}

// Put writes Accepted, Ready, Reconciling and Stalled. It is pure: the same state gives the same conditions, so that
// nothing is written when nothing changed.
func (s Conditions) Put(conditions *[]metav1.Condition, generation int64) {
	Set(conditions, generation, s.Accepted())
	Set(conditions, generation, s.ready())
	SetWhileTrue(conditions, generation, s.reconciling())
	SetWhileTrue(conditions, generation, s.stalled())
}

func (s Conditions) ready() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOperative, Message: s.Says}
	switch {
	case s.Deleting:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonUndoing, s.undoing()
	case s.Rejected():
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, s.Accepted().Reason, "Nothing new is done while the rules refuse it; see Accepted."
	case s.Trouble.Forbidden():
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonForbidden, "Autohealer's account may not change "+s.Changes+"; see Stalled."
	case s.Stuck.Reason != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, s.Stuck.Reason, "Nothing can be done; see Stalled."
	case !s.Synced:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonStarting, s.starting()
	case s.Paused.Unknown:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonGuardrailsUnknown, s.paused()
	case s.Trouble.Retrying():
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonRetrying, "A write failed and is tried again: "+s.Trouble.Err.Error()
	case s.Paused.Frozen:
		c.Reason, c.Message = v1alpha1.ReasonFrozen, s.Paused.By+". "+s.Says
	case s.Observes:
		c.Reason = v1alpha1.ReasonObserving
	case s.Paused.By != "":
		c.Reason, c.Message = v1alpha1.ReasonPaused, s.paused()
	}
	return c
}

func (s Conditions) paused() string { return s.Paused.By + "; undo goes on. " + s.Says }

func (s Conditions) reconciling() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReconciling}
	switch {
	case s.Deleting:
		c.Reason, c.Message = v1alpha1.ReasonUndoing, s.undoing()
	case s.Rejected() || s.Trouble.Forbidden() || s.Stuck.Reason != "":
	case !s.Synced:
		c.Reason, c.Message = v1alpha1.ReasonStarting, s.starting()
	case s.Paused.Unknown:
		c.Reason, c.Message = v1alpha1.ReasonGuardrailsUnknown, s.Paused.By
	case s.Trouble.Retrying():
		c.Reason, c.Message = v1alpha1.ReasonRetrying, s.Trouble.Err.Error()
	}
	return c
}

// undoing says what a deletion waits for.
func (s Conditions) undoing() string {
	says := s.Undoing
	if says == "" {
		says = "It is deleted once all that it did is undone."
	}
	if s.Paused.Frozen {
		says = s.Paused.By + ". " + says
	}
	return says
}

func (s Conditions) starting() string { return "It begins once all " + s.Changes + " are read." }

func (s Conditions) stalled() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionStalled}
	switch {
	case s.Rejected() && !s.Deleting: // what rules say holds up no deletion
		c.Reason, c.Message = s.Accepted().Reason, s.Accepted().Message
	case s.Trouble.Forbidden():
		c.Reason, c.Message = v1alpha1.ReasonForbidden, s.Trouble.Err.Error()
	default:
		c.Reason, c.Message = s.Stuck.Reason, s.Stuck.Message
	}
	return c
}

// Sentence puts clauses together. What others' errors end with is no second full stop.
func Sentence(clauses ...string) string {
	for i := range clauses {
		clauses[i] = strings.TrimSuffix(clauses[i], ".")
	}
	return strings.Join(clauses, "; ") + "."
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
