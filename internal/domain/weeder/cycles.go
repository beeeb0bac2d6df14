package weeder

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// dependencies tell which Services pods depend on, by the configs that count.
type dependencies struct {
	*State
	// own is a config that isn't stored, and counts as well; nil for none.
	own *matcher
	// counts says which of the stored ones do.
	counts func(*configState) bool
}

// mayAct: its deletions count for cycles, also while it isn't known whether it may act.
func (cs *configState) mayAct() bool {
	return cs.state != lifecycle.Refused && cs.state != lifecycle.Forbidden && !cs.Observe
}

// of are the Services for whose recovery pods behind a Service would be deleted.
func (d dependencies) of(service types.NamespacedName) []string {
	on := sets.New[string]()
	for name := range d.backing(service) {
		p := d.pods[service.Namespace][name]
		if p == nil {
			continue
		}
		if d.own != nil {
			on.Insert(d.own.of(p.Pod)...)
		}
		for c := range d.claimsOn(p.Pod, d.counts) {
			on.Insert(c.service)
		}
	}
	return sets.List(on.Delete(service.Name)) // its own pods are told of apart from cycles
}

// serves says whether the pod stands behind a Service that a config names.
func (d dependencies) serves(p *podState) bool {
	names := func(c *Config) bool {
		for name := range c.Services {
			if d.stands(p, name) {
				return true
			}
		}
		return false
	}
	if d.own != nil && names(d.own.Config) {
		return true
	}
	for cs := range d.holdingIn(p.Namespace) {
		if d.counts(cs) && names(cs.Config) {
			return true
		}
	}
	return false
}

// cycle is a way on which a Service's recovery comes back to it by the deletion of the pod for it: from a Service behind which
// the pod stands, over pods that configs would delete, to the Service itself; "" when there is none. It is asked for each
// deletion: the rules look at what there is when a config is written, and pods, Services and other configs come later.
func (d dependencies) cycle(p *podState, service string) string {
	if !d.serves(p) { // hardly any dependent does
		return ""
	}
	next := func(service string) []string {
		return d.of(types.NamespacedName{Namespace: p.Namespace, Name: service})
	}
	way := shortestWay(service, next, func(on string) bool { return on != service && d.stands(p, on) })
	if way == nil {
		return ""
	}
	slices.Reverse(way)
	return strings.Join(append([]string{service}, way...), " → ")
}

// shortestWay goes from a Service to those that it waits for, up to an end; nil when there is none.
func shortestWay(from string, next func(string) []string, end func(string) bool) []string {
	seen := sets.New(from)
	for ways := [][]string{{from}}; len(ways) > 0; ways = ways[1:] {
		way := ways[0]
		for _, on := range next(way[len(way)-1]) {
			switch longer := append(slices.Clone(way), on); {
			case end(on):
				return longer
			case !seen.Has(on):
				seen.Insert(on)
				ways = append(ways, longer)
			}
		}
	}
	return nil
}

// countCycles finds, for each of the config's Services, the shortest way on which its recovery comes back to it. It goes from
// each Service to those that it waits for, which is that way backwards: it meets nothing but what the config has to do with.
func (f *forecaster) countCycles(namespace string) {
	waits := map[string][]string{}
	next := func(service string) []string {
		on, known := waits[service]
		if !known {
			on = f.dependencies(f.enforces).of(types.NamespacedName{Namespace: namespace, Name: service})
			waits[service] = on
		}
		return on
	}
	found := sets.New[string]() // from each of their Services
	for service := range f.config.Services {
		way := shortestWay(service, next, func(on string) bool { return on == service })
		if way == nil {
			continue
		}
		way = way[1:] // each once, from the first of the names on: so it is the same from wherever it was found
		first := slices.Index(way, slices.Min(way))
		way = slices.Concat(way[first:], way[:first+1])
		slices.Reverse(way)
		found.Insert(namespace + ": " + strings.Join(way, " → "))
	}
	for way := range found {
		sample.Add(&f.Cycles, &f.CyclePaths, way)
	}
}

// stands says whether the pod is one of those behind a Service, by its slices.
func (s *State) stands(p *podState, service string) bool {
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
