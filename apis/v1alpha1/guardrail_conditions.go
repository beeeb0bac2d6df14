package v1alpha1

// Reasons that only Guardrails and GuardrailExceptions have.
const (
	// ReasonInvalidRule: a rule of the Guardrail doesn't compile; the message has the position.
	ReasonInvalidRule = "InvalidRule"
	// ReasonResumed: no Guardrail pauses new acts any more. Only an Event has it.
	ReasonResumed = "Resumed"
	// ReasonActive: the exception lifts its rules now.
	ReasonActive = "Active"
	// ReasonWaiting: the target isn't stored, or not yet with the spec that the exception is for.
	ReasonWaiting = "Waiting"
	// ReasonExpired: the exception's time is over.
	ReasonExpired = "Expired"
	// ReasonSpecChanged: the target had the spec that the exception is for, and has another one now.
	ReasonSpecChanged = "SpecChanged"
	// ReasonTargetMissing: the target was there and is gone.
	ReasonTargetMissing = "TargetMissing"
	// ReasonRuleNotExceptable: a rule that the exception names doesn't exist, or may not be lifted.
	ReasonRuleNotExceptable = "RuleNotExceptable"
)
