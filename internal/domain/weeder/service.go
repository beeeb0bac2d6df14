package weeder

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// service is what is known of a Service and of the pods behind it.
type service struct {
	// slices are its EndpointSlices' endpoints by slice name.
	slices map[string][]endpoint
	// backing are the pods in any of them, by name.
	backing map[string]endpoint
	// readyAt are the Ready transitions of those that are ready, as far as they were known when that was seen.
	readyAt map[string]time.Time
	// declared is the Service itself, nil while it isn't known to exist.
	declared *declaredService
}

// declaredService is what the planner reads of a Service object.
type declaredService struct {
	uid                       types.UID
	version                   string
	external, publishNotReady bool
	// selector is nil when there is none.
	selector labels.Selector
}

// endpoint is a pod behind a Service.
type endpoint struct {
	pod                string
	ready, terminating bool
}

func declaredOf(svc *corev1.Service) *declaredService {
	d := &declaredService{uid: svc.UID, version: svc.ResourceVersion, external: svc.Spec.Type == corev1.ServiceTypeExternalName, publishNotReady: svc.Spec.PublishNotReadyAddresses}
	if len(svc.Spec.Selector) > 0 {
		d.selector = labels.SelectorFromSet(svc.Spec.Selector)
	}
	return d
}

// endpointsOf reads a slice's endpoints that are pods; others have no readiness that anyone reports. A missing condition
// counts as the API says: ready and serving are true, terminating is false. Ready alone isn't the pod's readiness: a
// Service that publishes not-ready addresses has it always true.
func endpointsOf(slice *discoveryv1.EndpointSlice) []endpoint {
	endpoints := make([]endpoint, 0, len(slice.Endpoints))
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
			continue
		}
		terminating := e.Conditions.Terminating != nil && *e.Conditions.Terminating
		ready := isTrue(e.Conditions.Ready) && isTrue(e.Conditions.Serving) && !terminating
		endpoints = append(endpoints, endpoint{pod: e.TargetRef.Name, ready: ready, terminating: terminating})
	}
	return endpoints
}

func isTrue(claim *bool) bool { return claim == nil || *claim }

// setSlice takes in a slice's endpoints; nil removes the slice.
func (s *service) setSlice(slice string, endpoints []endpoint) {
	if endpoints == nil {
		delete(s.slices, slice)
	} else {
		s.slices[slice] = endpoints
	}
	s.backing = make(map[string]endpoint, len(s.backing))
	for _, slice := range s.slices {
		for _, e := range slice { // a dual-stack Service lists each pod twice
			b := s.backing[e.pod]
			s.backing[e.pod] = endpoint{pod: e.pod, ready: b.ready || e.ready, terminating: b.terminating || e.terminating}
		}
	}
	maps.DeleteFunc(s.readyAt, func(name string, _ time.Time) bool { return !s.backing[name].ready })
}

// ready says whether the Service is Ready. One without endpoints isn't.
func (s *service) ready(all bool) bool {
	some := false
	for _, e := range s.backing {
		if all && !e.ready && !e.terminating {
			return false
		}
		some = some || e.ready
	}
	return some
}

// backs says whether a pod is one of the Service's own, ready or not.
func (s *service) backs(p *Pod) bool {
	if s == nil {
		return false
	}
	if _, ok := s.backing[p.Name]; ok {
		return true
	}
	return s.declared != nil && s.declared.selector != nil && s.declared.selector.Matches(labels.Set(p.Labels))
}

// readySince is when the Service became Ready as its ready pods' kubelets report: when the first of them did, or, where all
// must be ready, the last. Pods are those of its namespace; missing says that one of them isn't known to be ready.
func (s *service) readySince(all bool, pods map[string]*podState) (since time.Time, missing bool) {
	for name, e := range s.backing {
		if !e.ready {
			continue
		}
		p := pods[name]
		switch {
		case p == nil || !p.Ready:
			missing = true
		case since.IsZero() || p.ReadySince.Before(since) != all:
			since = p.ReadySince
		}
	}
	return since, missing
}

// latestReady is the latest Ready transition of its ready pods, as it was when each was seen ready in a slice first: a transition
// that is observed later may precede the event that the pod was notReady.
func (s *service) latestReady(pods map[string]*podState) (latest time.Time) {
	for name, e := range s.backing {
		if p := pods[name]; e.ready && s.readyAt[name].IsZero() && p != nil && p.Ready {
			s.readyAt[name] = p.ReadySince
		}
		latest = timing.Later(latest, s.readyAt[name])
	}
	return latest
}

