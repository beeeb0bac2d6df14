package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OutlierPolicySpec says which targets get passive health checks, and which.
// +kubebuilder:validation:XValidation:rule="has(self.outlierDetection) || has(self.disabled) && self.disabled",message="write outlierDetection, or disabled: true"
type OutlierPolicySpec struct {
	// targetRefs are what the policy is for, in its own namespace. Without any it is a default: for its namespace, or, in
	// Autohealer's own, for the whole cluster; then it must be named default. The most specific policy holds as a whole: the
	// backend of a route, a port of a Service, a Service, a route, the namespace's default, the cluster's default. Nothing is
	// inherited from the others. Of several for one target at one level the oldest holds.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	TargetRefs []OutlierTargetReference `json:"targetRefs,omitempty"`

	// disabled switches detection off for the targets, whatever less specific policies say. Default: false.
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// mode is Enforce or Observe. In Observe Envoy detects and counts, and ejects nobody. Default: Enforce.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// outlierDetection says when a host is ejected, and for how long. Required unless disabled.
	// +optional
	OutlierDetection *OutlierDetection `json:"outlierDetection,omitempty"`

	// panicThreshold is the percentage of healthy hosts below which Envoy sends traffic to all hosts again, the ejected ones
	// too. Default: 0, which turns that off: when all are ejected, requests fail.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PanicThreshold *int32 `json:"panicThreshold,omitempty"`

	// connectTimeout is how long Envoy waits for a connection to a host before it counts as failed: a host that drops packets is
	// blamed no sooner, and not at all for requests that are given up before. Write less than the time-outs of the routes. It isn't
	// set in mode Observe. Default: Envoy's, 5s.
	// +optional
	ConnectTimeout EjectionTime `json:"connectTimeout,omitempty"`
}

// OutlierTargetReference names a target in the policy's namespace.
// +kubebuilder:validation:XValidation:rule="self.kind == 'Service' ? size(self.group) == 0 : self.group == (self.kind == 'HTTPProxy' ? 'projectcontour.io' : 'gateway.networking.k8s.io')",message="the group of Service is \"\", of HTTPProxy projectcontour.io, of HTTPRoute, GRPCRoute, TCPRoute and TLSRoute gateway.networking.k8s.io"
// +kubebuilder:validation:XValidation:rule="!has(self.sectionName) || self.kind == 'Service'",message="sectionName is the port of a Service; of a route choose a backend instead"
// +kubebuilder:validation:XValidation:rule="!has(self.backend) || self.kind != 'Service'",message="backend is a Service of a route; of a Service choose a port by sectionName"
type OutlierTargetReference struct {
	// group of the kind: "" for Service, gateway.networking.k8s.io or projectcontour.io.
	// +required
	// +kubebuilder:validation:Enum="";gateway.networking.k8s.io;projectcontour.io
	Group string `json:"group"`
	// kind of the target. A route stands for the Services that it sends traffic to, for that route only: they get Envoy
	// clusters of their own.
	// +required
	// +kubebuilder:validation:Enum=Service;HTTPRoute;GRPCRoute;TCPRoute;TLSRoute;HTTPProxy
	Kind string `json:"kind"`
	// name of the target.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// sectionName is a port of a Service, by its name, or by its number where it has none. Default: all ports.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	SectionName string `json:"sectionName,omitempty"`
	// backend narrows a route to one of the Services that it sends traffic to. Default: all of them.
	// +optional
	Backend *OutlierBackend `json:"backend,omitempty"`
}

