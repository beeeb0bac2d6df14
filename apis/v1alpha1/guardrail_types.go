package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// GuardrailSpec is what healing may never do, as an operator declares it. Several Guardrails hold together: all their
// rules, the strictest of their limits, paused or frozen when any one is.
type GuardrailSpec struct {
	// paused stops all new acts of every policy in the cluster. What stopped matching is still undone.
	// Default: false.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// frozen stops everything, undo included: nothing new is done, and nothing that was done is taken back, not even for a
	// policy that is deleted, which stays until then. For emergencies; `kubectl autohealer freeze` makes a Guardrail that says
	// nothing else. Default: false.
	// +optional
	Frozen bool `json:"frozen,omitempty"`

	// limits replace the built-in ones, up or down. Of several Guardrails' values for one limit the strictest holds.
	// A limit holds acts back; it never refuses a policy that is stored, and a limit that shrinks undoes nothing.
	// +optional
	Limits *GuardrailLimits `json:"limits,omitempty"`

	// conditionSetPrecedence says among which ConditionSets of a node the highest effect wins: Key, among those with the
	// same taint key, or Node, among all. Where Guardrails disagree, Key holds. Default: Key.
	// +optional
	ConditionSetPrecedence ConditionSetPrecedence `json:"conditionSetPrecedence,omitempty"`

	// conditionTypes declare what further node condition types mean, so that the rules can tell a healthy node from a
	// sick one. The types of Kubernetes and node-problem-detector are known and can't be declared anew. Where Guardrails
	// disagree, both statuses of the type count as healthy.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=64
	ConditionTypes []ConditionType `json:"conditionTypes,omitempty"`

	// witnesses are servers outside by which Autohealer tells an outage of its own way out from one of what ProbeConfigs probe. A target
	// of which each failure in a row was followed by an answer of one of them is believed, however many others fail with it, up to
	// maxScaledDownTargets; the breaker holds none such. Of each Guardrail that names any, one must answer. Name servers that
	// Autohealer reaches the way it reaches the targets from outside, and that share nothing else with them: no load balancer,
	// no DNS zone, no seed. Default: none, and then the breaker opens when more than maxTargetsFailingTogether fail together.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(w, self.exists_one(o, o.address == w.address))",message="name each address once: of two names for one server neither answers when it doesn't"
	Witnesses []Witness `json:"witnesses,omitempty"`

	// rules judge policies beside the built-in ones, which they can't weaken.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Rules []GuardrailRule `json:"rules,omitempty"`
}

// ConditionSetPrecedence says among which sets of a node the highest effect wins.
// +kubebuilder:validation:Enum=Key;Node
type ConditionSetPrecedence string

const (
	// PrecedenceKey: among the sets with the same taint key.
	PrecedenceKey ConditionSetPrecedence = "Key"
	// PrecedenceNode: among all sets of the node.
	PrecedenceNode ConditionSetPrecedence = "Node"
)

