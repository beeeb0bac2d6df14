package v1alpha1

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
