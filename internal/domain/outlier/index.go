package outlier

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Objects are what policies are translated and forecast from. For a policy that isn't the cluster's default its own namespace is enough,
// with the policies of Autohealer's.
type Objects struct {
	Services []*corev1.Service
	// Slices by their Service.
	Slices   map[types.NamespacedName][]*discoveryv1.EndpointSlice
	Policies []*v1alpha1.OutlierPolicy
	Routes   []Route
	// Unread are the kinds of routes whose informers aren't synced.
	Unread map[string]bool
}

// servicePort is a port with its Service.
type servicePort struct {
	Service *corev1.Service
	Port    corev1.ServicePort
}

// foundTarget are the ports that a target selects. External: one of its Services is of type ExternalName. Portless are its Services without
// a TCP port.
type foundTarget struct {
	Ports    []servicePort
	External bool
	Portless []string
}

// missing is what doesn't exist of a target without ports, as text: the target itself, or the TCP ports of its Services.
func (f foundTarget) missing(target string) string {
	if len(f.Portless) > 0 {
		return "TCP port of Service " + strings.Join(f.Portless, ", ")
	}
	return target
}

// find returns the ports that a target selects.
func (x *Index) find(namespace string, ref v1alpha1.OutlierTargetReference, services []*corev1.Service) (found foundTarget) {
	for _, b := range x.backendsOf(namespace, ref) {
		i := slices.IndexFunc(services, func(s *corev1.Service) bool { return s.Namespace == namespace && s.Name == b.Service })
		if i < 0 {
			continue
		}
		if services[i].Spec.Type == corev1.ServiceTypeExternalName {
			found.External = true
			continue
		}
		if !slices.ContainsFunc(services[i].Spec.Ports, overTCP) {
			found.Portless = append(found.Portless, b.Service)
		}
		for _, port := range services[i].Spec.Ports {
			if (b.Port == 0 || b.Port == port.Port) && isSection(port, ref.SectionName) && overTCP(port) {
				found.Ports = append(found.Ports, servicePort{services[i], port})
			}
		}
	}
	return found
}

// backendsOf are the Services of a target, with port 0 for all ports.
func (x *Index) backendsOf(namespace string, ref v1alpha1.OutlierTargetReference) []Backend {
	if ref.Kind == kindService {
		return []Backend{{Service: ref.Name}}
	}
	r := x.namespace(namespace).routes[RouteKey{ref.Kind, ref.Name}]
	if r == nil {
		return nil
	}
	if ref.Backend == nil {
		return r.Backends
	}
	return slices.DeleteFunc(slices.Clone(r.Backends), func(b Backend) bool { return b.Service != ref.Backend.Name || b.Port != ref.Backend.Port })
}

// isSection says whether a section name selects a port: by its name, or by its number where it has none.
func isSection(port corev1.ServicePort, section string) bool {
	return section == "" || section == port.Name || port.Name == "" && section == fmt.Sprint(port.Port)
}

// TargetText is a target's name in messages.
func TargetText(ref v1alpha1.OutlierTargetReference) string {
	text := ref.Kind + " " + ref.Name
	if ref.SectionName != "" {
		text += ", port " + ref.SectionName
	}
	if ref.Backend != nil {
		text += fmt.Sprintf(", backend %s:%d", ref.Backend.Name, ref.Backend.Port)
	}
	return text
}

// Index finds the policies for clusters. It is immutable.
type Index struct {
	ownNamespace string
	// global is the cluster's default.
	global []*Policy
	// namespaces are those that have policies or routes. They are independent of each other.
	namespaces map[string]*namespaced
}

// namespaced is the part of an Index for one namespace.
type namespaced struct {
	// byTarget are the policies for a target, the oldest first.
	byTarget map[targetKey][]*Policy
	routes   map[RouteKey]*Route
	// edges are the routes with a policy that send traffic to a Service's port.
	edges map[portID][]*Route
}

// targetKey is a target with its section and backend. The kind of a default is Namespace.
type targetKey struct {
	kind, name, section string
	backend             v1alpha1.OutlierBackend
}

type portID struct {
	service string
	port    int32
}

// NewIndex makes an index of policies, of which none is being deleted, and routes. OwnNamespace is Autohealer's, whose default is the
// cluster's; "" when it isn't known, and then there is no cluster's default.
func NewIndex(policies []*Policy, routes []Route, ownNamespace string) *Index {
	x := &Index{ownNamespace: ownNamespace, namespaces: map[string]*namespaced{}}
	for _, p := range policies {
		if x.IsGlobal(p) {
			x.global = append(x.global, p)
		}
	}
	x.fill(policies, routes)
	return x
}

