package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProbeConfigStatus is what the controller last saw and did. It is written when something turns, not at every run.
type ProbeConfigStatus struct {
	// observedGeneration is the generation of spec that this status describes; -1 before the first look.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Accepted, Ready, Reconciling, Stalled, InternalHealthy, ExternalHealthy, ProtectionActive, LeasesUnreadable, LeaseProtectionExpired,
	// LimitReached, BreakerOpen.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// internal is the state of the internal probe; not with a namespaceSelector.
	// +optional
	Internal *ProbeState `json:"internal,omitempty"`

	// external is the state of the external probe; not with a namespaceSelector.
	// +optional
	External *ProbeState `json:"external,omitempty"`

	// nodeLeases is what was last seen of the nodes' leases; not with a namespaceSelector.
	// +optional
	NodeLeases *NodeLeasesState `json:"nodeLeases,omitempty"`

	// scaled are up to 20 of the objects that are scaled down now, sorted. It reports; what is scaled back up is told by the
	// records on the objects.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Scaled []ScaledDependent `json:"scaled,omitempty"`

	// dependentKinds are the kinds of objects of which some may be scaled down for the config, sorted: those that it names, and
	// those that it named until nothing of them is. A kind is told here before the first of its objects is scaled down.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	DependentKinds []DependentKind `json:"dependentKinds,omitempty"`

	// targets counts the targets; 1 without a namespaceSelector.
	// +optional
	Targets *TargetCounts `json:"targets,omitempty"`

	// worstTargets are up to 20 of the targets that aren't healthy, sorted; only with a namespaceSelector.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	WorstTargets []TargetState `json:"worstTargets,omitempty"`

	// provenKubeconfigs are the external kubeconfigs that have worked since they were written, by namespace; the first 1,000. With one
	// that isn't among them nothing is scaled down. A manager that starts in the middle of an outage knows by them what it may act upon.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	ProvenKubeconfigs []ProvenKubeconfig `json:"provenKubeconfigs,omitempty"`

	// breakerID names the opening of the breaker, which is one for all ProbeConfigs, for its reset; "" when it is closed.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	BreakerID string `json:"breakerID,omitempty"`
}

// ProbeState is what the latest runs of one probe add up to.
type ProbeState struct {
	// successCount is how many runs in a row succeeded, at most successThreshold.
	// +optional
	SuccessCount int32 `json:"successCount"`
	// errorCount is how many failed in a row, at most failureThreshold.
	// +optional
	ErrorCount int32 `json:"errorCount"`
	// lastError is the class of the latest run that didn't succeed, such as Timeout; "" when there was none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	LastError string `json:"lastError,omitempty"`
	// lastErrorTime is when that run was.
	// +optional
	LastErrorTime *metav1.Time `json:"lastErrorTime,omitempty"`
}

// ProvenKubeconfig is an external kubeconfig that has worked.
type ProvenKubeconfig struct {
	// namespace of the Secret.
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// mark tells it from another: the first 16 digits of its SHA-256.
	// +kubebuilder:validation:MaxLength=16
	Mark string `json:"mark"`
}

// DependentKind is a kind of objects.
type DependentKind struct {
	// apiVersion of the kind, such as apps/v1.
	// +required
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind, such as Deployment.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
}

// NodeLeasesState is what was last seen of the nodes' leases.
type NodeLeasesState struct {
	// candidates counts the nodes with a lease that was ever renewed, but for those in leftOut.
	// +optional
	Candidates int32 `json:"candidates"`
	// expired counts those of them whose lease is expired, and was seen for long enough not to move.
	// +optional
	Expired int32 `json:"expired"`
	// skewed counts those whose clock is wrong: they renew their lease with times that lie in the future or long ago.
	// +optional
	Skewed int32 `json:"skewed,omitempty"`
	// leftOut counts the nodes that stopped renewing their lease for a reason of their own: their conditions tell it, nobody
	// manages them, or it is longer ago than maxProtectionDuration.
	// +optional
	LeftOut int32 `json:"leftOut,omitempty"`
}

// ScaledDependent is an object that is scaled down.
type ScaledDependent struct {
	// namespace of the object.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// ref names it.
	// +required
	Ref DependentRef `json:"ref"`
	// previousReplicas is the number of replicas that it gets back.
	// +required
	PreviousReplicas int32 `json:"previousReplicas"`
	// since is when it was scaled down.
	// +required
	Since metav1.Time `json:"since"`
}

// TargetCounts counts targets. One may count more than once.
type TargetCounts struct {
	// total of the targets, those without probes included.
	// +optional
	Total int32 `json:"total"`
	// probed are those whose probes run: their Secrets can be used, and their namespace is neither hibernated nor ending.
	// +optional
	Probed int32 `json:"probed"`
	// internalUnhealthy are those whose internal probe is unhealthy.
	// +optional
	InternalUnhealthy int32 `json:"internalUnhealthy"`
	// externalUnhealthy are those whose external probe, or whose nodes' leases, are unhealthy.
	// +optional
	ExternalUnhealthy int32 `json:"externalUnhealthy"`
	// scaledDown are those with an object that is scaled down.
	// +optional
	ScaledDown int32 `json:"scaledDown"`
	// unusable are those whose Secrets are missing or can't be used, and those whose external probe has never succeeded and fails.
	// +optional
	Unusable int32 `json:"unusable"`
	// undetermined are those that have had no clear answer for five minutes, or two pauses between runs where that is longer: 401,
	// 403 or 429, say. Nothing is scaled there.
	// +optional
	Undetermined int32 `json:"undetermined"`
	// vouched are those whose external probe fails, and for each of whose failures in a row a Guardrail's witnesses vouch: no breaker
	// holds them back.
	// +optional
	Vouched int32 `json:"vouched"`
}

// TargetState is a target that isn't healthy.
type TargetState struct {
	// namespace of the target.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// reason, in CamelCase.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason"`
	// message says more.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
	// since is when it turned so.
	// +required
	Since metav1.Time `json:"since"`
}
