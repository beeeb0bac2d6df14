package outlier

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

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
