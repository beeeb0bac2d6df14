package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HealthCheckRegistrationSpec says which checks of what depends on an object decide which of its conditions.
// +kubebuilder:validation:XValidation:rule="!self.checks.exists(c, has(c.cluster) && c.cluster == 'Shoot' || has(c.evaluate.nodes)) || has(self.shootKubeconfig)",message="a check looks at the shoot; say in shootKubeconfig which Secret has its kubeconfig"
type HealthCheckRegistrationSpec struct {
	// target selects the objects that get the conditions.
	// +required
	Target HealthCheckTarget `json:"target"`

	// syncPeriod is how often a target's checks run when nothing changes, give or take a tenth. From 5s to 1h. Default: 30s.
	// +optional
	SyncPeriod Duration `json:"syncPeriod,omitempty"`

	// checkTimeout bounds one check. More than 0s, and at most syncPeriod. Default: 10s, or half of syncPeriod where that is
	// less.
	// +optional
	CheckTimeout Duration `json:"checkTimeout,omitempty"`

	// shootKubeconfig names the Secret in the target's namespace that has the kubeconfig of the shoot. Needed for checks of
	// cluster Shoot.
	// +optional
	ShootKubeconfig *SecretKey `json:"shootKubeconfig,omitempty"`

	// suspendWhen is a CEL expression over target. While it is true the target isn't checked, and its conditions stay as they
	// are. No default: never.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	SuspendWhen string `json:"suspendWhen,omitempty"`

	// output is the shape of the conditions. Auto: as the target's CRD declares them. Gardener: with lastUpdateTime, codes and
	// status Progressing. Conditions: metav1.Condition. RegistrationOnly: none are written, and this object's status alone
	// tells. Default: Auto.
	// +optional
	Output HealthCheckOutput `json:"output,omitempty"`

	// removeConditionTypes are removed from targets where health checks wrote them, such as those of a library that this
	// registration replaces. What this object's own checks wrote goes with them, without being named here.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	RemoveConditionTypes []string `json:"removeConditionTypes,omitempty"`

	// checks of a condition type decide it together: a False makes it False, and so does Progressing that takes too long; else an
	// error makes it Unknown, else Progressing makes it Progressing, else it is True.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Checks []HealthCheck `json:"checks"`

	// mode is Enforce or Observe. Observe reports what the conditions would be and writes none. Default: Enforce.
	// +optional
	Mode Mode `json:"mode,omitempty"`
}

// HealthCheckTarget selects objects of one kind.
// +kubebuilder:validation:XValidation:rule="self.apiVersion == oldSelf.apiVersion && self.kind == oldSelf.kind",message="the kind of the targets can't be changed; make another registration"
type HealthCheckTarget struct {
	// apiVersion of the kind, such as extensions.gardener.cloud/v1alpha1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z]([-a-z0-9]*[a-z0-9])?$')`,message="write the kind's group and version, such as apps/v1, or v1 alone where it has no group"
	APIVersion string `json:"apiVersion"`
	// kind, such as Worker.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// type that the object has at typePath. No default: any.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Type string `json:"type,omitempty"`
	// typePath is where the object has its type, as field names with dots. Default: spec.type.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	TypePath string `json:"typePath,omitempty"`
	// selector selects by labels. No default: all.
	// +optional
	Selector *LabelSelector `json:"selector,omitempty"`
	// namespaceSelector selects by the labels of the object's namespace. No default: all.
	// +optional
	NamespaceSelector *LabelSelector `json:"namespaceSelector,omitempty"`
}

// SecretKey is one key of a Secret.
type SecretKey struct {
	// secretName is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`
	// key in it. Default: kubeconfig.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// HealthCheckOutput is the shape of conditions.
// +kubebuilder:validation:Enum=Auto;Gardener;Conditions;RegistrationOnly
type HealthCheckOutput string

const (
	// OutputAuto is what the target's CRD declares.
	OutputAuto HealthCheckOutput = "Auto"
	// OutputGardener has lastUpdateTime, codes and status Progressing.
	OutputGardener HealthCheckOutput = "Gardener"
	// OutputConditions is metav1.Condition.
	OutputConditions HealthCheckOutput = "Conditions"
	// OutputRegistrationOnly writes no conditions.
	OutputRegistrationOnly HealthCheckOutput = "RegistrationOnly"
)

// HealthCheckRegistrationStatus is what the controller last saw and did.
type HealthCheckRegistrationStatus struct {
	// observedGeneration is the generation of spec that this status describes; -1 before the first look.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Accepted, Ready, Reconciling, Stalled, BreakerOpen, TargetsHealthy. The last tells of the targets, and never
	// changes Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// targets counts the objects that are selected.
	// +optional
	// +kubebuilder:default=0
	Targets int32 `json:"targets"`

	// healthy, unhealthy, progressing and unknown count targets by the worst of their conditions.
	// +optional
	// +kubebuilder:default=0
	Healthy int32 `json:"healthy"`
	// +optional
	// +kubebuilder:default=0
	Unhealthy int32 `json:"unhealthy"`
	// +optional
	// +kubebuilder:default=0
	Progressing int32 `json:"progressing"`
	// +optional
	// +kubebuilder:default=0
	Unknown int32 `json:"unknown"`

	// breaker is the flip breaker, while it is open.
	// +optional
	Breaker *Breaker `json:"breaker,omitempty"`

	// worst are up to 20 targets that aren't healthy, sorted by status, namespace and name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Worst []UnhealthyTarget `json:"worst,omitempty"`
}

// UnhealthyTarget is a condition of a target that isn't True.
type UnhealthyTarget struct {
	// namespace of the target; missing where it has none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name of the target.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// conditionType that isn't True.
	// +required
	// +kubebuilder:validation:MaxLength=64
	ConditionType string `json:"conditionType"`
	// status of it: False, Unknown or Progressing.
	// +required
	// +kubebuilder:validation:MaxLength=16
	Status string `json:"status"`
	// message of it, up to 512 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// HealthCheckRegistration says which checks of what depends on an object decide which of its conditions.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=hcr,categories=autohealer
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.target.kind`
// +kubebuilder:printcolumn:name="Targets",type=integer,JSONPath=`.status.targets`
// +kubebuilder:printcolumn:name="Unhealthy",type=integer,JSONPath=`.status.unhealthy`
// +kubebuilder:printcolumn:name="Unknown",type=integer,JSONPath=`.status.unknown`
// +kubebuilder:printcolumn:name="Breaker",type=string,JSONPath=`.status.conditions[?(@.type=="BreakerOpen")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type HealthCheckRegistration struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the declared behaviour.
	// +required
	Spec HealthCheckRegistrationSpec `json:"spec"`

	// status is what the controller last saw and did.
	// +optional
	// +kubebuilder:default={observedGeneration:-1}
	Status HealthCheckRegistrationStatus `json:"status,omitempty"`
}

// HealthCheckRegistrationList is a list of HealthCheckRegistrations.
// +kubebuilder:object:root=true
type HealthCheckRegistrationList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items of the list.
	Items []HealthCheckRegistration `json:"items"`
}
