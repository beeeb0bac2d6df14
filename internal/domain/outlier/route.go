package outlier

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// RouteKinds are the kinds of routes that a policy may have as a target. A cluster may not have their CustomResourceDefinitions. They are
// read as unstructured content: only their backends are needed, Contour's types would import all of Contour, and a cluster may serve any
// version of the Gateway API.
var RouteKinds = []schema.GroupKind{
	{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"},
	{Group: "gateway.networking.k8s.io", Kind: kindGRPCRoute},
	{Group: "gateway.networking.k8s.io", Kind: kindTCPRoute},
	{Group: "gateway.networking.k8s.io", Kind: kindTLSRoute},
	{Group: "projectcontour.io", Kind: kindHTTPProxy},
}

const (
	kindGRPCRoute = "GRPCRoute"
	kindTCPRoute  = "TCPRoute"
	kindTLSRoute  = "TLSRoute"
	kindHTTPProxy = "HTTPProxy"
)

// RouteKey names a route of a namespace. Its kinds have different names, whatever their groups.
type RouteKey struct{ Kind, Name string }

// forBytes says whether the route forwards raw TCP: a TLSRoute's is TLS that is passed through, or was terminated.
func (k RouteKey) forBytes() bool { return k.Kind == kindTCPRoute || k.Kind == kindTLSRoute }

// Route is a route with its backends in its namespace, in its order, each port once.
type Route struct {
	Namespace string
	RouteKey
	Backends []Backend
}

// Backend is a port of a Service that a route sends traffic to.
type Backend struct {
	Service string
	Port    int32
	// TCP: raw TCP is sent there. HTTP2: only HTTP/2. TLS: all of it over TLS.
	TCP, HTTP2, TLS bool
}

// ReadRoute reads an object of one of the RouteKinds. What it can't parse it leaves out: the route's own controller reports that. Services
// of other namespaces are left out too: a policy applies to its own namespace.
func ReadRoute(object map[string]any) Route {
	u := unstructured.Unstructured{Object: object}
	r := Route{Namespace: u.GetNamespace(), RouteKey: RouteKey{u.GetKind(), u.GetName()}}
	spec, _ := object["spec"].(map[string]any)
	if r.Kind == kindHTTPProxy {
		r.readHTTPProxy(spec)
		return r
	}
	for _, rule := range entries(spec["rules"]) {
		for _, ref := range entries(rule["backendRefs"]) {
			group, _ := ref["group"].(string)
			kind, hasKind := ref["kind"].(string)
			namespace, hasNamespace := ref["namespace"].(string)
			if group == "" && (!hasKind || kind == "Service") && (!hasNamespace || namespace == r.Namespace) {
				r.add(ref, Backend{TCP: r.forBytes(), HTTP2: r.Kind == kindGRPCRoute})
			}
		}
	}
	return r
}

func (r *Route) readHTTPProxy(spec map[string]any) {
	for _, route := range entries(spec["routes"]) {
		for _, service := range entries(route["services"]) {
			r.add(service, backendProtocol(service, false))
		}
	}
	proxy, _ := spec["tcpproxy"].(map[string]any)
	for _, service := range entries(proxy["services"]) {
		r.add(service, backendProtocol(service, true))
	}
}

// backendProtocol is the protocol that an HTTPProxy declares for one of its services. Its h2 is HTTP/2 over TLS.
func backendProtocol(service map[string]any, tcp bool) Backend {
	protocol, _ := service["protocol"].(string)
	return Backend{TCP: tcp, HTTP2: !tcp && protocol == "h2c", TLS: protocol == "h2" || protocol == "tls"}
}

// add adds a backend by its name and port, or merges it with the one that the route has already: TCP only if both are.
func (r *Route) add(ref map[string]any, b Backend) {
	name, _ := ref["name"].(string)
	var port int64
	switch p := ref["port"].(type) {
	case int64:
		port = p
	case float64:
		port = int64(p)
	}
	if name == "" || port < 1 || port > 65535 {
		return
	}
	b.Service, b.Port = name, int32(port)
	for i := range r.Backends {
		if existing := &r.Backends[i]; existing.Service == b.Service && existing.Port == b.Port {
			existing.TCP, existing.HTTP2, existing.TLS = existing.TCP && b.TCP, existing.HTTP2 || b.HTTP2, existing.TLS || b.TLS
			return
		}
	}
	r.Backends = append(r.Backends, b)
}

// entries are the entries of a list that are maps.
func entries(list any) (all []map[string]any) {
	items, _ := list.([]any)
	for _, item := range items {
		if m, isMap := item.(map[string]any); isMap {
			all = append(all, m)
		}
	}
	return all
}

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