// GuardrailLimits cap how much of a cluster healing may touch at once. A percentage is rounded down, and is at least 1
// in a cluster of three nodes or more.
type GuardrailLimits struct {
	// maxTaintedNodes caps nodes with a NoSchedule or NoExecute taint of Autohealer's, over all ConditionSets: a number,
	// or a percentage of the nodes that aren't control plane; in clusters of three zones or more also of each zone's.
	// Default: 10%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 100000 : self.matches('^(100|[0-9]{1,2})%$')",message="must be a number from 0 to 100000 or a percentage from 0% to 100%"
	MaxTaintedNodes *intstr.IntOrString `json:"maxTaintedNodes,omitempty"`

	// maxEvictingNodes caps nodes with a NoExecute taint of Autohealer's, counted like maxTaintedNodes. Default: 5%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 100000 : self.matches('^(100|[0-9]{1,2})%$')",message="must be a number from 0 to 100000 or a percentage from 0% to 100%"
	MaxEvictingNodes *intstr.IntOrString `json:"maxEvictingNodes,omitempty"`

	// maxPodDeletionsPerMinute caps the pods that all WeederConfigs together delete in any minute. Default: 60.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MaxPodDeletionsPerMinute *int32 `json:"maxPodDeletionsPerMinute,omitempty"`

	// maxScaledDownTargets caps the targets of all ProbeConfigs together that are scaled down at once: a number, or a
	// percentage of the targets that configs in force probe, of which it is at least 1 unless it is 0%. Default: 20%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 100000 : self.matches('^(100|[0-9]{1,2})%$')",message="must be a number from 0 to 100000 or a percentage from 0% to 100%"
	MaxScaledDownTargets *intstr.IntOrString `json:"maxScaledDownTargets,omitempty"`

	// maxTargetsFailingTogether is how many namespaces that ProbeConfigs in force probe may turn unhealthy from outside within two
	// minutes of each other: a number, or a percentage of them. When more do, and at least three, the breaker of all
	// ProbeConfigs opens, and nothing more is scaled down; targets for which witnesses vouch don't count. Default: 10%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 100000 : self.matches('^(100|[0-9]{1,2})%$')",message="must be a number from 0 to 100000 or a percentage from 0% to 100%"
	MaxTargetsFailingTogether *intstr.IntOrString `json:"maxTargetsFailingTogether,omitempty"`
}

