package outlier

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// TrafficPolicy is a BackendTrafficPolicy of Envoy Gateway's.
type TrafficPolicy struct {
	types.NamespacedName
	targets   []trafficTarget
	selectors []trafficSelector
}

type trafficTarget struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

type trafficSelector struct {
	Group *string `json:"group"`
	Kind  string  `json:"kind"`
	// Namespaces: it selects in other namespaces too.
	Namespaces *struct{} `json:"namespaces"`

	metav1.LabelSelector `json:",inline"`
}

// targetObject is a route or a Gateway.
type targetObject struct {
	kind string
	types.NamespacedName
	labels map[string]string
}

// ReadTrafficPolicy reads a BackendTrafficPolicy; detects is false where it configures neither passive health checks nor the panic threshold.
func ReadTrafficPolicy(object map[string]any) (p TrafficPolicy, detects bool, err error) {
	var read struct {
		metav1.ObjectMeta `json:"metadata"`

		Spec struct {
			HealthCheck struct {
				Passive        *struct{} `json:"passive"`
				PanicThreshold *int32    `json:"panicThreshold"`
			} `json:"healthCheck"`
			TargetRef       *trafficTarget    `json:"targetRef"`
			TargetRefs      []trafficTarget   `json:"targetRefs"`
			TargetSelectors []trafficSelector `json:"targetSelectors"`
		} `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &read); err != nil {
		return p, false, fmt.Errorf("read a BackendTrafficPolicy: %w", err)
	}
	p = TrafficPolicy{types.NamespacedName{Namespace: read.Namespace, Name: read.Name}, read.Spec.TargetRefs, read.Spec.TargetSelectors}
	if read.Spec.TargetRef != nil {
		p.targets = append(p.targets, *read.Spec.TargetRef)
	}
	return p, read.Spec.HealthCheck.Passive != nil || read.Spec.HealthCheck.PanicThreshold != nil, nil
}

// decidingPolicy returns the BackendTrafficPolicy that configures detection for a route of a Gateway: one for the route, else one for the
// Gateway. One for a section counts for the whole route, and one for a Gateway also where another one for the route overrides it: its author
// expects Envoy Gateway to follow it.
func (o *PatchObjects) name(gateway *Gateway, route *GatewayRoute) (name types.NamespacedName, found bool) {
	for _, object := range []targetObject{
		{route.Kind, types.NamespacedName{Namespace: route.Namespace, Name: route.Name}, route.Labels}, {"Gateway", gateway.NamespacedName, gateway.Labels},
	} {
		for i := range o.TrafficPolicies {
			if o.TrafficPolicies[i].isFor(object) {
				return o.TrafficPolicies[i].NamespacedName, true
			}
		}
	}
	return name, false
}

// isFor says whether a policy has a route or a Gateway as a target.
func (p *TrafficPolicy) isFor(object targetObject) bool {
	target := trafficTarget{gatewayGroup, object.kind, object.Name}
	if p.Namespace == object.Namespace && slices.Contains(p.targets, target) {
		return true
	}
	return slices.ContainsFunc(p.selectors, func(s trafficSelector) bool {
		if or(s.Group, gatewayGroup) != gatewayGroup || s.Kind != object.kind || s.Namespaces == nil && p.Namespace != object.Namespace {
			return false
		}
		selector, err := metav1.LabelSelectorAsSelector(&s.LabelSelector)
		return err == nil && selector.Matches(labels.Set(object.labels))
	})
}
