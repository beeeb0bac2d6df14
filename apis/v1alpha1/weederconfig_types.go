package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WeederConfigSpec says which pods depend on which Services.
// +kubebuilder:validation:XValidation:rule="!has(self.namespaceSelector) || !has(self.serviceAccountName)",message="serviceAccountName speaks for the config's own namespace only, and namespaceSelector needs Autohealer's own rights; remove one of them"
type WeederConfigSpec struct {
	// watchDuration is how long, after a Service recovered, its dependent pods are deleted when they crash-loop. It is over before
	// when the Service is notReady again, and the next recovery begins another. More than 0s and at most 30m. Default: 5m.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^(0*[0-9]{1,4}([.][0-9]+)?h|0*[0-9]{1,6}([.][0-9]+)?m|0*[0-9]{1,8}([.][0-9]+)?s|0*[0-9]{1,11}([.][0-9]+)?ms)+$') || duration(self) > duration('0s') && duration(self) <= duration('30m')`,message="must be more than 0s and at most 30m"
	WatchDuration Duration `json:"watchDuration,omitempty"`

	// servicesAndDependantSelectors names Services and, for each, the pods that depend on it. A Service is looked for in
	// the config's namespace, or in those of namespaceSelector; its dependents are pods of the same namespace.
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 63 && k.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))",message="a Service name has at most 63 characters: lower-case letters, digits and -, without a - at either end"
	ServicesAndDependantSelectors map[string]DependantSelectors `json:"servicesAndDependantSelectors"`

	// namespaceSelector makes the config hold in every namespace with these labels instead of its own. Only in Autohealer's
	// own namespace. No default: the config's own namespace.
	// +optional
	NamespaceSelector *LabelSelector `json:"namespaceSelector,omitempty"`

	// readyPolicy says when a Service is Ready: AnyReady when at least one of its pods is, AllReady when it has pods and
	// all of them are, but for those that terminate. Default: AnyReady.
	// +optional
	ReadyPolicy ReadyPolicy `json:"readyPolicy,omitempty"`

	// includeInitContainers also counts a pod whose init container crash-loops, sidecars (restartable init containers)
	// among them. Default: true.
	// +optional
	IncludeInitContainers *bool `json:"includeInitContainers,omitempty"`

	// deletion is Delete or Evict. Evict respects PodDisruptionBudgets: a budget may hold a pod back for the whole
	// watchDuration. Default: Delete.
	// +optional
	Deletion DeletionMethod `json:"deletion,omitempty"`

	// maxDeletionsPerWatch caps the pods deleted for one Service (in each namespace) after one recovery. Default: 100.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxDeletionsPerWatch *int32 `json:"maxDeletionsPerWatch,omitempty"`

	// maxRepeatsPerOwner caps how often, in any hour, a workload's pod is deleted again: it, the pod that replaced it, and so on,
	// each of the workload's replicas for itself. Deleting those again and again would defeat the kubelet's back-off. They count
	// over all windows of that hour and all WeederConfigs: each recovery of a Service that flaps would else grant its dependents
	// as many again. A replacement that ran for ten minutes without a restart is none any more. 0 deletes no replacement.
	// Default: 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=20
	MaxRepeatsPerOwner *int32 `json:"maxRepeatsPerOwner,omitempty"`

	// cooldown is the least time between the deletion of a replacement and that of the pod that it replaced. From 1s to 10m.
	// Default: 10s.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^(0*[0-9]{1,4}([.][0-9]+)?h|0*[0-9]{1,6}([.][0-9]+)?m|0*[0-9]{1,8}([.][0-9]+)?s|0*[0-9]{1,11}([.][0-9]+)?ms)+$') || duration(self) >= duration('1s') && duration(self) <= duration('10m')`,message="must be at least 1s and at most 10m"
	Cooldown Duration `json:"cooldown,omitempty"`

	// mode is Enforce or Observe. Observe reports what it would delete and deletes nothing. Default: Enforce.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// serviceAccountName is the ServiceAccount, in the config's namespace, that must be allowed to delete pods there (with
	// deletion Evict also to create pods/eviction). Not asked in Autohealer's own namespace. Default: default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// DependantSelectors select the pods that depend on a Service.
type DependantSelectors struct {
	// podSelectors select the dependent pods; a pod that any of them matches depends on the Service.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(s, has(s.matchLabels) && size(s.matchLabels) > 0 || has(s.matchExpressions) && size(s.matchExpressions) > 0)",message="an empty podSelector would select every pod; name the dependents' labels"
	PodSelectors []LabelSelector `json:"podSelectors"`
}

// ReadyPolicy says when a Service counts as Ready.
// +kubebuilder:validation:Enum=AnyReady;AllReady
type ReadyPolicy string

const (
	// AnyReady needs one ready pod behind the Service.
	AnyReady ReadyPolicy = "AnyReady"
	// AllReady needs all pods behind the Service, and at least one, to be ready.
	AllReady ReadyPolicy = "AllReady"
)

// DeletionMethod says how a pod is removed.
// +kubebuilder:validation:Enum=Delete;Evict
type DeletionMethod string

const (
	// Delete deletes the pod and ignores PodDisruptionBudgets.
	Delete DeletionMethod = "Delete"
	// Evict evicts the pod, which a PodDisruptionBudget can refuse.
	Evict DeletionMethod = "Evict"
)

