package v1alpha1

import "k8s.io/apimachinery/pkg/util/intstr"

// HealthCheck is one check.
type HealthCheck struct {
	// name is what messages call it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// conditionType that it decides, with the others of that type. Not Ready, Reconciling or Stalled, which tell of the
	// target's controller.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ConditionType string `json:"conditionType"`
	// cluster that the object is in: Seed, where the target is, or Shoot. Default: Seed.
	// +optional
	Cluster HealthCheckCluster `json:"cluster,omitempty"`
	// when is a CEL expression over target. While it is false the check counts as successful. No default: always.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	When string `json:"when,omitempty"`
	// object that is looked at. For evaluate.nodes only with desired.
	// +optional
	Object *HealthCheckObject `json:"object,omitempty"`
	// evaluate says how it is judged.
	// +required
	Evaluate HealthCheckEvaluator `json:"evaluate"`
	// onMissing says what follows when the object doesn't exist. Default: False.
	// +optional
	OnMissing HealthCheckOnMissing `json:"onMissing,omitempty"`
	// progressingTimeout is how long Progressing is believed since it began. More than syncPeriod, at most 24h. Default: 5m.
	// +optional
	ProgressingTimeout Duration `json:"progressingTimeout,omitempty"`
	// errorCodes are added to the condition where the check's detail matches.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ErrorCodes []HealthCheckErrorCode `json:"errorCodes,omitempty"`
}

// HealthCheckCluster is where a check looks.
// +kubebuilder:validation:Enum=Seed;Shoot
type HealthCheckCluster string

const (
	// ClusterSeed is where the target is.
	ClusterSeed HealthCheckCluster = "Seed"
	// ClusterShoot is what the target belongs to, by its kubeconfig.
	ClusterShoot HealthCheckCluster = "Shoot"
)

// HealthCheckOnMissing says what follows when an object doesn't exist.
// +kubebuilder:validation:Enum="False";Progressing;Skip
type HealthCheckOnMissing string

const (
	// MissingFalse makes the check False.
	MissingFalse HealthCheckOnMissing = "False"
	// MissingProgressing makes it Progressing.
	MissingProgressing HealthCheckOnMissing = "Progressing"
	// MissingSkip lets it count as successful.
	MissingSkip HealthCheckOnMissing = "Skip"
)

// HealthCheckObject is what a check looks at.
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.selector)",message="set exactly one of name and selector"
// +kubebuilder:validation:XValidation:rule="!has(self.where) || has(self.selector)",message="where chooses among what selector selects; set selector, which may be {}"
type HealthCheckObject struct {
	// apiVersion of its kind, such as apps/v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z]([-a-z0-9]*[a-z0-9])?$')`,message="write the kind's group and version, such as apps/v1, or v1 alone where it has no group"
	APIVersion string `json:"apiVersion"`
	// kind, such as Deployment. Never Secret: messages would tell of it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// name is a CEL expression over target that gives a string; a fixed name is in quotes: "'machine-controller-manager'".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name,omitempty"`
	// selector selects objects by labels; each of them is judged, and the worst counts.
	// +optional
	Selector *LabelSelector `json:"selector,omitempty"`
	// where is a CEL expression over object and target that gives a bool. Of what selector selects only those objects are looked
	// at for which it is true; when there is none, nothing exists, as onMissing has it. Only with selector. No default: all.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Where string `json:"where,omitempty"`
	// namespace is a CEL expression over target that gives a string. Default: target.metadata.namespace in the seed; needed
	// in the shoot for what has one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Namespace string `json:"namespace,omitempty"`
}

// HealthCheckEvaluator is how an object is judged.
// +kubebuilder:validation:XValidation:rule="[has(self.builtin), has(self.status), has(self.nodes), has(self.cel)].filter(x, x).size() == 1",message="set exactly one of builtin, status, nodes and cel"
type HealthCheckEvaluator struct {
	// builtin judges by the criteria that come for the kind: Deployment, DaemonSet, StatefulSet, ReplicaSet, Job, Pod,
	// PersistentVolumeClaim, Service, CustomResourceDefinition, ManagedResource.
	// +optional
	Builtin *BuiltinCheck `json:"builtin,omitempty"`
	// status judges by generation and the conditions Ready, Reconciling and Stalled, as kstatus does. What has none of them is
	// healthy, but for some kinds of Kubernetes.
	// +optional
	Status *StatusCheck `json:"status,omitempty"`
	// nodes judges whether every node of the shoot is Ready, and there are enough.
	// +optional
	Nodes *NodesCheck `json:"nodes,omitempty"`
	// cel judges by expressions over object and target.
	// +optional
	CEL *CELCheck `json:"cel,omitempty"`
}

// BuiltinCheck has nothing to set.
type BuiltinCheck struct{}

// StatusCheck has nothing to set.
type StatusCheck struct{}

// NodesCheck says how many nodes are enough. However many that are, one that was Ready and isn't makes the check False.
// +kubebuilder:validation:XValidation:rule="has(self.min) != has(self.desired)",message="set exactly one of min and desired"
type NodesCheck struct {
	// min is how many nodes there must be: a number, or a CEL expression over target that gives one.
	// +optional
	// +kubebuilder:validation:XIntOrString
	Min *intstr.IntOrString `json:"min,omitempty"`
	// desired is a CEL expression over object and target that gives how many nodes the check's object wants, such as
	// object.spec.?replicas.orValue(0) of a MachineDeployment, which isn't stored with a zero. Of several objects the sum counts, those aside that are being deleted; where it is
	// 0 nodes aren't looked at. Where it can't be evaluated for one of them the check is Unknown.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Desired string `json:"desired,omitempty"`
}

// CELCheck are expressions over object and target. The first that is true of failed, progressing and healthy decides; when
// none is, the check is False.
type CELCheck struct {
	// healthy gives a bool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Healthy string `json:"healthy"`
	// progressing gives a bool. No default: never.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Progressing string `json:"progressing,omitempty"`
	// failed gives a bool. No default: never.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Failed string `json:"failed,omitempty"`
	// message gives a string for what isn't healthy. No default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
}

// HealthCheckErrorCode is a code for details of one form.
type HealthCheckErrorCode struct {
	// match is a regular expression (RE2) over the detail.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Match string `json:"match"`
	// code, such as ERR_CONFIGURATION_PROBLEM.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Z][A-Z0-9_]*$')`,message="write upper-case letters, digits and _, a letter first, such as ERR_CONFIGURATION_PROBLEM"
	Code string `json:"code"`
}
