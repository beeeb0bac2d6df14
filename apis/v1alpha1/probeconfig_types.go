package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProbeConfigSpec says which API server is probed, how, and what is scaled down while only its outer side fails.
// +kubebuilder:validation:XValidation:rule="!has(self.namespaceSelector) || !has(self.serviceAccountName)",message="serviceAccountName speaks for the config's own namespace only, and namespaceSelector needs Autohealer's own rights; remove one of them"
// +kubebuilder:validation:XValidation:rule="self.internalKubeConfigSecretName != self.externalKubeConfigSecretName",message="internalKubeConfigSecretName and externalKubeConfigSecretName must be two Secrets: one for each way to the API server"
type ProbeConfigSpec struct {
	// internalKubeConfigSecretName is the Secret, in the target's namespace, whose key `kubeconfig` reaches the API server
	// from inside the network of its control plane.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	InternalKubeConfigSecretName string `json:"internalKubeConfigSecretName"`

	// externalKubeConfigSecretName is the Secret, in the target's namespace, whose key `kubeconfig` reaches the API server
	// the way its nodes do.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ExternalKubeConfigSecretName string `json:"externalKubeConfigSecretName"`

	// probeInterval is the time from the start of one run of the probes to the start of the next, before jitter. From 1s to
	// 1h. Default: 10s.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^(0*[0-9]{1,4}([.][0-9]+)?h|0*[0-9]{1,6}([.][0-9]+)?m|0*[0-9]{1,8}([.][0-9]+)?s|0*[0-9]{1,11}([.][0-9]+)?ms)+$') || duration(self) >= duration('1s') && duration(self) <= duration('1h')`,message="must be at least 1s and at most 1h"
	ProbeInterval Duration `json:"probeInterval,omitempty"`

	// initialDelay is the time before the first run, of a new config and after a restart; first runs are spread over one
	// probeInterval more. At most 1h. Default: 30s.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^(0*[0-9]{1,4}([.][0-9]+)?h|0*[0-9]{1,6}([.][0-9]+)?m|0*[0-9]{1,8}([.][0-9]+)?s|0*[0-9]{1,11}([.][0-9]+)?ms)+$') || duration(self) <= duration('1h')`,message="must be at most 1h"
	InitialDelay Duration `json:"initialDelay,omitempty"`

	// probeTimeout bounds one probe, from its start to the whole answer. More than 0s, and less than probeInterval.
	// Default: 5s, or half of a probeInterval that is shorter than 10s.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^(0*[0-9]{1,4}([.][0-9]+)?h|0*[0-9]{1,6}([.][0-9]+)?m|0*[0-9]{1,8}([.][0-9]+)?s|0*[0-9]{1,11}([.][0-9]+)?ms)+$') || duration(self) > duration('0s') && duration(self) <= duration('1m')`,message="must be more than 0s and at most 1m"
	ProbeTimeout Duration `json:"probeTimeout,omitempty"`

	// successThreshold is how many successes in a row make a probe healthy. Default: 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SuccessThreshold *int32 `json:"successThreshold,omitempty"`

	// failureThreshold is how many failures in a row make a probe unhealthy. Default: 3.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	FailureThreshold *int32 `json:"failureThreshold,omitempty"`

	// internalProbeFailureBackoffDuration is the time to the next run while the internal probe is unhealthy, or after the
	// API server answered that there are too many requests without saying how long to wait. At most 1h. Default: 30s.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^(0*[0-9]{1,4}([.][0-9]+)?h|0*[0-9]{1,6}([.][0-9]+)?m|0*[0-9]{1,8}([.][0-9]+)?s|0*[0-9]{1,11}([.][0-9]+)?ms)+$') || duration(self) <= duration('1h')`,message="must be at most 1h"
	InternalProbeFailureBackoffDuration Duration `json:"internalProbeFailureBackoffDuration,omitempty"`

	// backoffJitterFactor makes each probeInterval and each back-off longer by a random share, from none to this part of it.
	// From 0 to 1. Default: 0.2.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	BackoffJitterFactor *float64 `json:"backoffJitterFactor,omitempty"`

	// dependentResourceInfos are the controllers that would harm a cluster whose nodes can't reach its API server.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(d, self.exists_one(o, o.ref == d.ref))",message="names one object twice"
	DependentResourceInfos []DependentResourceInfo `json:"dependentResourceInfos"`

	// namespaceSelector makes every namespace with these labels a target, with Secrets and dependents of its own, instead of
	// the config's. Only in Autohealer's own namespace. No default: the config's own namespace.
	// +optional
	NamespaceSelector *LabelSelector `json:"namespaceSelector,omitempty"`

	// nodeLeases also looks at the leases that the nodes renew, after each external probe that succeeds: most of them
	// expired counts as a failure. The user of the external kubeconfig must be allowed to list nodes, and leases in
	// kube-node-lease; while they can't be listed the external probe decides alone, once what was seen last of them is older
	// than maxProtectionDuration. No default: leases aren't looked at.
	// +optional
	NodeLeases *NodeLeases `json:"nodeLeases,omitempty"`

	// annotateMeltdownProtection sets the annotation dependency-watchdog.gardener.cloud/meltdown-protection-active on what is scaled down,
	// until it is given back: Gardener's reconciliation of a Shoot then leaves its replicas alone. Default: false.
	// +optional
	AnnotateMeltdownProtection *bool `json:"annotateMeltdownProtection,omitempty"`

	// mode is Enforce or Observe. Observe probes and reports, and scales nothing. Default: Enforce.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// serviceAccountName is the ServiceAccount, in the config's namespace, that must be allowed to get the two Secrets and to
	// update the scale of the dependents there. Not asked in Autohealer's own namespace. Default: default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// DependentResourceInfo is an object that is scaled down while the nodes can't reach their API server, and back up after.
type DependentResourceInfo struct {
	// ref names the object, in the target's namespace. It needs a scale subresource.
	// +required
	Ref DependentRef `json:"ref"`

	// optional objects may be missing. One that is missing and isn't optional is reported; the others are scaled all the
	// same. Default: false.
	// +optional
	Optional *bool `json:"optional,omitempty"`

	// scaleUp says when it is scaled back up, among the others.
	// +required
	ScaleUp *ScaleInfo `json:"scaleUp"`

	// scaleDown says when it is scaled down, among the others.
	// +required
	ScaleDown *ScaleInfo `json:"scaleDown"`
}

// DependentRef names an object of the target's namespace.
type DependentRef struct {
	// apiVersion of the object, such as apps/v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind of the object, such as Deployment.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ScaleInfo is an object's place in the order of scaling.
type ScaleInfo struct {
	// level: those of a lower level are done before those of a higher one begin; those of one level go together.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Level int32 `json:"level"`

	// initialDelay is the time from the start of the level until the object is scaled. At most 10m. Default: 0s.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^(0*[0-9]{1,4}([.][0-9]+)?h|0*[0-9]{1,6}([.][0-9]+)?m|0*[0-9]{1,8}([.][0-9]+)?s|0*[0-9]{1,11}([.][0-9]+)?ms)+$') || duration(self) <= duration('10m')`,message="must be at most 10m"
	InitialDelay Duration `json:"initialDelay,omitempty"`

	// timeout is how long the object may take, after initialDelay, to have the replicas that were asked for. When it takes
	// longer, the next level doesn't begin; the next run of the probes tries again. More than 0s and at most 10m.
	// Default: 30s.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^(0*[0-9]{1,4}([.][0-9]+)?h|0*[0-9]{1,6}([.][0-9]+)?m|0*[0-9]{1,8}([.][0-9]+)?s|0*[0-9]{1,11}([.][0-9]+)?ms)+$') || duration(self) > duration('0s') && duration(self) <= duration('10m')`,message="must be more than 0s and at most 10m"
	Timeout Duration `json:"timeout,omitempty"`
}

// NodeLeases says when nodes that don't renew their leases count as a failure.
type NodeLeases struct {
	// failureFraction is the part of the nodes with a lease, more than 0 and at most 1, whose expiry counts as a failure.
	// Default: 0.6.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	FailureFraction *float64 `json:"failureFraction,omitempty"`

	// monitorGraceDuration is the node-monitor-grace-period of the probed cluster's kube-controller-manager. A lease counts
	// as expired after three quarters of it, once it was seen not to move for a quarter of it, 12s at least. At most 1h.
	// Default: 50s.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^(0*[0-9]{1,4}([.][0-9]+)?h|0*[0-9]{1,6}([.][0-9]+)?m|0*[0-9]{1,8}([.][0-9]+)?s|0*[0-9]{1,11}([.][0-9]+)?ms)+$') || duration(self) <= duration('1h')`,message="must be at most 1h"
	MonitorGraceDuration Duration `json:"monitorGraceDuration,omitempty"`

	// minCandidates is the number of nodes with a lease below which leases say nothing. Default: 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MinCandidates *int32 `json:"minCandidates,omitempty"`

	// maxProtectionDuration is for how long nodes that don't renew their leases hold the dependents down while the external
	// probe succeeds: a lease that was renewed longer ago counts as a dead node's. At least twice monitorGraceDuration and at
	// most 24h. Default: 1h, or twice a monitorGraceDuration that is longer than 30m.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^(0*[0-9]{1,4}([.][0-9]+)?h|0*[0-9]{1,6}([.][0-9]+)?m|0*[0-9]{1,8}([.][0-9]+)?s|0*[0-9]{1,11}([.][0-9]+)?ms)+$') || duration(self) > duration('0s') && duration(self) <= duration('24h')`,message="must be more than 0s and at most 24h"
	MaxProtectionDuration Duration `json:"maxProtectionDuration,omitempty"`
}

// ProbeConfig probes an API server from two sides. While it answers inside and not to its nodes, these can't renew their
// leases, and controllers would take a healthy cluster apart; so these controllers are scaled down until it recovers.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=prc,categories=autohealer
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Internal",type=string,JSONPath=`.status.conditions[?(@.type=="InternalHealthy")].status`
// +kubebuilder:printcolumn:name="External",type=string,JSONPath=`.status.conditions[?(@.type=="ExternalHealthy")].status`
// +kubebuilder:printcolumn:name="Protection",type=string,JSONPath=`.status.conditions[?(@.type=="ProtectionActive")].status`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.conditions[?(@.type=="ProtectionActive")].lastTransitionTime`
// +kubebuilder:printcolumn:name="Breaker",type=string,JSONPath=`.status.conditions[?(@.type=="BreakerOpen")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ProbeConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the declared behaviour.
	// +required
	Spec ProbeConfigSpec `json:"spec"`

	// status is what the controller last saw and did.
	// +optional
	// +kubebuilder:default={observedGeneration:-1}
	Status ProbeConfigStatus `json:"status,omitempty"`
}

// ProbeConfigList is a list of ProbeConfigs.
// +kubebuilder:object:root=true
type ProbeConfigList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items of the list.
	Items []ProbeConfig `json:"items"`
}
