package v1alpha1

// Reasons that only Guardrails and GuardrailExceptions have.
const (
	// ReasonInvalidRule: a rule of the Guardrail doesn't compile; the message has the position.
	ReasonInvalidRule = "InvalidRule"
	// ReasonFrozen: a Guardrail stops everything, undo included.
	ReasonFrozen = "Frozen"
	// ReasonResumed: no Guardrail pauses new acts any more, nor freezes everything. Only an Event has it.
	ReasonResumed = "Resumed"
	// ReasonActive: the exception lifts its rules now.
	ReasonActive = "Active"
	// ReasonWaiting: the target isn't stored, or not yet with the spec that the exception is for, or a rule that it names isn't there yet.
	ReasonWaiting = "Waiting"
	// ReasonExpired: the exception's time is over.
	ReasonExpired = "Expired"
	// ReasonSpecChanged: the target had the spec that the exception is for, and has another one now.
	ReasonSpecChanged = "SpecChanged"
	// ReasonTargetMissing: the target was there and is gone.
	ReasonTargetMissing = "TargetMissing"
	// ReasonRuleNotExceptable: a rule that the exception names may not be lifted, or doesn't exist any more.
	ReasonRuleNotExceptable = "RuleNotExceptable"
)

const (
	// FreezeGuardrail is the name of the Guardrail that `kubectl autohealer freeze` makes and `thaw` deletes. Made with
	// spec.frozen and nothing else it passes the webhook unjudged, so that it can be made while no webhook answers.
	FreezeGuardrail = "autohealer-freeze"
	// AnnotationFrozenBy on it says who froze, and AnnotationFreezeReason why. They are for people; nothing goes by them.
	AnnotationFrozenBy     = "autohealer.resourcestack.com/frozen-by"
	AnnotationFreezeReason = "autohealer.resourcestack.com/freeze-reason"
)