// mayAct: its deletions count for cycles, also while it isn't known whether it may act.
func (cs *configState) mayAct() bool {
	return cs.state != lifecycle.Refused && cs.state != lifecycle.Forbidden && !cs.Observe
}

// actors are the configs whose deletions count for cycles.
type actors struct {
	*State
	// counts says which of the stored configs do.
	counts func(*configState) bool
	// also is one that isn't stored and does, with its claims; nil for none.
	also   *configState
	claims claims
}

// acting are those of the stored configs that may act.
func (s *State) acting() *actors { return &actors{State: s, counts: (*configState).mayAct} }

// backsWatched says whether the pod is an endpoint of a Service that one of them watches.
func (a *actors) backsWatched(p *podState) bool {
	serves := func(cs *configState) bool {
		for name := range cs.Services {
			if a.isEndpoint(p, name) {
				return true
			}
		}
		return false
	}
	for cs := range a.applyingTo(p.Namespace) {
		if a.counts(cs) && serves(cs) {
			return true
		}
	}
	return a.also != nil && serves(a.also)
}

// dependsOn are the Services for whose recovery they would delete pods behind a Service.
func (a *actors) dependsOn(service types.NamespacedName) []string {
	on := sets.New[string]()
	for name := range a.backing(service) {
		if p := a.pods[service.Namespace][name]; p != nil {
			on.Insert(a.claims.of(p.Pod)...)
			for c := range a.claimsOn(p.Pod, a.counts) {
				on.Insert(c.service)
			}
		}
	}
	return sets.List(on.Delete(service.Name)) // its own pods are reported apart from cycles
}

// cycle is a way on which a Service's recovery comes back to it by the deletion of the pod for it: from a Service behind which
// the pod is, over pods that these configs would delete, to the Service itself; "" when there is none. It is computed for each
// deletion: the rules look at what there is when a config is written, and pods, Services and other configs come later.
func (a *actors) cycle(p *podState, service string) string {
	if !a.backsWatched(p) { // hardly any dependent does
		return ""
	}
	next := func(service string) []string {
		return a.dependsOn(types.NamespacedName{Namespace: p.Namespace, Name: service})
	}
	path := shortestPath(service, next, func(on string) bool { return on != service && a.isEndpoint(p, on) })
	if path == nil {
		return ""
	}
	return strings.Join(append([]string{service}, path...), " → ")
}

// shortestPath goes from a Service to those that it waits for, up to an end. It gives the way back; nil when there is none.
func shortestPath(from string, next func(string) []string, end func(string) bool) (back []string) {
	before := map[string]string{from: ""}
	for frontier := []string{from}; len(frontier) > 0; frontier = frontier[1:] {
		for _, on := range next(frontier[0]) {
			if end(on) {
				back = []string{on}
				for at := frontier[0]; at != ""; at = before[at] {
					back = append(back, at)
				}
				return back
			}
			if _, seen := before[on]; !seen {
				before[on] = frontier[0]
				frontier = append(frontier, on)
			}
		}
	}
	return nil
}

// countCycles finds, for each of the config's Services, the shortest way on which its recovery comes back to it. It goes from
// each Service to those that it waits for, and so meets nothing but what the config has to do with.
func (f *forecaster) countCycles(namespace string) {
	enforcing := &actors{State: f.known, counts: f.enforces, also: f.config, claims: f.claims}
	waits := map[string][]string{}
	next := func(service string) []string {
		on, known := waits[service]
		if !known {
			on = enforcing.dependsOn(types.NamespacedName{Namespace: namespace, Name: service})
			waits[service] = on
		}
		return on
	}
	found := sets.New[string]() // from each of their Services
	for service := range f.config.Services {
		path := shortestPath(service, next, func(on string) bool { return on == service })
		if path == nil {
			continue
		}
		path = path[1:] // each once, from the first of the names on: so it is the same from wherever it was found
		first := slices.Index(path, slices.Min(path))
		path = slices.Concat(path[first:], path[:first+1])
		found.Insert(namespace + ": " + strings.Join(path, " → "))
	}
	for path := range found {
		sample.Add(&f.Cycles, &f.CyclePaths, path)
	}
}

// isEndpoint says whether the pod is one of those behind a Service, by its slices.
func (s *State) isEndpoint(p *podState, service string) bool {
	_, backs := s.backing(types.NamespacedName{Namespace: p.Namespace, Name: service})[p.Name]
	return backs
}

// backing are the pods behind a Service, by name.
func (s *State) backing(service types.NamespacedName) map[string]endpoint {
	if svc := s.services[service]; svc != nil {
		return svc.backing
	}
	return nil
}
