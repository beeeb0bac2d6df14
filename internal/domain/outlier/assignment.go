package outlier

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Key names a cluster: a port of a Service, for all or for one route.
type Key struct {
	Service types.NamespacedName
	Port    int32
	// Route is empty for the cluster that all share.
	Route RouteKey
}

// String is the cluster's name: namespace/service/port, with @kind/route for a route's.
func (k Key) String() string {
	name := k.Service.Namespace + "/" + k.Service.Name + "/" + strconv.Itoa(int(k.Port))
	if k.Route != (RouteKey{}) {
		name += "@" + strings.ToLower(k.Route.Kind) + "/" + k.Route.Name
	}
	return name
}

// ParseKey reads a cluster's name; ok is false for one that isn't Autohealer's.
func ParseKey(name string) (k Key, ok bool) {
	shared, route, hasRoute := strings.Cut(name, "@")
	parts := strings.Split(shared, "/")
	if len(parts) != 3 {
		return Key{}, false
	}
	port, err := strconv.ParseInt(parts[2], 10, 32)
	if err != nil {
		return Key{}, false
	}
	k = Key{Service: types.NamespacedName{Namespace: parts[0], Name: parts[1]}, Port: int32(port)}
	if hasRoute {
		kind, named, _ := strings.Cut(route, "/")
		for _, known := range RouteKinds {
			if strings.ToLower(known.Kind) == kind {
				k.Route = RouteKey{known.Kind, named}
			}
		}
	}
	return k, k.String() == name
}

// Level is how specific a policy is for a cluster.
type Level int

// The levels, least specific first.
const (
	LevelGlobal Level = iota
	LevelNamespace
	LevelRoute
	LevelService
	LevelPort
	LevelBackend
	levels
)

// String is the level's name in messages.
func (l Level) String() string {
	return [levels]string{"the cluster's default", "the namespace's default", "the route", "the Service", "the Service's port", "the route's backend"}[l]
}

// Assignment is a cluster with the policies for it.
type Assignment struct {
	Key Key
	// Port as the Service has it; of one that the Service no longer has, its number.
	Port corev1.ServicePort
	// TCP: raw TCP is sent there. HTTP2: only HTTP/2.
	TCP, HTTP2 bool
	// TLS: its route sends there over TLS, whose names, certificates and authorities Autohealer doesn't know. Then it is a cluster that was
	// served before, and no policy holds for it.
	TLS bool
	// Affinity: the Service has sessionAffinity ClientIP.
	Affinity bool
	// Policy that holds; nil for none.
	Policy *Policy
	Level  Level
	// Overridden are less specific, the most specific first. Conflicted have a target at the level of an older one.
	Overridden, Conflicted []*Policy
}

// Assign returns the clusters of a Service, sorted by name: one for each TCP port that a policy is for, one for each route to it that a
// policy is for, and those that were served before. The latter stay even without a policy, because removing a cluster drops its traffic.
func (x *Index) Assign(svc *corev1.Service, served []Key) []*Assignment {
	name := types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}
	found := map[Key]*Assignment{}
	if svc.Spec.Type != corev1.ServiceTypeExternalName { // which has no endpoints
		x.assignAll(found, svc, name)
	}
	for _, key := range served {
		if found[key] == nil && key.Service == name {
			found[key] = x.assignServed(key, svc)
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *Assignment) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
}

// assignAll finds a Service's clusters that some policy is for.
func (x *Index) assignAll(found map[Key]*Assignment, svc *corev1.Service, name types.NamespacedName) {
	for _, port := range svc.Spec.Ports {
		if !overTCP(port) {
			continue
		}
		if a := x.assign(Key{Service: name, Port: port.Port}, svc, port); a.Policy != nil {
			found[a.Key] = a
		}
		for _, r := range x.namespace(svc.Namespace).edges[portID{svc.Name, port.Port}] {
			if a := x.assign(Key{name, port.Port, r.RouteKey}, svc, port); !a.TLS {
				found[a.Key] = a
			}
		}
	}
}

// assignServed assigns a cluster that was served before. No policy holds for one whose Service is of type ExternalName now.
func (x *Index) assignServed(key Key, svc *corev1.Service) *Assignment {
	port := corev1.ServicePort{Port: key.Port}
	if i := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return overTCP(p) && p.Port == key.Port }); i >= 0 {
		port = svc.Spec.Ports[i]
	}
	a := x.assign(key, svc, port)
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		a.Policy, a.Overridden, a.Conflicted = nil, nil, nil
	}
	return a
}

// assign finds the most specific policy for a cluster.
func (x *Index) assign(key Key, svc *corev1.Service, port corev1.ServicePort) *Assignment {
	protocol, _ := declaredProtocol(port)
	a := &Assignment{Key: key, Port: port, TCP: protocol.TCP, HTTP2: protocol.HTTP2, Affinity: svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP}
	for _, b := range x.backends(key) {
		b = b.withService(key.Route, svc, port)
		a.TCP, a.HTTP2, a.TLS = a.TCP || b.TCP, a.HTTP2 || b.HTTP2, a.TLS || b.TLS
	}
	if a.TLS {
		return a
	}
	for level := levels - 1; level >= 0; level-- {
		for i, p := range x.policiesAt(level, key, port) {
			switch {
			case i > 0:
				a.Conflicted = append(a.Conflicted, p)
			case a.Policy == nil:
				a.Policy, a.Level = p, level
			case a.Policy != p:
				a.Overridden = append(a.Overridden, p)
			}
		}
	}
	return a
}

// backends are the route's entries for the Service's port of a cluster.
func (x *Index) backends(key Key) []Backend {
	r := x.namespace(key.Service.Namespace).routes[key.Route]
	if r == nil { // it was deleted, or isn't read yet
		return []Backend{{TCP: key.Route.forBytes(), HTTP2: key.Route.Kind == kindGRPCRoute}}
	}
	return slices.DeleteFunc(slices.Clone(r.Backends), func(b Backend) bool { return b.Service != key.Service.Name || b.Port != key.Port })
}

// OverTLS names the target's Services that its route sends to over TLS, as service:port; "" for none. Envoys get no clusters for them.
func (x *Index) OverTLS(namespace string, ref v1alpha1.OutlierTargetReference, services []*corev1.Service) string {
	if ref.Kind == kindService {
		return ""
	}
	var all []string
	for _, p := range x.find(namespace, ref, services).Ports {
		key := Key{types.NamespacedName{Namespace: namespace, Name: p.Service.Name}, p.Port.Port, RouteKey{ref.Kind, ref.Name}}
		if x.assign(key, p.Service, p.Port).TLS {
			all = append(all, fmt.Sprintf("%s:%d", p.Service.Name, p.Port.Port))
		}
	}
	return strings.Join(all, ", ")
}

// IsFor says whether a cluster belongs to a target in the cluster's namespace.
func (a *Assignment) IsFor(ref v1alpha1.OutlierTargetReference) bool {
	if ref.Kind == kindService {
		return ref.Name == a.Key.Service.Name && isSection(a.Port, ref.SectionName)
	}
	return a.Key.Route == RouteKey{ref.Kind, ref.Name} &&
		(ref.Backend == nil || ref.Backend.Name == a.Key.Service.Name && ref.Backend.Port == a.Key.Port)
}
