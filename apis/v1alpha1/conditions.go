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

// Condition types of an OutlierPolicy's targets, as GEP-713 has them; Accepted is every kind's.
const (
	// ConditionProgrammed says whether Envoys have the target's clusters as the policy wants them.
	ConditionProgrammed = "Programmed"
	// ConditionAtRisk says that the policy may eject every host that a target has left. It is there only while True.
	ConditionAtRisk = "AtRisk"
	// ConditionClusterRemovalDelayed says that Envoys keep clusters whose Services or routes are gone, because too many would go at a time. It is there
	// only while True.
	ConditionClusterRemovalDelayed = "ClusterRemovalDelayed"
	// ConditionEjectionsUnknown says that Envoys are asked whom they have ejected, and that nobody can tell. It is there only while
	// True.
	ConditionEjectionsUnknown = "EjectionsUnknown"
)

// Reasons of an OutlierPolicy's conditions and Events.
const (
	// ReasonPolicyAccepted: the policy holds for the target.
	ReasonPolicyAccepted = "Accepted"
	// ReasonConflicted: an older policy has the same target.
	ReasonConflicted = "Conflicted"
	// ReasonInvalid: the rules refuse the policy.
	ReasonInvalid = "Invalid"
	// ReasonTargetNotFound: there is no such Service, port, route or backend.
	ReasonTargetNotFound = "TargetNotFound"
	// ReasonOverridden: more specific policies hold for all of the target.
	ReasonOverridden = "Overridden"
	// ReasonProgrammed: every connected Envoy has it.
	ReasonProgrammed = "Programmed"
	// ReasonPending: some connected Envoys haven't acknowledged it yet.
	ReasonPending = "Pending"
	// ReasonNotServed: this installation serves no Envoys.
	ReasonNotServed = "NotServed"
	// ReasonNoProxies: no Envoy that may see it is connected.
	ReasonNoProxies = "NoProxies"
	// ReasonOverTLS: the route sends to all of it over TLS, so there is no cluster for it.
	ReasonOverTLS = "OverTLS"
	// ReasonNoClusters: the policy holds for no cluster.
	ReasonNoClusters = "NoClusters"
	// ReasonMayNotPatch: Autohealer has no right to write EnvoyPatchPolicies beside the Gateway.
	ReasonMayNotPatch = "MayNotPatch"
	// ReasonNacked: an Envoy refused it; the message is Envoy's.
	ReasonNacked = "Nacked"
	// ReasonEjectsEverything: all ready hosts of a target may be ejected at once.
	ReasonEjectsEverything = "EjectsEverything"
	// ReasonTooManyRemovals: more than a tenth of all clusters would go at once.
	ReasonTooManyRemovals = "TooManyRemovals"
	// ReasonEnvoysNotAnswering: some Envoy doesn't say whom it has ejected.
	ReasonEnvoysNotAnswering = "EnvoysNotAnswering"
	// ReasonNoEnvoys: there is no Envoy to ask.
	ReasonNoEnvoys = "NoEnvoys"
	// ReasonEnvoysNotAsked: some Envoy that may see it isn't asked whom it has ejected.
	ReasonEnvoysNotAsked = "EnvoysNotAsked"
	// ReasonHostsEjected: Envoys ejected hosts.
	ReasonHostsEjected = "HostsEjected"
	// ReasonHostsReturned: Envoys took hosts back.
	ReasonHostsReturned = "HostsReturned"
)

const (
	// LabelEnvoyPatches, with the value "true", on a Gateway of Envoy Gateway's has Autohealer keep an EnvoyPatchPolicy beside it, by which its
	// Envoys detect outliers.
	LabelEnvoyPatches = "autohealer.resourcestack.com/envoy-patches"
	// AnnotationPatchedFor on such an EnvoyPatchPolicy records for which OutlierPolicies each cluster is patched. What lacks it isn't Autohealer's.
	AnnotationPatchedFor = "autohealer.resourcestack.com/patched-for"
)
