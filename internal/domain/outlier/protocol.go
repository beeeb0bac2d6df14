package outlier

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Protocol is what Envoy speaks with a cluster's hosts.
type Protocol string

// A cluster's configuration is the same for HTTP/1 and raw TCP; HTTP/2 without TLS has its own.
const (
	AnyProtocol Protocol = ""
	H2C         Protocol = "h2c"
)

// Protocol of the cluster.
func (a *Assignment) Protocol() Protocol {
	if a.HTTP2 {
		return H2C
	}
	return AnyProtocol
}

func overTCP(port corev1.ServicePort) bool {
	return port.Protocol == "" || port.Protocol == corev1.ProtocolTCP
}

// appProtocols are the values of a Service's appProtocol whose meaning is known, in lower case: Kubernetes' own
// (https://kubernetes.io/docs/concepts/services-networking/service/#application-protocol) and Istio's, which are names of IANA's where there is one
// (https://istio.io/latest/docs/ops/configuration/traffic-management/protocol-selection/). Istio has grpc-web spoken over HTTP/2, too.
var appProtocols = map[string]Backend{
	"": {}, "http": {}, "kubernetes.io/ws": {},
	"kubernetes.io/h2c": {HTTP2: true}, "h2c": {HTTP2: true}, "http2": {HTTP2: true}, "grpc": {HTTP2: true}, "grpc-web": {HTTP2: true},
	"https": {TLS: true}, "kubernetes.io/wss": {TLS: true}, "tls": {TLS: true},
	"tcp": {TCP: true}, "mongo": {TCP: true}, "mysql": {TCP: true}, "redis": {TCP: true},
}

// declaredProtocol is the protocol that a Service's port declares: HTTP/1.1 where it declares none that is known.
func declaredProtocol(port corev1.ServicePort) (b Backend, known bool) {
	b, known = appProtocols[strings.ToLower(or(port.AppProtocol, ""))]
	return b, known
}

// NotFollowed are the settings of the cluster's Service that Envoys don't follow, as sentences.
func (a *Assignment) NotFollowed() (all []string) {
	name := a.Key.Service.Name
	if a.Affinity {
		all = append(all, fmt.Sprintf("Service %s has sessionAffinity: ClientIP, and Envoys send each client to all hosts in turn", name))
	}
	if a.TCP || a.HTTP2 || a.TLS {
		return all
	}
	_, known := declaredProtocol(a.Port)
	switch named := strings.ToLower(a.Port.Name); {
	case !known:
		all = append(all, fmt.Sprintf("appProtocol %s of Service %s port %d isn't known, and Envoys speak HTTP/1.1 there, or pass bytes on: "+
			"write kubernetes.io/h2c where it speaks only HTTP/2, tcp where it speaks no HTTP", *a.Port.AppProtocol, name, a.Key.Port))
	case a.Port.AppProtocol == nil && (strings.HasPrefix(named, "grpc") || strings.HasPrefix(named, "http2") || strings.HasPrefix(named, "h2c")):
		all = append(all, fmt.Sprintf("port %s of Service %s has no appProtocol, and Envoys speak HTTP/1.1 there, whatever its name says: "+
			"write appProtocol: kubernetes.io/h2c where it speaks HTTP/2 or gRPC, else http", a.Port.Name, name))
	}
	return all
}

// withService adds the protocol that the Service declares for a port. Raw TCP stays as the route has it. Contour reads annotations where an
// HTTPProxy has no protocol.
func (b Backend) withService(route RouteKey, svc *corev1.Service, port corev1.ServicePort) Backend {
	protocol, _ := declaredProtocol(port)
	b.TLS = b.TLS || !b.TCP && route != (RouteKey{}) && protocol.TLS
	if route.Kind == kindHTTPProxy && !b.HTTP2 && !b.TLS {
		b.HTTP2 = !b.TCP && annotated(svc, "h2c", port)
		b.TLS = annotated(svc, "h2", port) || annotated(svc, "tls", port)
	}
	return b
}

// UpstreamProtocol is the prefix of the annotations that declare protocols of a Service's ports to Contour: h2, h2c or tls follows.
const UpstreamProtocol = "projectcontour.io/upstream-protocol."

// annotated says whether a Service's annotation has a port for a protocol of Contour's, by name or number.
func annotated(svc *corev1.Service, protocol string, port corev1.ServicePort) bool {
	ports := strings.Split(svc.Annotations[UpstreamProtocol+protocol], ",")
	return slices.ContainsFunc(ports, func(named string) bool {
		named = strings.TrimSpace(named)
		return named != "" && (named == port.Name || named == strconv.Itoa(int(port.Port)))
	})
}
