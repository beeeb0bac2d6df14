package v1alpha1

// Condition types of a ProbeConfig.
const (
	// ConditionInternalHealthy says what the internal probe adds up to: Unknown below both thresholds.
	ConditionInternalHealthy = "InternalHealthy"
	// ConditionExternalHealthy says the same of the external probe and, where they are looked at, of the nodes' leases.
	ConditionExternalHealthy = "ExternalHealthy"
	// ConditionProtectionActive says whether anything is scaled down for the config.
	ConditionProtectionActive = "ProtectionActive"
	// ConditionLeasesUnreadable says that nodes' leases couldn't be listed failureThreshold times in a row, so that the
	// external probe decides alone, once what was seen last of them holds nothing back any more. It is there only while True; its
	// reason is the class of what went wrong, such as Forbidden.
	ConditionLeasesUnreadable = "LeasesUnreadable"
	// ConditionLeaseProtectionExpired says that so many nodes haven't renewed their leases for maxProtectionDuration that the dependents
	// would be scaled down for them, and aren't any more. It is there only while True.
	ConditionLeaseProtectionExpired = "LeaseProtectionExpired"
)

// Reasons of a ProbeConfig's conditions and Events.
const (
	// ReasonProbeSucceeds and ReasonProbeFails: the threshold of the probe was reached.
	ReasonProbeSucceeds = "ProbeSucceeds"
	ReasonProbeFails    = "ProbeFails"
	// ReasonBelowThreshold: neither threshold is reached.
	ReasonBelowThreshold = "BelowThreshold"
	// ReasonLeasesExpired: too many nodes don't renew their leases.
	ReasonLeasesExpired = "LeasesExpired"
	// ReasonMaxProtectionDurationExceeded: the nodes' leases expired longer ago than a protection may last.
	ReasonMaxProtectionDurationExceeded = "MaxProtectionDurationExceeded"
	// ReasonLeasesRenewed: the nodes renew their leases again, or are gone.
	ReasonLeasesRenewed = "LeasesRenewed"
	// ReasonLeasesReadable: the nodes' leases can be listed again.
	ReasonLeasesReadable = "LeasesReadable"
	// ReasonUndetermined: the probe has had no clear answer for long.
	ReasonUndetermined = "Undetermined"
	// ReasonSecretUnusable: a Secret is missing, forbidden, or no kubeconfig that is safe to use.
	ReasonSecretUnusable = "SecretUnusable"
	// ReasonKubeconfigUntried: the external probe fails, and has never succeeded with this kubeconfig, so nothing is scaled down.
	ReasonKubeconfigUntried = "KubeconfigUntried"
	// ReasonHibernated: the namespace is annotated as hibernated, so nothing is probed.
	ReasonHibernated = "Hibernated"
	// ReasonScaledDown and ReasonScaledUp: an object was scaled.
	ReasonScaledDown = "ScaledDown"
	ReasonScaledUp   = "ScaledUp"
	// ReasonScaledByOthers: someone else scaled up what was scaled down, and it is left so until the outage is over.
	ReasonScaledByOthers = "ScaledByOthers"
	// ReasonNothingScaledDown: nothing is scaled down for the config.
	ReasonNothingScaledDown = "NothingScaledDown"
	// ReasonNotRestored: an object isn't scaled, because someone else scaled it or asks to leave it alone.
	ReasonNotRestored = "NotRestored"
	// ReasonDependentMissing: an object that isn't optional isn't there.
	ReasonDependentMissing = "DependentMissing"
	// ReasonScalingTimedOut: an object didn't have its replicas in time; the next level waits.
	ReasonScalingTimedOut = "ScalingTimedOut"
	// ReasonTooManyScaledDown: the cap on targets that are scaled down holds acts back.
	ReasonTooManyScaledDown = "TooManyScaledDown"
	// ReasonTooManyFailTogether: so many targets turned unhealthy together that the cause is more likely on our side.
	ReasonTooManyFailTogether = "TooManyFailTogether"
)

const (
	// AnnotationOriginalReplicas on an object records how many replicas Autohealer took from it, and for which ProbeConfig.
	AnnotationOriginalReplicas = "autohealer.resourcestack.com/original-replicas"
	// LabelScaledDown, with the value "true", is on each object with that annotation, so that one can list what is scaled down.
	LabelScaledDown = "autohealer.resourcestack.com/scaled-down"
	// AnnotationIgnoreScaling with the value "true", "True", "TRUE", "t", "T" or "1" on an object keeps Autohealer from scaling it.
	AnnotationIgnoreScaling = "autohealer.resourcestack.com/ignore-scaling"
	// AnnotationMeltdownProtection is Gardener's: its reconciliation leaves the replicas of an object with it alone.
	AnnotationMeltdownProtection = "dependency-watchdog.gardener.cloud/meltdown-protection-active"
	// AnnotationHibernated on a Namespace, with any value but "false", stops probing there.
	AnnotationHibernated = "autohealer.resourcestack.com/hibernated"
)
