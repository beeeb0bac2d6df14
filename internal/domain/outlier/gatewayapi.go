package outlier

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// GatewayRoute is a route with the clusters that Envoy Gateway makes of it.
type GatewayRoute struct {
	Namespace string
	RouteKey
	Labels map[string]string
	// Gateways that accepted it, by its status.
	Gateways []types.NamespacedName
	Clusters []RouteCluster
}

// RouteCluster is a cluster that Envoy Gateway makes of a rule.
type RouteCluster struct {
	Name     string
	Backends []RouteBackend
	// HasOtherBackends: it also sends traffic to something that isn't a Service.
	HasOtherBackends bool
}

// RouteBackend is a Service's port that gets traffic from the route.
type RouteBackend struct {
	Service types.NamespacedName
	Port    int32
}

// gatewayRoute is what is read of a route of the Gateway API, in any of its versions.
type gatewayRoute struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Rules []struct {
			BackendRefs []gatewayBackend `json:"backendRefs"`
		} `json:"rules"`
	} `json:"spec"`
	Status struct {
		Parents []struct {
			ParentRef struct {
				Group     *string `json:"group"`
				Kind      *string `json:"kind"`
				Namespace *string `json:"namespace"`
				Name      string  `json:"name"`
			} `json:"parentRef"`
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"parents"`
	} `json:"status"`
}

type gatewayBackend struct {
	Group     string           `json:"group"`
	Kind      *string          `json:"kind"`
	Namespace *string          `json:"namespace"`
	Name      string           `json:"name"`
	Port      int32            `json:"port"`
	Weight    *int32           `json:"weight"`
	Filters   []map[string]any `json:"filters"`
}

// ReadGatewayRoute reads a route of one of the RouteKinds. An HTTPProxy has no Gateway.
func ReadGatewayRoute(kind string, object map[string]any) (r GatewayRoute, err error) {
	if kind == kindHTTPProxy {
		return r, nil
	}
	var read gatewayRoute
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &read); err != nil {
		return r, fmt.Errorf("read %s: %w", kind, err)
	}
	r = GatewayRoute{Namespace: read.Namespace, RouteKey: RouteKey{kind, read.Name}, Labels: read.Labels}
	for _, p := range read.Status.Parents {
		gateway := or(p.ParentRef.Group, gatewayGroup) == gatewayGroup && or(p.ParentRef.Kind, "Gateway") == "Gateway"
		name := types.NamespacedName{Namespace: or(p.ParentRef.Namespace, read.Namespace), Name: p.ParentRef.Name}
		accepted := slices.ContainsFunc(p.Conditions, func(c metav1.Condition) bool { return c.Type == "Accepted" && c.Status == metav1.ConditionTrue })
		if gateway && accepted && !slices.Contains(r.Gateways, name) { // once, however many of its listeners accepted it
			r.Gateways = append(r.Gateways, name)
		}
	}
	r.addClusters(&read)
	return r, nil
}

// addClusters adds the route's clusters, named as by Envoy Gateway. All rules of a route for raw TCP are one cluster; a rule with filters on
// single backends is one cluster for each backend.
func (r *GatewayRoute) addClusters(read *gatewayRoute) {
	prefix := fmt.Sprintf("%s/%s/%s/rule/", strings.ToLower(r.Kind), r.Namespace, r.Name)
	if r.forBytes() {
		var all RouteCluster
		for _, rule := range read.Spec.Rules {
			for _, b := range rule.BackendRefs {
				all.add(r.Namespace, b)
			}
		}
		all.Name = prefix + "-1"
		r.Clusters = append(r.Clusters, all)
		return
	}
	for i, rule := range read.Spec.Rules {
		one := RouteCluster{Name: fmt.Sprintf("%s%d", prefix, i)}
		filtered := slices.ContainsFunc(rule.BackendRefs, func(b gatewayBackend) bool { return len(b.Filters) > 0 })
		for j, b := range rule.BackendRefs {
			if filtered {
				one = RouteCluster{Name: fmt.Sprintf("%s%d/backend/%d", prefix, i, j)}
			}
			if one.add(r.Namespace, b); filtered && len(one.Backends) > 0 {
				r.Clusters = append(r.Clusters, one)
			}
		}
		if !filtered && len(one.Backends) > 0 {
			r.Clusters = append(r.Clusters, one)
		}
	}
}

// add adds a backend that gets traffic.
func (c *RouteCluster) add(namespace string, b gatewayBackend) {
	if or(b.Weight, 1) == 0 {
		return
	}
	if b.Group != "" || or(b.Kind, kindService) != kindService {
		c.HasOtherBackends = true
		return
	}
	backend := RouteBackend{types.NamespacedName{Namespace: or(b.Namespace, namespace), Name: b.Name}, b.Port}
	if !slices.Contains(c.Backends, backend) {
		c.Backends = append(c.Backends, backend)
	}
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

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
