package weeder

import (
	"maps"
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

// acting are the configs whose deletions count for cycles in a namespace.
func (s *State) acting(namespace string) (acting []*matcher) {
	for cs := range s.holdingIn(namespace) {
		if !cs.mayAct() {
			continue
		}
		if cs.matches == nil {
			cs.matches = newMatcher(cs)
		}
		acting = append(acting, cs.matches)
	}
	return acting
}

// waitsFor are the Services for whose recovery pods behind a Service would be deleted: add tells of one of these pods.
func (s *State) waitsFor(service types.NamespacedName, add func(on sets.Set[string], p *Pod)) []string {
	on := sets.New[string]()
	for name := range s.backing(service) {
		if p := s.pods[service.Namespace][name]; p != nil {
			add(on, p.Pod)
		}
	}
	return sets.List(on.Delete(service.Name)) // its own pods are told of apart from cycles
}

// cycle is a way on which a Service's recovery comes back to it by the deletion of the pod for it: from a Service behind which
// the pod stands, over pods that these configs would delete, to the Service itself; "" when there is none. It is asked for each
// deletion: the rules look at what there is when a config is written, and pods, Services and other configs come later.
func (s *State) cycle(p *podState, service string, configs []*matcher) string {
	serves := func(m *matcher) bool {
		for name := range m.Services {
			if s.stands(p, name) {
				return true
			}
		}
		return false
	}
	if !slices.ContainsFunc(configs, serves) { // hardly any dependent does
		return ""
	}
	next := func(service string) []string {
		return s.waitsFor(types.NamespacedName{Namespace: p.Namespace, Name: service}, func(on sets.Set[string], p *Pod) {
			for _, m := range configs {
				on.Insert(m.of(p)...)
			}
		})
	}
	way := shortestWay(service, next, func(on string) bool { return on != service && s.stands(p, on) })
	if way == nil {
		return ""
	}
	return strings.Join(append([]string{service}, way...), " → ")
}

// shortestWay goes from a Service to those that it waits for, up to an end. It gives the way back; nil when there is none.
func shortestWay(from string, next func(string) []string, end func(string) bool) (back []string) {
	before := map[string]string{from: ""}
	for look := []string{from}; len(look) > 0; look = look[1:] {
		for _, on := range next(look[0]) {
			if end(on) {
				back = []string{on}
				for at := look[0]; at != ""; at = before[at] {
					back = append(back, at)
				}
				return back
			}
			if _, seen := before[on]; !seen {
				before[on] = look[0]
				look = append(look, on)
			}
		}
	}
	return nil
}

// countCycles finds, for each of the config's Services, the shortest way on which its recovery comes back to it. It goes from
// each Service to those that it waits for, and so meets nothing but what the config has to do with.
func (f *forecaster) countCycles(namespace string) {
	waits := map[string][]string{}
	next := func(service string) []string {
		on, known := waits[service]
		if !known {
			on = f.known.waitsFor(types.NamespacedName{Namespace: namespace, Name: service}, func(on sets.Set[string], p *Pod) {
				on.Insert(f.config.of(p)...)
				for c := range f.known.claimsOn(p, f.enforces) {
					on.Insert(c.service)
				}
			})
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

// matcher tells for which Services a config selects a pod. It evaluates the selectors once for all pods that agree in the
// labels that the selectors read: a config with a hundred Services is judged over ten thousand pods.
type matcher struct {
	*configState
	keys    []string
	byClass map[string][]string
	class   []byte
}

func newMatcher(cs *configState) *matcher {
	keys := sets.New[string]()
	for _, selectors := range cs.Services {
		for _, s := range selectors {
			requirements, _ := s.Requirements()
			for _, r := range requirements {
				keys.Insert(r.Key())
			}
		}
	}
	return &matcher{configState: cs, keys: sets.List(keys), byClass: map[string][]string{}}
}

// classesKept bounds what a matcher that stays remembers.
const classesKept = 1000

// of are the Services on which a pod depends, in order.
func (m *matcher) of(p *Pod) []string {
	m.class = m.class[:0]
	for _, key := range m.keys {
		value, there := p.Labels[key]
		if there {
			m.class = append(m.class, '=')
		}
		m.class = append(append(m.class, value...), ',') // neither occurs in a label's value
	}
	services, known := m.byClass[string(m.class)]
	if known {
		return services
	}
	for _, service := range slices.Sorted(maps.Keys(m.Services)) {
		if m.Selects(service, p) {
			services = append(services, service)
		}
	}
	if len(m.byClass) >= classesKept {
		clear(m.byClass)
	}
	m.byClass[string(m.class)] = services
	return services
}