// OutlierBackend is a Service as a route names it.
type OutlierBackend struct {
	// name of the Service, in the route's namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// port of the Service.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// EjectionTime is a length of time as Go writes it ("90s", "5m", "1h30m"), at most 8760h. It is kept as the text that was
// read.
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule=`self.matches('^(([0-9]+([.][0-9]*)?|[.][0-9]+)(ms|s|m|h))+$')`,message="write a duration such as 30s, 10m or 1h30m"
// +kubebuilder:validation:XValidation:rule=`!self.matches('^(([0-9]+([.][0-9]*)?|[.][0-9]+)(ms|s|m|h))+$') || self.matches('^((0*[0-9]{1,4}([.][0-9]*)?|[.][0-9]+)h|(0*[0-9]{1,6}([.][0-9]*)?|[.][0-9]+)m|(0*[0-9]{1,8}([.][0-9]*)?|[.][0-9]+)s|(0*[0-9]{1,11}([.][0-9]*)?|[.][0-9]+)ms)+$') && duration(self) <= duration('8760h')`,message="must be at most 8760h"
type EjectionTime string

// OutlierDetection says when a host is ejected, and for how long. What is left out is left to Envoy, whose defaults are
// given; but for the two booleans nothing is filled in.
type OutlierDetection struct {
	// consecutiveServerErrors is the number of consecutive 5xx answers after which a host is ejected. For TCP, and unless
	// splitExternalLocalOriginErrors, failed connections and timeouts count too. 0 disables; at most 2147483647. Default: 5.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	ConsecutiveServerErrors *int32 `json:"consecutiveServerErrors,omitempty"`

	// interval is the time between two sweeps, which end ejections. Default: 10s.
	// +optional
	Interval EjectionTime `json:"interval,omitempty"`

	// baseEjectionTime times the number of a host's ejections is how long it is ejected. The number falls by one at each sweep
	// that finds the host healthy. Default: 30s.
	// +optional
	BaseEjectionTime EjectionTime `json:"baseEjectionTime,omitempty"`

	// maxEjectionTime is the longest time for which a host is ejected, jitter apart. Default: 300s, or baseEjectionTime where
	// that is longer.
	// +optional
	MaxEjectionTime EjectionTime `json:"maxEjectionTime,omitempty"`

	// splitExternalLocalOriginErrors counts errors of Envoy's own, such as a refused connection, apart from answers of the
	// host: they are consecutiveLocalOriginFailure's. Default: false.
	// +optional
	// +kubebuilder:default=false
	SplitExternalLocalOriginErrors *bool `json:"splitExternalLocalOriginErrors,omitempty"`

	// consecutiveLocalOriginFailure is the number of consecutive failures of Envoy's own after which a host is ejected. Only
	// with splitExternalLocalOriginErrors. 0 disables; at most 2147483647. Default: 5.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	ConsecutiveLocalOriginFailure *int32 `json:"consecutiveLocalOriginFailure,omitempty"`

	// maxEjectionPercent is the largest share of a cluster's hosts that is ejected at once. A further host is ejected only
	// where that keeps the share, so 10 of fewer than ten hosts is nobody, unless alwaysEjectOneHost. Default: 10.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxEjectionPercent *int32 `json:"maxEjectionPercent,omitempty"`

	// maxEjectionTimeJitter is the longest random time that is added to an ejection, so that proxies don't all come back to a
	// host at once. In seconds and milliseconds. Default: 0s.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!self.matches('h|m([^s]|$)')`,message="write seconds and milliseconds, such as 10s or 500ms"
	MaxEjectionTimeJitter EjectionTime `json:"maxEjectionTimeJitter,omitempty"`

	// alwaysEjectOneHost ejects one host whatever maxEjectionPercent says, 0 too. Needs Envoy 1.31 or later; an older one
	// ignores it. Default: true.
	// +optional
	// +kubebuilder:default=true
	AlwaysEjectOneHost *bool `json:"alwaysEjectOneHost,omitempty"`
}

// OutlierPolicyStatus is what the controller last saw and did.
type OutlierPolicyStatus struct {
	// observedGeneration is the generation of spec that this status describes; -1 before the first look.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Accepted, Ready, Reconciling, Stalled, AtRisk, ClusterRemovalDelayed, EjectionsUnknown.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// clusters counts the Envoy clusters that the policy holds for.
	// +optional
	// +kubebuilder:default=0
	Clusters int32 `json:"clusters"`

	// hosts counts their ready endpoints, each once for each cluster.
	// +optional
	// +kubebuilder:default=0
	Hosts int32 `json:"hosts"`

	// ejected counts the hosts among them that some Envoy has ejected. Missing while nobody can tell: no Envoy is asked, or
	// one of them doesn't answer.
	// +optional
	Ejected *int32 `json:"ejected,omitempty"`

	// ejections names up to 20 of them, those that are ejected longest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Ejections []OutlierEjection `json:"ejections,omitempty"`

	// ancestors tell of each target, and for a default of its namespace, as GEP-713 has it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Ancestors []OutlierAncestorStatus `json:"ancestors,omitempty"`
}

// OutlierEjection is a host that some Envoy has ejected.
type OutlierEjection struct {
	// cluster of the host, as Envoy calls it: namespace/service/port, and @kind/route for one of a route's own.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Cluster string `json:"cluster"`
	// address of the host, ip:port.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Address string `json:"address"`
	// pod at that address, in the Service's namespace. Missing when it is none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod,omitempty"`
	// envoys counts the Envoys that have it ejected.
	// +required
	Envoys int32 `json:"envoys"`
	// since the first of them was seen to have it ejected, by asking every 5 seconds. Where nobody asked for a while, as
	// between two managers, it may have been back in between.
	// +required
	Since metav1.Time `json:"since"`
}

// OutlierAncestorStatus tells how the policy stands with one of its targets.
type OutlierAncestorStatus struct {
	// ancestorRef is the target. Of a default it is the Namespace.
	// +required
	AncestorRef OutlierAncestorReference `json:"ancestorRef"`
	// controllerName is autohealer.resourcestack.com/outlierpolicy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ControllerName string `json:"controllerName"`
	// conditions: Accepted and Programmed.
	// +required
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions"`
	// effective is what Envoy does for the target: this policy's settings with all defaults. Missing where more specific
	// policies hold for all of the target, and while nothing is detected.
	// +optional
	Effective *OutlierDetection `json:"effective,omitempty"`
	// clusters counts the target's Envoy clusters that the policy holds for.
	// +optional
	Clusters int32 `json:"clusters"`
	// hosts counts their ready endpoints.
	// +optional
	Hosts int32 `json:"hosts"`
	// ejected counts the hosts among them that some Envoy has ejected. Missing while nobody can tell.
	// +optional
	Ejected *int32 `json:"ejected,omitempty"`
	// proxies are the Envoys that get the clusters.
	// +optional
	Proxies *OutlierProxies `json:"proxies,omitempty"`
}

// OutlierAncestorReference names a target.
type OutlierAncestorReference struct {
	// group of the kind.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`
	// kind of the target.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// namespace of the target. Missing for a Namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name of the target.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// sectionName is the port of a Service.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	SectionName string `json:"sectionName,omitempty"`
	// backend is the Service of a route.
	// +optional
	Backend *OutlierBackend `json:"backend,omitempty"`
}

// OutlierProxies counts Envoys.
type OutlierProxies struct {
	// connected Envoys get the clusters.
	// +required
	Connected int32 `json:"connected"`
	// acked of them acknowledged all of them as they are now.
	// +required
	Acked int32 `json:"acked"`
}

// OutlierPolicy makes Envoy eject the hosts of a Service that keep failing.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=outlierpolicies,scope=Namespaced,shortName=op,categories=autohealer
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Clusters",type=integer,JSONPath=`.status.clusters`
// +kubebuilder:printcolumn:name="Hosts",type=integer,JSONPath=`.status.hosts`
// +kubebuilder:printcolumn:name="Ejected",type=integer,JSONPath=`.status.ejected`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type OutlierPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the declared behaviour.
	// +required
	Spec OutlierPolicySpec `json:"spec"`

	// status is what the controller last saw and did.
	// +optional
	// +kubebuilder:default={observedGeneration:-1}
	Status OutlierPolicyStatus `json:"status,omitempty"`
}

// OutlierPolicyList is a list of OutlierPolicies.
// +kubebuilder:object:root=true
type OutlierPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items of the list.
	Items []OutlierPolicy `json:"items"`
}
