package v1alpha1

// ConditionTargetsHealthy of a HealthCheckRegistration says whether all targets are healthy. It doesn't change Ready: a sick
// target is no mistake of the registration's.
const ConditionTargetsHealthy = "TargetsHealthy"

// Reasons that HealthCheckRegistrations have beside those that every kind has.
const (
	// ReasonAllHealthy: every condition of every target is True.
	ReasonAllHealthy = "AllHealthy"
	// ReasonSomeUnhealthy: a condition of some target isn't True.
	ReasonSomeUnhealthy = "SomeUnhealthy"
	// ReasonKindUnusable: the targets can't be read, or take no conditions; the message says why.
	ReasonKindUnusable = "KindUnusable"
	// ReasonTooManyTurnFalse: the breaker opened.
	ReasonTooManyTurnFalse = "TooManyTurnFalse"
	// ReasonConditionChanged: a condition of a target changed its status.
	ReasonConditionChanged = "ConditionChanged"
	// ReasonConditionRemoved: a condition of a target was removed.
	ReasonConditionRemoved = "ConditionRemoved"
)
