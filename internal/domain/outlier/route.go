package outlier

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// RouteKinds are the kinds of routes that a policy may have as a target. Their definitions being absent is normal. They are
// read field by field: of all that a route says only its Services matter, Contour's types come with all of Contour, and a
// cluster may serve any version of Gateway API's.
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

// forBytes says whether the route passes on nothing but bytes: those of a TLSRoute are TLS between others, or are no TLS any more.
func (k RouteKey) forBytes() bool { return k.Kind == kindTCPRoute || k.Kind == kindTLSRoute }

// Route is what a route says of Services in its namespace, in its order, each port once.
type Route struct {
	Namespace string
	RouteKey
	Backends []Backend
}

// Backend is a port of a Service that a route sends traffic to.
type Backend struct {
	Service string
	Port    int32
	// TCP: nothing but bytes is sent there. HTTP2: nothing but HTTP/2. TLS: all of it over TLS.
	TCP, HTTP2, TLS bool
}

// ReadRoute reads an object of one of the RouteKinds. What it can't understand it leaves out: the route's own controller says
// what is wrong with it. Services of other namespaces are left out too; they aren't for a policy of this one to judge.
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
			kind, named := ref["kind"].(string)
			namespace, elsewhere := ref["namespace"].(string)
			if group == "" && (!named || kind == "Service") && (!elsewhere || namespace == r.Namespace) {
				r.add(ref, Backend{TCP: r.forBytes(), HTTP2: r.Kind == kindGRPCRoute})
			}
		}
	}
	return r
}

func (r *Route) readHTTPProxy(spec map[string]any) {
	for _, route := range entries(spec["routes"]) {
		for _, service := range entries(route["services"]) {
			r.add(service, speaking(service, false))
		}
	}
	proxy, _ := spec["tcpproxy"].(map[string]any)
	for _, service := range entries(proxy["services"]) {
		r.add(service, speaking(service, true))
	}
}

// speaking is what an HTTPProxy says of how to speak with one of its services. Its h2 is HTTP/2 over TLS.
func speaking(service map[string]any, tcp bool) Backend {
	protocol, _ := service["protocol"].(string)
	return Backend{TCP: tcp, HTTP2: !tcp && protocol == "h2c", TLS: protocol == "h2" || protocol == "tls"}
}

// add a backend by its name and port, unless it is there already. What is sent HTTP somewhere isn't for bytes only.
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
		if there := &r.Backends[i]; there.Service == b.Service && there.Port == b.Port {
			there.TCP, there.HTTP2, there.TLS = there.TCP && b.TCP, there.HTTP2 || b.HTTP2, there.TLS || b.TLS
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