// Witness is a server outside that answers as long as the way there works.
type Witness struct {
	// name of the witness, for messages and metrics.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// address as host:port, such as status.example.com:443. It answers when a TLS handshake comes about within five seconds, with a
	// certificate that is valid for the host; nothing is sent. Addresses that ProbeConfigs may not probe aren't dialled.
	// +required
	// +kubebuilder:validation:MaxLength=261
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?|[[][0-9a-fA-F:.]+[]]):([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$')`,message="write host:port, such as status.example.com:443 or [2001:db8::1]:443"
	Address string `json:"address"`

	// caBundle has PEM certificates of the authorities that the server's certificate is verified by. Default: those of
	// Autohealer's image.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="self.contains('-----BEGIN CERTIFICATE-----')",message="write certificates in PEM, which begin with -----BEGIN CERTIFICATE-----"
	CABundle string `json:"caBundle,omitempty"`
}

// ConditionType declares what a node condition type means.
type ConditionType struct {
	// type of the node condition.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type"`

	// healthyStatus is the status that the condition has on a healthy node.
	// +required
	// +kubebuilder:validation:Enum="True";"False"
	HealthyStatus corev1.ConditionStatus `json:"healthyStatus"`
}

// GuardrailRule is a CEL rule over policies.
type GuardrailRule struct {
	// name of the rule. Its id, in messages and exceptions, is the Guardrail's name, a slash and this.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')`,message="write lower-case letters, digits and -, without a - at either end"
	Name string `json:"name"`

	// kinds that the rule judges.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Kinds []string `json:"kinds"`

	// severity says what a violation does: Deny refuses the object, and stops a stored one from acting; Warn admits it
	// with a warning. Default: Deny.
	// +optional
	Severity RuleSeverity `json:"severity,omitempty"`

	// expression is CEL that returns a bool; false is a violation. It may read object, oldObject, request, authorizer,
	// limits, facts, plan and the kind's variables; docs/reference/guardrails.md lists them. It is checked against the
	// CRD's types and a cost budget.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression"`

	// messageExpression is CEL that returns a string: what is wrong and what to write instead.
	// Default: rationale, and without that the expression.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	MessageExpression string `json:"messageExpression,omitempty"`

	// onFactsUnavailable says what becomes of a rule over plan or facts while these aren't complete: Warn admits the
	// object with a warning, Deny refuses it. Default: Warn.
	// +optional
	OnFactsUnavailable RuleSeverity `json:"onFactsUnavailable,omitempty"`

	// exceptable rules may be lifted for one object by a GuardrailException. Default: false.
	// +optional
	Exceptable bool `json:"exceptable,omitempty"`

	// rationale is the reason for the rule, for those who meet it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Rationale string `json:"rationale,omitempty"`

	// tests show the rule's verdicts; `kubectl autohealer rules test -f` runs them, and checks their objects. Nothing else does.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Tests []GuardrailRuleTest `json:"tests,omitempty"`
}

// RuleSeverity is what a violated rule does.
// +kubebuilder:validation:Enum=Deny;Warn
type RuleSeverity string

const (
	// RuleDeny refuses the object.
	RuleDeny RuleSeverity = "Deny"
	// RuleWarn admits it with a warning.
	RuleWarn RuleSeverity = "Warn"
)

// GuardrailRuleTest is an object and the verdict that the rule must give.
type GuardrailRuleTest struct {
	// name of the test.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`

	// object to judge, as it could be stored; apiVersion, kind and metadata may be left out.
	// +required
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Object runtime.RawExtension `json:"object"`

	// oldObject makes the test an update. No default: a creation.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	OldObject *runtime.RawExtension `json:"oldObject,omitempty"`

	// plan is what the planner would say of the object. Default: nothing matches, nothing is limited.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Plan *runtime.RawExtension `json:"plan,omitempty"`

	// facts of the cluster that the object is judged in. Default: they are complete, and there are no nodes.
	// +optional
	Facts *GuardrailTestFacts `json:"facts,omitempty"`

	// accountsMay is what the authorizer answers to every question. Default: true.
	// +optional
	AccountsMay *bool `json:"accountsMay,omitempty"`

	// userInfo says who asks, as request.userInfo. Default: nobody, and a rule that judges who asks isn't checked.
	// +optional
	UserInfo *GuardrailTestUser `json:"userInfo,omitempty"`

	// expect is the rule's verdict.
	// +required
	// +kubebuilder:validation:Enum=admit;warn;deny
	Expect string `json:"expect"`
}

// GuardrailTestFacts are the facts that a rule reads in its test.
type GuardrailTestFacts struct {
	// synced says whether all that is known of the cluster is there; without it a rule over facts or plan isn't checked.
	// Default: true.
	// +optional
	Synced *bool `json:"synced,omitempty"`

	// ageSeconds since the facts were known to be current. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AgeSeconds int64 `json:"ageSeconds,omitempty"`

	// nodes of the cluster, without control plane and those that are being deleted. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Nodes int32 `json:"nodes,omitempty"`
}

// GuardrailTestUser is who asks in a test.
type GuardrailTestUser struct {
	// username as the API server knows it, such as system:serviceaccount:argocd:controller.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Username string `json:"username"`

	// groups of the user beside system:authenticated, which everybody is in. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	Groups []string `json:"groups,omitempty"`
}

// GuardrailStatus is what the controller last saw.
type GuardrailStatus struct {
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

	// rules is the number of rules in force.
	// +optional
	Rules *int32 `json:"rules,omitempty"`

	// rejects counts the stored policies that a rule of this Guardrail refuses now.
	// +optional
	Rejects *int32 `json:"rejects,omitempty"`

	// rejectedPolicies names up to 20 of them, as Kind/name or Kind/namespace/name, sorted.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	RejectedPolicies []string `json:"rejectedPolicies,omitempty"`
}

// Guardrail declares what healing may never do in this cluster: rules beside the built-in ones, limits, and a pause.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=grl,categories=autohealer
// +kubebuilder:printcolumn:name="Paused",type=boolean,JSONPath=`.spec.paused`
// +kubebuilder:printcolumn:name="Rules",type=integer,JSONPath=`.status.rules`
// +kubebuilder:printcolumn:name="Rejects",type=integer,JSONPath=`.status.rejects`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Guardrail struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is declared.
	// +required
	Spec GuardrailSpec `json:"spec"`

	// status is what the controller last saw.
	// +optional
	// +kubebuilder:default={observedGeneration:-1}
	Status GuardrailStatus `json:"status,omitempty"`
}

// GuardrailList is a list of Guardrails.
// +kubebuilder:object:root=true
type GuardrailList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items of the list.
	Items []Guardrail `json:"items"`
}
