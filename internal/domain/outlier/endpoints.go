package outlier

import (
	"cmp"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

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
