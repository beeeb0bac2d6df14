package v1alpha1

// Reasons of a WeederConfig's conditions and Events.
const (
	// ReasonServiceRecovered: a Service turned Ready, so its crash-looping dependents are deleted for a while.
	ReasonServiceRecovered = "ServiceRecovered"
	// ReasonPodDeleted: a crash-looping dependent was deleted.
	ReasonPodDeleted = "PodDeleted"
	// ReasonTooManyPodDeletions: the cluster-wide cap on pod deletions holds acts back.
	ReasonTooManyPodDeletions = "TooManyPodDeletions"
	// ReasonBudgetSpent: maxDeletionsPerWatch or maxRepeatsPerOwner holds acts back.
	ReasonBudgetSpent = "BudgetSpent"
)