// With returns an index in which some namespaces have these policies and routes, and no others. Other namespaces, and the cluster's
// default, are unchanged.
func (x *Index) With(namespaces map[string]bool, policies []*Policy, routes []Route) *Index {
	next := &Index{ownNamespace: x.ownNamespace, global: x.global, namespaces: maps.Clone(x.namespaces)}
	for namespace := range namespaces {
		delete(next.namespaces, namespace)
	}
	next.fill(policies, routes)
	return next
}

// fill adds policies and routes to namespaces that are empty.
func (x *Index) fill(policies []*Policy, routes []Route) {
	for i := range routes {
		x.ensureNamespace(routes[i].Namespace).routes[routes[i].RouteKey] = &routes[i]
	}
	for _, p := range slices.SortedFunc(slices.Values(policies), older) {
		if x.IsGlobal(p) {
			continue
		}
		n := x.ensureNamespace(p.Namespace)
		if p.IsDefault() {
			n.add(targetKey{kind: kindNamespace}, p)
		}
		for _, ref := range p.Targets {
			n.add(keyOf(ref), p)
			if r := n.routes[RouteKey{ref.Kind, ref.Name}]; r != nil {
				n.addEdges(r, ref.Backend)
			}
		}
	}
}

// ensureNamespace returns the part for a namespace, to add to it.
func (x *Index) ensureNamespace(namespace string) *namespaced {
	n := x.namespaces[namespace]
	if n == nil {
		n = &namespaced{byTarget: map[targetKey][]*Policy{}, routes: map[RouteKey]*Route{}, edges: map[portID][]*Route{}}
		x.namespaces[namespace] = n
	}
	return n
}

// emptyNamespace is the part for a namespace without policies and routes.
var emptyNamespace = &namespaced{}

// namespace returns the part for a namespace, to read.
func (x *Index) namespace(namespace string) *namespaced {
	return cmp.Or(x.namespaces[namespace], emptyNamespace)
}

func keyOf(ref v1alpha1.OutlierTargetReference) targetKey {
	return targetKey{ref.Kind, ref.Name, ref.SectionName, or(ref.Backend, v1alpha1.OutlierBackend{})}
}

func (n *namespaced) add(key targetKey, p *Policy) {
	if !slices.Contains(n.byTarget[key], p) {
		n.byTarget[key] = append(n.byTarget[key], p)
	}
}

// addEdges of a route that has a policy, for all of its backends or for one.
func (n *namespaced) addEdges(r *Route, only *v1alpha1.OutlierBackend) {
	for _, b := range r.Backends {
		if only != nil && (only.Name != b.Service || only.Port != b.Port) {
			continue
		}
		id := portID{b.Service, b.Port}
		if !slices.Contains(n.edges[id], r) {
			n.edges[id] = append(n.edges[id], r)
		}
	}
}

// policiesAt are the policies for a cluster at a level, the oldest first.
func (x *Index) policiesAt(level Level, key Key, port corev1.ServicePort) []*Policy {
	namespace, target := key.Service.Namespace, targetKey{kind: kindService, name: key.Service.Name}
	switch level {
	case LevelBackend, LevelRoute:
		if key.Route == (RouteKey{}) {
			return nil
		}
		target.kind, target.name = key.Route.Kind, key.Route.Name
		if level == LevelBackend {
			target.backend = v1alpha1.OutlierBackend{Name: key.Service.Name, Port: key.Port}
		}
	case LevelPort:
		target.section = cmp.Or(port.Name, strconv.Itoa(int(key.Port)))
	case LevelNamespace:
		target = targetKey{kind: kindNamespace}
	case LevelGlobal:
		return x.global
	}
	return x.namespace(namespace).byTarget[target]
}

const (
	kindService   = "Service"
	kindNamespace = "Namespace"
)

// Missing says what doesn't exist of a target without a port of the namespace's Services; "" for one with a port.
func (x *Index) Missing(namespace string, ref v1alpha1.OutlierTargetReference, services []*corev1.Service) string {
	found := x.find(namespace, ref, services)
	if len(found.Ports) > 0 {
		return ""
	}
	return found.missing(TargetText(ref) + " with a TCP port")
}

// IsGlobal says whether a policy is the cluster's default.
func (x *Index) IsGlobal(p *Policy) bool { return p.IsDefault() && p.Namespace == x.ownNamespace }

// HasRoute says whether a namespace has a route, among those that are read.
func (x *Index) HasRoute(namespace string, route RouteKey) bool {
	return x.namespace(namespace).routes[route] != nil
}

// Holder is the oldest policy that has a target; nil when none does.
func (x *Index) Holder(namespace string, ref v1alpha1.OutlierTargetReference) *Policy {
	if all := x.namespace(namespace).byTarget[keyOf(ref)]; len(all) > 0 {
		return all[0]
	}
	return nil
}