// WeederConfigStatus is what the controller last saw and did.
type WeederConfigStatus struct {
	// observedGeneration is the generation of spec that this status describes; -1 before the first look.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Accepted, Ready, Reconciling, Stalled, LimitReached.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// services counts the Services of the spec that exist, in each namespace that it holds in.
	// +optional
	// +kubebuilder:default=0
	Services int32 `json:"services"`

	// activeWindows counts the Services that recovered less than watchDuration ago and have been Ready since.
	// +optional
	// +kubebuilder:default=0
	ActiveWindows int32 `json:"activeWindows"`

	// windows are up to 20 of those recoveries, the ones with the most deletions, sorted by namespace and Service. After a
	// restart they say how much of maxDeletionsPerWatch is spent; of the others as much counts as spent as of the least of
	// these. They never allow anything.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Windows []RecoveryWindow `json:"windows,omitempty"`

	// lastTriggered is the latest recovery of a Service.
	// +optional
	LastTriggered *Recovery `json:"lastTriggered,omitempty"`

	// deleted counts all pods deleted for this config.
	// +optional
	// +kubebuilder:default=0
	Deleted int64 `json:"deleted"`

	// skipped counts, by reason, the pods that crash-looped in a window and were held back at least once: a pod counts once for
	// each of its windows and reasons, and once more after a restart of the manager.
	// +optional
	// +listType=map
	// +listMapKey=reason
	// +kubebuilder:validation:MaxItems=32
	Skipped []SkippedPods `json:"skipped,omitempty"`

	// recentDeletions are the latest deletions, at most 20, the newest first. After a restart they count for
	// maxRepeatsPerOwner and cooldown; they never allow anything.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	RecentDeletions []PodDeletion `json:"recentDeletions,omitempty"`

	// spent says in numbers what recentDeletions has no room for. After a restart it counts against the budgets; it never
	// allows anything. Missing while no pod was deleted.
	// +optional
	Spent *SpentBudgets `json:"spent,omitempty"`
}

// SpentBudgets are deletions in numbers.
type SpentBudgets struct {
	// lastMinute counts the pods deleted in the minute up to the latest deletion, that one included. After a restart all of
	// them count for the cluster's limit, as if they were as late as that one.
	// +required
	LastMinute int32 `json:"lastMinute"`
	// lastDeletion is when the latest pod was deleted.
	// +required
	LastDeletion metav1.Time `json:"lastDeletion"`
	// unlisted are the deletions of the hour up to the latest one that recentDeletions doesn't list. Missing when it lists
	// all of them.
	// +optional
	Unlisted *UnlistedDeletions `json:"unlisted,omitempty"`
}

// UnlistedDeletions are deletions of which nobody knows any more what they deleted. After a restart every dependent pod that
// was created after the first of them counts as the replacement of the one with the most repeats, until they are an hour old: no
// pod is deleted again more often than maxRepeatsPerOwner allows, and some less often.
type UnlistedDeletions struct {
	// from is when the first of them was, to when the last.
	// +required
	From metav1.Time `json:"from"`
	// +required
	To metav1.Time `json:"to"`
	// repeats is the greatest number of repeats of one of them.
	// +optional
	Repeats int32 `json:"repeats"`
}

// Recovery is a Service that turned Ready.
type Recovery struct {
	// namespace of the Service.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// service is its name.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Service string `json:"service"`
	// time at which it recovered, by the API server's clock.
	// +required
	Time metav1.Time `json:"time"`
}

// RecoveryWindow is a recovery whose watchDuration isn't over, of a Service that has been Ready since.
type RecoveryWindow struct {
	Recovery `json:",inline"`
	// until is when it is over at the latest, by the same clock.
	// +required
	Until metav1.Time `json:"until"`
	// deleted counts the pods deleted in it.
	// +optional
	Deleted int32 `json:"deleted"`
	// lastDeletion is when the latest of them was deleted.
	// +optional
	LastDeletion *metav1.Time `json:"lastDeletion,omitempty"`
}

// SkippedPods counts pods that were held back for one reason.
type SkippedPods struct {
	// reason, in CamelCase.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason"`
	// count of pods, each once in each window.
	// +required
	Count int64 `json:"count"`
}

// PodDeletion is a pod that was deleted.
type PodDeletion struct {
	// time of the deletion.
	// +required
	Time metav1.Time `json:"time"`
	// namespace of the pod.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// pod is its name.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`
	// podUID is its UID.
	// +required
	// +kubebuilder:validation:MaxLength=63
	PodUID string `json:"podUID"`
	// owner is its workload, as Kind/name.
	// +required
	// +kubebuilder:validation:MaxLength=317
	Owner string `json:"owner"`
	// service that had recovered.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Service string `json:"service"`
	// repeats counts the pods that were deleted in the hour before and that this one had replaced, one after the other.
	// +optional
	Repeats int32 `json:"repeats,omitempty"`
}

// WeederConfig deletes the pods that depend on a Service and crash-loop, once the Service recovered: they restart now, and
// not after the kubelet's back-off of up to five minutes.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=wc,categories=autohealer
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Services",type=integer,JSONPath=`.status.services`
// +kubebuilder:printcolumn:name="Active",type=integer,JSONPath=`.status.activeWindows`
// +kubebuilder:printcolumn:name="Deleted",type=integer,JSONPath=`.status.deleted`
// +kubebuilder:printcolumn:name="Last",type=date,JSONPath=`.status.lastTriggered.time`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type WeederConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the declared behaviour.
	// +required
	Spec WeederConfigSpec `json:"spec"`

	// status is what the controller last saw and did.
	// +optional
	// +kubebuilder:default={observedGeneration:-1}
	Status WeederConfigStatus `json:"status,omitempty"`
}

// WeederConfigList is a list of WeederConfigs.
// +kubebuilder:object:root=true
type WeederConfigList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items of the list.
	Items []WeederConfig `json:"items"`
}
