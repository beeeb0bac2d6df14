package outlier

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Protocol is how Envoy is told to speak with a cluster's hosts.
type Protocol string

// HTTP/1 and bytes alone are all the same to a cluster; HTTP/2 without TLS isn't.
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

// speaksTCP says whether a Service declares that a port is for neither HTTP nor anything else that Envoy looks into.
func speaksTCP(port corev1.ServicePort) bool { return or(port.AppProtocol, "") == "tcp" }

// speaksHTTP2 says whether a Service declares that a port is for HTTP/2 without TLS.
func speaksHTTP2(port corev1.ServicePort) bool {
	protocol := or(port.AppProtocol, "")
	return protocol == "kubernetes.io/h2c" || protocol == "grpc"
}

// speaksTLS says whether a Service declares that a port is for HTTP over TLS.
func speaksTLS(port corev1.ServicePort) bool {
	protocol := or(port.AppProtocol, "")
	return protocol == "https" || protocol == "kubernetes.io/wss"
}

// over adds what the Service says of how to speak with a port. Bytes are passed on as they are, unless the route says otherwise.
// Contour reads annotations where an HTTPProxy says nothing.
func (b Backend) over(route RouteKey, svc *corev1.Service, port corev1.ServicePort) Backend {
	b.TLS = b.TLS || !b.TCP && route != (RouteKey{}) && speaksTLS(port)
	if route.Kind == kindHTTPProxy && !b.HTTP2 && !b.TLS {
		b.HTTP2 = !b.TCP && annotated(svc, "h2c", port)
		b.TLS = annotated(svc, "h2", port) || annotated(svc, "tls", port)
	}
	return b
}

// UpstreamProtocol begins the annotations by which Contour knows what a Service's ports speak: h2, h2c or tls follows.
const UpstreamProtocol = "projectcontour.io/upstream-protocol."

// annotated says whether a Service names a port for a protocol of Contour's, by its name or number.
func annotated(svc *corev1.Service, protocol string, port corev1.ServicePort) bool {
	ports := strings.Split(svc.Annotations[UpstreamProtocol+protocol], ",")
	return slices.ContainsFunc(ports, func(named string) bool {
		named = strings.TrimSpace(named)
		return named != "" && (named == port.Name || named == strconv.Itoa(int(port.Port)))
	})
}
