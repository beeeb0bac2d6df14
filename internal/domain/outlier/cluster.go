package outlier

import (
	"cmp"
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// http2 has Envoy speak HTTP/2 with hosts that speak nothing else, as gRPC servers.
var http2 = func() map[string]*anypb.Any {
	options, err := anypb.New(&httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}},
		},
	}})
	utilruntime.Must(err) // a constant
	return map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options}
}()

// NewCluster makes Envoy's message for a cluster. Its service_name is the xDS server's to set.
func NewCluster(a *Assignment) *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:                 a.Key.String(),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ResourceApiVersion:    corev3.ApiVersion_V3,
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			// A changed cluster waits for its endpoints without a timeout, while the one before it stays in use: after a timeout it would
			// replace that one without endpoints.
			InitialFetchTimeout: durationpb.New(0),
		}},
	}
	if a.Policy.Detects() {
		c.OutlierDetection = detection(&a.Policy.Settings)
		c.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{
			HealthyPanicThreshold: &typev3.Percent{Value: float64(a.Policy.Settings.PanicThreshold)},
		}
		if !a.Policy.Settings.Observe {
			// By default a host that is ejected within a second of another one gets requests until that second is over.
			c.CommonLbConfig.UpdateMergeWindow = durationpb.New(0)
			c.ConnectTimeout = duration(a.Policy.Settings.ConnectTimeout)
		}
	}
	if a.HTTP2 {
		c.TypedExtensionProtocolOptions = http2
	}
	return c
}

// detection is Envoy's message for settings. Detection by success rates and gateway failures, which Envoy has on by default, is off: the
// API doesn't have it.
func detection(s *Settings) *clusterv3.OutlierDetection {
	none := wrapperspb.UInt32(0)
	d := &clusterv3.OutlierDetection{
		EnforcingSuccessRate: none, EnforcingConsecutiveGatewayFailure: none,
		Interval: duration(s.Interval), BaseEjectionTime: duration(s.Base), MaxEjectionTime: duration(s.Max), MaxEjectionTimeJitter: duration(s.Jitter),
		MaxEjectionPercent: wrap(s.EjectionPercent), SplitExternalLocalOriginErrors: s.Split,
	}
	switch {
	case s.ServerErrors == nil:
	case *s.ServerErrors == 0:
		d.EnforcingConsecutive_5Xx = none
	default:
		d.Consecutive_5Xx, d.EnforcingConsecutive_5Xx = wrap(s.ServerErrors), wrapperspb.UInt32(100)
	}
	if s.Split {
		d.EnforcingLocalOriginSuccessRate = none
		if s.LocalOriginThreshold() == 0 {
			d.EnforcingConsecutiveLocalOriginFailure = none
		} else {
			d.ConsecutiveLocalOriginFailure = wrap(s.LocalOriginFailures)
		}
	}
	if s.AlwaysEjectOneHost && s.MaxEjectionPercent() < 100 {
		d.AlwaysEjectOneHost = wrapperspb.Bool(true)
	}
	if s.Observe {
		d.EnforcingConsecutive_5Xx = none
		if s.Split {
			d.EnforcingConsecutiveLocalOriginFailure = none
		}
	}
	return d
}

func duration(d *time.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(*d)
}

func wrap(n *uint32) *wrapperspb.UInt32Value {
	if n == nil {
		return nil
	}
	return wrapperspb.UInt32(*n)
}

// Host is an endpoint of a cluster.
type Host struct {
	Address string
	Port    uint32
	Zone    string
	// Pod is the pod's name, in the Service's namespace, and PodUID its UID; "" when the endpoint isn't a pod.
	Pod    string
	PodUID types.UID
}

// HostsOf are the ready endpoints of a Service's port, sorted. While none is ready they are those that are terminating and still serve, as
// for kube-proxy. Of a dual-stack Service only the addresses of its first family are used: else a pod would be two hosts, which would be
// ejected separately.
func HostsOf(svc *corev1.Service, port corev1.ServicePort, all []*discoveryv1.EndpointSlice) []Host {
	family := familyOf(svc, all)
	var ready, terminating []Host
	for _, slice := range all {
		number := portOf(slice, port)
		if slice.AddressType != family || number == 0 {
			continue
		}
		for i := range slice.Endpoints {
			switch h, state := readEndpoint(&slice.Endpoints[i], number); state {
			case stateReady:
				ready = append(ready, h)
			case stateTerminating:
				terminating = append(terminating, h)
			}
		}
	}
	if len(ready) == 0 {
		ready = terminating
	}
	slices.SortFunc(ready, func(a, b Host) int {
		return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Pod, b.Pod))
	})
	return slices.CompactFunc(ready, func(a, b Host) bool { return a.Zone == b.Zone && a.Address == b.Address && a.Port == b.Port })
}

// state of an endpoint.
type state int

const (
	stateNotServing state = iota
	stateReady
	stateTerminating
)

func readEndpoint(e *discoveryv1.Endpoint, port uint32) (Host, state) {
	if len(e.Addresses) == 0 {
		return Host{}, stateNotServing
	}
	h := Host{Address: e.Addresses[0], Port: port, Zone: or(e.Zone, "")}
	if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
		h.Pod, h.PodUID = e.TargetRef.Name, e.TargetRef.UID
	}
	switch c := e.Conditions; {
	case or(c.Ready, true):
		return h, stateReady
	case or(c.Serving, false) && or(c.Terminating, false):
		return h, stateTerminating
	}
	return h, stateNotServing
}

// familyOf is the first of the Service's address families that it has slices of. FQDN slices are ignored: Envoy's EDS endpoints are IPs.
func familyOf(svc *corev1.Service, all []*discoveryv1.EndpointSlice) discoveryv1.AddressType {
	has := func(t discoveryv1.AddressType) bool {
		return slices.ContainsFunc(all, func(slice *discoveryv1.EndpointSlice) bool { return slice.AddressType == t })
	}
	for _, family := range svc.Spec.IPFamilies {
		if t := discoveryv1.AddressType(family); has(t) {
			return t
		}
	}
	if !has(discoveryv1.AddressTypeIPv4) && has(discoveryv1.AddressTypeIPv6) {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}

// portOf is the number that a slice's endpoints have for a port of the Service; 0 for none.
func portOf(slice *discoveryv1.EndpointSlice, port corev1.ServicePort) uint32 {
	for _, p := range slice.Ports {
		if or(p.Name, "") == port.Name && or(p.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP && p.Port != nil {
			return uint32(*p.Port)
		}
	}
	return 0
}

// NewEndpoints makes Envoy's message for a cluster's hosts. The name under which a cluster subscribes to them is the xDS server's to set.
func NewEndpoints(name string, hosts []Host) *endpointv3.ClusterLoadAssignment {
	assignment := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	for i, h := range hosts {
		if i == 0 || hosts[i-1].Zone != h.Zone {
			locality := &endpointv3.LocalityLbEndpoints{}
			if h.Zone != "" {
				locality.Locality = &corev3.Locality{Zone: h.Zone}
			}
			assignment.Endpoints = append(assignment.Endpoints, locality)
		}
		in := assignment.Endpoints[len(assignment.Endpoints)-1]
		in.LbEndpoints = append(in.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: h.Address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: h.Port},
			}}}},
		}})
	}
	return assignment
}
