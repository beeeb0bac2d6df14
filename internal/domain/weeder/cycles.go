package weeder

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

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
