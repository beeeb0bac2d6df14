package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GuardrailExceptionSpec lifts rules for one object as it is now, for a time.
type GuardrailExceptionSpec struct {
	// ruleIDs are the rules that are lifted. Limits, reserved keys and authorisation can't be.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	RuleIDs []string `json:"ruleIDs"`

	// targetRef is the one policy for which they are. Guardrails and exceptions can't be excepted from anything.
	// +required
	TargetRef ExceptionTarget `json:"targetRef"`

	// specHash is the SHA-256 of the target's spec, 64 hexadecimal digits; `kubectl autohealer hash -f` prints it. With
	// another spec the exception lifts nothing; when the spec returns to exactly this one before expiresAt, it does again.
	// What is hashed is the spec as it is stored, with the CRD's defaults: a release that changes these changes the hash.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[0-9a-f]{64}$')`,message="write the 64 hexadecimal digits that kubectl autohealer hash prints"
	SpecHash string `json:"specHash"`

	// reason why the rule needn't hold here, for those who read the audit log.
	// +required
	// +kubebuilder:validation:MinLength=10
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`

	// expiresAt ends the exception, at most 7 days after its creation. What the object did meanwhile isn't undone.
	// +required
	ExpiresAt Timestamp `json:"expiresAt"`
}

// ExceptionTarget names a policy: an object of one of the kinds that act, such as ConditionSet.
type ExceptionTarget struct {
	// kind of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// namespace of the object; empty for a cluster-scoped kind.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// GuardrailExceptionStatus is what the controller last saw.
type GuardrailExceptionStatus struct {
	// observedGeneration is the generation of spec that this status describes; -1 before the first look.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Accepted, Ready, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GuardrailException lifts rules for one object with one spec until a date. Who may create one may override the rules:
// give that right to few.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=grlx,categories=autohealer
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.targetRef.kind`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetRef.name`
// +kubebuilder:printcolumn:name="Rules",type=string,JSONPath=`.spec.ruleIDs`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expiresAt`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GuardrailException struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is lifted, for which object and how long.
	// +required
	Spec GuardrailExceptionSpec `json:"spec"`

	// status is what the controller last saw.
	// +optional
	// +kubebuilder:default={observedGeneration:-1}
	Status GuardrailExceptionStatus `json:"status,omitempty"`
}

// GuardrailExceptionList is a list of GuardrailExceptions.
// +kubebuilder:object:root=true
type GuardrailExceptionList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items of the list.
	Items []GuardrailException `json:"items"`
}
