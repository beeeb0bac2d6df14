package outlier

import (
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
