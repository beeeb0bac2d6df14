package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ConditionSetSpec combines node conditions to one taint.
// +kubebuilder:validation:XValidation:rule="!has(self.evictAfter) || self.effect == 'NoExecute'",message="evictAfter delays NoExecute and needs effect NoExecute; remove evictAfter or set effect: NoExecute"
type ConditionSetSpec struct {
	// type names the combined condition, as it appears in Events and messages, in CamelCase.
	// It needn't be a node condition's own name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?$')`,message="write a name such as KernelDeadlock: a letter first, a letter or a digit last, and between them letters, digits, -, _ and ."
	Type string `json:"type"`

	// effect of the taint on a node that matches: PreferNoSchedule keeps new pods away where possible, NoSchedule keeps
	// them away, NoExecute also evicts the pods that don't tolerate the key. Eviction is by plain deletion and ignores
	// PodDisruptionBudgets.
	// +required
	// +kubebuilder:validation:Enum=NoExecute;NoSchedule;PreferNoSchedule
	Effect corev1.TaintEffect `json:"effect"`

	// taintKey is the key of the taint: an optional DNS prefix, a slash and a name. Several sets may share a key; on one
	// node the highest effect among them wins. Keys of Kubernetes, cluster-autoscaler, Karpenter and cloud providers are
	// refused. If you run Cluster Autoscaler, list the key under its flag --status-taint.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	TaintKey string `json:"taintKey"`

	// conditions that must all match, by node condition type (AND). A condition that the node doesn't carry matches
	// nothing; in particular it isn't Unknown. For alternatives (OR) write several sets.
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) >= 1)",message="a node condition type can't be empty; name one, such as KernelDeadlock"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 316)",message="a node condition type has at most 316 characters"
	Conditions map[string]MemberCondition `json:"conditions"`

	// nodeSelector narrows the set to nodes with these labels. Default: every node that is not control plane.
	// +optional
	NodeSelector *LabelSelector `json:"nodeSelector,omitempty"`

	// includeControlPlane lets the set taint control-plane nodes too, at most one at a time. Default: false.
	// +optional
	IncludeControlPlane bool `json:"includeControlPlane,omitempty"`

	// for is how long all members must have matched before the node is tainted, counted from the latest of their
	// lastTransitionTimes, and from Autohealer's own observation for at least the smaller of for and 60s.
	// Default: 0s; with effect NoExecute: 1m.
	// +optional
	For Duration `json:"for,omitempty"`

	// recoverAfter is how long the node must have been clear, by Autohealer's own observation, before the taint goes.
	// Default: 0s; with effect NoExecute: 1m.
	// +optional
	RecoverAfter Duration `json:"recoverAfter,omitempty"`

	// staleAfter is how long a condition's reporter may be silent (no new heartbeat, no transition) before the condition
	// counts as unproven: no new taint, and a taint that is there stays. Default: 15m.
	// +optional
	StaleAfter Duration `json:"staleAfter,omitempty"`

	// evictAfter makes the taint NoSchedule first and NoExecute this long after it was set. Only with effect NoExecute.
	// No default: NoExecute at once, after for.
	// +optional
	EvictAfter Duration `json:"evictAfter,omitempty"`

	// maxNodes is the set's own cap on nodes tainted at once, on top of the cluster-wide limits: a number, or a
	// percentage of the selected nodes that are Ready and neither cordoned nor leaving, rounded down. No default: only the cluster-wide limits hold.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 100000 : self.matches('^(100|[0-9]{1,2})%$')",message="must be a number from 0 to 100000 or a percentage from 0% to 100%"
	MaxNodes *intstr.IntOrString `json:"maxNodes,omitempty"`

	// mode is Enforce or Observe. Observe computes and reports, touches nothing, and undoes what the set did before.
	// Default: Enforce.
	// +optional
	Mode Mode `json:"mode,omitempty"`
}

// MemberCondition is what one node condition must be for the set to match.
type MemberCondition struct {
	// status that the node condition must have: true, false or unknown, as a boolean or a string.
	// +required
	Status RequiredStatus `json:"status"`
}

// ConditionSetStatus is what the controller last saw and did. It never lists all nodes; `kubectl get nodes` with the
// taint's key does.
type ConditionSetStatus struct {
	// observedGeneration is the generation of spec that this status describes; -1 before the first look.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Accepted, Ready, Reconciling, Stalled, LimitReached, BreakerOpen.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// nodes counts the nodes in each state.
	// +optional
	Nodes *NodeCounts `json:"nodes,omitempty"`

	// sampleNodes names up to 20 nodes that match or carry the set's taint, sorted.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	SampleNodes []string `json:"sampleNodes,omitempty"`

	// taintKeys are the keys this set has declared, the present one included: its record of which taints it may remove.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	TaintKeys []string `json:"taintKeys,omitempty"`

	// breaker is there while the breaker is open or was reset and the wave that opened it goes on.
	// +optional
	Breaker *Breaker `json:"breaker,omitempty"`
}

// NodeCounts counts nodes of a ConditionSet.
type NodeCounts struct {
	// selected by nodeSelector and includeControlPlane.
	// +optional
	Selected int32 `json:"selected"`
	// matching all members now, whatever for and the limits say.
	// +optional
	Matching int32 `json:"matching"`
	// tainted by this set.
	// +optional
	Tainted int32 `json:"tainted"`
	// heldBack: what the set would do there waits, for a limit, the breaker, a person, or since the conditions flap.
	// +optional
	HeldBack int32 `json:"heldBack"`
	// doubtful: nobody knows whether the node is sick. A member's condition is Unknown, or gone from a node with the set's taint, or
	// its reporter is silent, or not proven alive since the controller started. Such a node isn't tainted, and keeps its taint.
	// +optional
	Doubtful int32 `json:"doubtful"`
}

// Breaker describes an opened breaker.
type Breaker struct {
	// id of the transition. Annotate the object with autohealer.resourcestack.com/reset-breaker=<id> to let it act again.
	// +required
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// openedAt is when the breaker opened.
	// +required
	OpenedAt metav1.Time `json:"openedAt"`
	// reset is true once someone has reset it; it is forgotten when the share of matching nodes is back under the threshold.
	// +optional
	Reset bool `json:"reset,omitempty"`
}

// ConditionSet combines node conditions to one taint: when all of its conditions hold on a node, the node gets the
// taint, and loses it when they no longer do.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cset,categories=autohealer
// +kubebuilder:printcolumn:name="Effect",type=string,JSONPath=`.spec.effect`
// +kubebuilder:printcolumn:name="Key",type=string,JSONPath=`.spec.taintKey`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Matching",type=integer,JSONPath=`.status.nodes.matching`
// +kubebuilder:printcolumn:name="Tainted",type=integer,JSONPath=`.status.nodes.tainted`
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status.nodes.heldBack`
// +kubebuilder:printcolumn:name="Breaker",type=string,JSONPath=`.status.conditions[?(@.type=="BreakerOpen")].reason`
// +kubebuilder:printcolumn:name="Doubtful",type=integer,priority=1,JSONPath=`.status.nodes.doubtful`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ConditionSet struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the declared behaviour.
	// +required
	Spec ConditionSetSpec `json:"spec"`

	// status is what the controller last saw and did.
	// +optional
	// +kubebuilder:default={observedGeneration:-1}
	Status ConditionSetStatus `json:"status,omitempty"`
}

// ConditionSetList is a list of ConditionSets.
// +kubebuilder:object:root=true
type ConditionSetList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items of the list.
	Items []ConditionSet `json:"items"`
}
