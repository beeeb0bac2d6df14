package v1alpha1

// Condition types that every kind shares. A positive type is always there once observed; Reconciling, Stalled,
// LimitReached and BreakerOpen are there only while True.
const (
	// ConditionAccepted says whether the rules admit the object at its observed generation. It reports; it authorises nothing.
	ConditionAccepted = "Accepted"
	// ConditionReady says whether the policy is operative, never whether everything it watches is healthy.
	ConditionReady = "Ready"
	// ConditionReconciling says that the controller is still working towards Ready.
	ConditionReconciling = "Reconciling"
	// ConditionStalled says that a human must change something before the policy can work.
	ConditionStalled = "Stalled"
	// ConditionLimitReached says that a limit holds acts back.
	ConditionLimitReached = "LimitReached"
	// ConditionBreakerOpen says that too many targets match at once to be believed; nothing new is done until a reset, or, for
	// ProbeConfigs, until most are healthy again, and for HealthCheckRegistrations until all that was held back is True.
	ConditionBreakerOpen = "BreakerOpen"
	// ConditionWitnessSilent says of a Guardrail that some of its witnesses don't answer. It is there only while True.
	ConditionWitnessSilent = "WitnessSilent"
)

// Reasons of conditions and Events.
const (
	// ReasonAdmitted: every rule admits the object.
	ReasonAdmitted = "Admitted"
	// ReasonRuleViolated: a rule refuses the stored object; the message names it.
	ReasonRuleViolated = "RuleViolated"
	// ReasonRulesNotEvaluated: a rule could not be evaluated, so nothing is authorised.
	ReasonRulesNotEvaluated = "RulesNotEvaluated"
	// ReasonOperative: the policy acts as declared.
	ReasonOperative = "Operative"
	// ReasonObserving: mode is Observe; the policy only reports.
	ReasonObserving = "Observing"
	// ReasonPaused: a Guardrail pauses new acts.
	ReasonPaused = "Paused"
	// ReasonGuardrailsUnknown: it can't be known any more what Guardrails forbid, which pauses new acts; the message says why.
	ReasonGuardrailsUnknown = "GuardrailsUnknown"
	// ReasonStarting: caches or clocks aren't trusted yet.
	ReasonStarting = "Starting"
	// ReasonRetrying: a write failed and is tried again.
	ReasonRetrying = "Retrying"
	// ReasonUndoing: the object is being deleted, and what it did is being undone.
	ReasonUndoing = "Undoing"
	// ReasonForbidden: the manager's account lacks a permission; the message names it.
	ReasonForbidden = "Forbidden"
	// ReasonInvalidSpec: the stored spec can't be read; the message says where.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonTooManyTainted: the cluster-wide cap on tainted nodes holds acts back.
	ReasonTooManyTainted = "TooManyTainted"
	// ReasonTooManyEvicting: the cluster-wide cap on evicting nodes, or its pace, holds acts back.
	ReasonTooManyEvicting = "TooManyEvicting"
	// ReasonControlPlaneLimit: another control-plane node is tainted, or it is the last one that is Ready.
	ReasonControlPlaneLimit = "ControlPlaneLimit"
	// ReasonMaxNodesReached: spec.maxNodes holds acts back.
	ReasonMaxNodesReached = "MaxNodesReached"
	// ReasonTooManyMatchAtOnce: the breaker opened.
	ReasonTooManyMatchAtOnce = "TooManyMatchAtOnce"
	// ReasonLimitCleared: no limit holds acts back any more.
	ReasonLimitCleared = "LimitCleared"
	// ReasonBreakerClosed: someone reset the breaker, or it closed by itself.
	ReasonBreakerClosed = "BreakerClosed"
	// ReasonNoAnswer: no TLS handshake with a witness came about.
	ReasonNoAnswer = "NoAnswer"
	// ReasonWitnessesAnswer: all witnesses answer again.
	ReasonWitnessesAnswer = "WitnessesAnswer"
	// ReasonTainted: a node got or changed the taint.
	ReasonTainted = "NodeTainted"
	// ReasonUntainted: a node lost the taint.
	ReasonUntainted = "NodeUntainted"
	// ReasonRecordUnreadable: a node's ownership record can't be read, so nothing is done and nothing undone there.
	ReasonRecordUnreadable = "RecordUnreadable"
)

const (
	// AnnotationOwnedTaints on a Node records which of its taints Autohealer set, for which set and since when.
	AnnotationOwnedTaints = "autohealer.resourcestack.com/owned-taints"
	// AnnotationOwnedConditions on the target of a HealthCheckRegistration names, by commas, which of its conditions Autohealer
	// writes. It is there before the first of them, and goes after the last.
	AnnotationOwnedConditions = "autohealer.resourcestack.com/owned-conditions"
	// AnnotationInstallation on the ValidatingWebhookConfiguration of Autohealer marks the cluster as one installation's: its namespace
	// and that namespace's UID, as NAME/UID. The manager writes it; another installation writes nothing while that namespace is there.
	AnnotationInstallation = "autohealer.resourcestack.com/installation"

	// AnnotationHoldUntil on a Node, on a pod or its Deployment, StatefulSet or DaemonSet, or on a ProbeConfig's dependent keeps
	// Autohealer from doing anything new to it until that time (RFC 3339), at most seven days ahead. Undo goes on. A value that
	// is no time holds until it is corrected.
	AnnotationHoldUntil = "autohealer.resourcestack.com/hold-until"
	// AnnotationHoldReason beside it says why, for people.
	AnnotationHoldReason = "autohealer.resourcestack.com/hold-reason"
	// AnnotationExceptedRules on a policy lists, by commas, the rules that a GuardrailException lifts for it. The generated
	// ValidatingAdmissionPolicies, which can't see exceptions, leave these to the webhook; it lifts nothing by itself.
	AnnotationExceptedRules = "autohealer.resourcestack.com/excepted-rules"
	// AnnotationResetBreaker on a policy resets the breaker whose id is its value.
	AnnotationResetBreaker = "autohealer.resourcestack.com/reset-breaker"
	// FinalizerUndo keeps a deleted policy until what it did is undone.
	FinalizerUndo = "autohealer.resourcestack.com/undo"
)
