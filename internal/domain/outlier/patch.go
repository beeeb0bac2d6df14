package outlier

import (
	"cmp"
	"reflect"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// gatewayGroup is the Gateway API's.
const gatewayGroup = "gateway.networking.k8s.io"

// The kinds besides routes that patches for Envoy Gateway are made from and written to.
var (
	GatewayKind       = schema.GroupKind{Group: gatewayGroup, Kind: "Gateway"}
	TrafficPolicyKind = schema.GroupKind{Group: "gateway.envoyproxy.io", Kind: "BackendTrafficPolicy"}
	PatchPolicyKind   = schema.GroupKind{Group: "gateway.envoyproxy.io", Kind: "EnvoyPatchPolicy"}

	// PatchKinds are all of them. A cluster may not have their CustomResourceDefinitions.
	PatchKinds = []schema.GroupKind{GatewayKind, TrafficPolicyKind, PatchPolicyKind}
)

// PatchObjects are what the patches for Envoy Gateway are made from.
type PatchObjects struct {
	// Gateways that Autohealer may patch.
	Gateways []Gateway
	Routes   []GatewayRoute
	Services map[types.NamespacedName]*corev1.Service
	// TrafficPolicies are the BackendTrafficPolicies that configure outlier detection.
	TrafficPolicies []TrafficPolicy
}

// Gateway of the Gateway API.
type Gateway struct {
	types.NamespacedName
	Labels map[string]string
}

// Patched is a cluster of a Gateway that is to detect outliers, or that isn't.
type Patched struct {
	Gateway types.NamespacedName
	Cluster string
	// Policies for its backends, each once. Several have the same detection, unless there is an Obstacle.
	Policies []*Policy
	// Obstacle to patching, though there are policies.
	Obstacle Obstacle
	// TrafficPolicy is the BackendTrafficPolicy that configures detection instead.
	TrafficPolicy types.NamespacedName
}

// Detects says whether the cluster is to detect outliers.
func (p *Patched) Detects() bool { return p.Obstacle == NoObstacle && p.Policies[0].Detects() }

// Doubtful says whether the rules aren't evaluated yet for a policy for the cluster, which keeps what it has until then.
func (p *Patched) Doubtful() bool {
	return slices.ContainsFunc(p.Policies, func(of *Policy) bool { return of.Doubtful })
}

// Obstacle is why a cluster isn't patched.
type Obstacle string

// A BackendTrafficPolicy configures the same setting of the same cluster explicitly, so it takes precedence.
const (
	NoObstacle Obstacle = ""
	// DecidedByTrafficPolicy: a BackendTrafficPolicy configures detection.
	DecidedByTrafficPolicy Obstacle = "Decided"
	// BackendsDiffer: the backends of one cluster have different policies, or some have none.
	BackendsDiffer Obstacle = "Disagreed"
)

// Patches are the clusters of all Gateways that some policy is for, sorted by Gateway and cluster.
func (x *Index) Patches(objects PatchObjects) (all []Patched) {
	for _, route := range objects.Routes {
		for i := range objects.Gateways {
			gateway := &objects.Gateways[i]
			if !slices.Contains(route.Gateways, gateway.NamespacedName) {
				continue
			}
			traffic, decided := objects.name(gateway, &route)
			for _, c := range route.Clusters {
				p := Patched{Gateway: gateway.NamespacedName, Cluster: c.Name}
				if p.Policies, p.Obstacle = x.policiesFor(&route, c, objects.Services); len(p.Policies) == 0 {
					continue
				}
				if decided {
					p.Obstacle, p.TrafficPolicy = DecidedByTrafficPolicy, traffic
				}
				all = append(all, p)
			}
		}
	}
	slices.SortFunc(all, func(a, b Patched) int {
		return cmp.Or(compareNames(a.Gateway, b.Gateway), cmp.Compare(a.Cluster, b.Cluster))
	})
	return all
}

// policiesFor returns the policies for a cluster's backends.
func (x *Index) policiesFor(route *GatewayRoute, c RouteCluster, services map[types.NamespacedName]*corev1.Service) (policies []*Policy, obstacle Obstacle) {
	incomplete := c.HasOtherBackends
	for _, b := range c.Backends {
		p := x.mostSpecific(route, b, services[b.Service])
		if p == nil {
			incomplete = true
		} else if !slices.Contains(policies, p) {
			policies = append(policies, p)
		}
	}
	differs := slices.ContainsFunc(policies, func(p *Policy) bool { return !p.sameDetection(policies[0]) })
	if len(policies) > 0 && (incomplete || differs) {
		obstacle = BackendsDiffer
	}
	return policies, obstacle
}

// mostSpecific is the policy that holds for a backend; nil for none. It is of the Service's namespace, whose owners know how their hosts
// fail: policies for routes count only for routes in that namespace.
func (x *Index) mostSpecific(route *GatewayRoute, b RouteBackend, svc *corev1.Service) *Policy {
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	i := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return overTCP(p) && p.Port == b.Port })
	if i < 0 {
		return nil
	}
	key := Key{Service: b.Service, Port: b.Port}
	if route.Namespace == b.Service.Namespace {
		key.Route = route.RouteKey
	}
	for level := levels - 1; level >= 0; level-- {
		if policies := x.policiesAt(level, key, svc.Spec.Ports[i]); len(policies) > 0 {
			return policies[0]
		}
	}
	return nil
}

// sameDetection says whether two policies give the same configuration of Envoy, and neither is doubtful.
func (p *Policy) sameDetection(other *Policy) bool {
	if p == other {
		return true
	}
	if p.Doubtful || other.Doubtful || p.Detects() != other.Detects() {
		return false
	}
	return !p.Detects() || reflect.DeepEqual(p.clusterFields(), other.clusterFields())
}

// clusterFields are Envoy's fields of a cluster that detects outliers by a policy, by their JSON pointers, in types of unstructured content.
func (p *Policy) clusterFields() map[string]any {
	c := NewCluster(&Assignment{Policy: p})
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(
		&clusterv3.Cluster{OutlierDetection: c.OutlierDetection, CommonLbConfig: c.CommonLbConfig, ConnectTimeout: c.ConnectTimeout})
	utilruntime.Must(err) // a message of numbers and durations, which have an encoding
	var read map[string]any
	utilruntime.Must(json.Unmarshal(text, &read)) // of k8s.io, which keeps whole numbers
	fields := map[string]any{}
	for name, value := range read {
		if common, nested := value.(map[string]any); nested && name == "common_lb_config" { // where Envoy Gateway has fields of its own
			for inner, value := range common {
				fields["/"+name+"/"+inner] = value
			}
			continue
		}
		fields["/"+name] = value
	}
	return fields
}
