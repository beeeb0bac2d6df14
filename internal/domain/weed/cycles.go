package weed

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// countCycles finds, for each of the config's Services, the shortest way on which its recovery comes back to it. It goes from
// each Service to those that it waits for, which is that way backwards: it meets nothing but what the config has to do with.
func (f *forecaster) countCycles(namespace string) {
	waits := map[string][]string{}
	next := func(service string) []string {
		on, known := waits[service]
		if !known {
			on = f.waitsFor(namespace, service)
			waits[service] = on
		}
		return on
	}
	found := sets.New[string]() // from each of their Services
	for service := range f.config.Services {
		if way := wayBack(service, next); way != nil {
			slices.Reverse(way)
			found.Insert(namespace + ": " + strings.Join(way, " → "))
		}
	}
	for way := range found {
		sample.Add(&f.Cycles, &f.CyclePaths, way)
	}
}

// waitsFor are the Services for whose recovery configs, this one among them, would delete pods behind a Service.
func (f *forecaster) waitsFor(namespace, service string) []string {
	on := sets.New[string]()
	for pod := range f.yard.backing(namespace, service) {
		if p := f.yard.pods[namespace][pod]; p != nil {
			on.Insert(f.config.of(p.Pod)...)
			for c := range f.others(p.Pod) {
				on.Insert(c.service)
			}
		}
	}
	return sets.List(on.Delete(service)) // its own pods are told of apart from cycles
}

// wayBack is the shortest way from a Service to itself, beginning with the first of its names so that it is the same from
// wherever it was found; nil when there is none.
func wayBack(from string, next func(string) []string) []string {
	ways := [][]string{{from}}
	seen := map[string]bool{}
	for len(ways) > 0 {
		way := ways[0]
		ways = ways[1:]
		for _, service := range next(way[len(way)-1]) {
			if service == from {
				first := slices.Index(way, slices.Min(way))
				way = append(slices.Clone(way[first:]), way[:first]...)
				return append(way, way[0])
			}
			if !seen[service] {
				seen[service] = true
				ways = append(ways, append(slices.Clone(way), service))
			}
		}
	}
	return nil
}

// cycle is a way on which a Service's recovery comes back to it by the deletion of the pod for it: from a Service behind which
// the pod stands, over pods that configs would delete, to the Service itself; "" when there is none. It is asked for each
// deletion: the rules look at what there is when a config is written, and pods, Services and other configs come later.
func (y *Yard) cycle(p *podState, service string, acting func(namespace string) []*matcher) string {
	stands := func(on string) bool {
		_, backs := y.backing(p.Namespace, on)[p.Name]
		return backs && on != service
	}
	configs := acting(p.Namespace)
	if !y.serves(p, configs) { // hardly any dependent does
		return ""
	}
	then := map[string]string{service: ""} // the next Service on the way from each
	for look := []string{service}; len(look) > 0; look = look[1:] {
		for _, on := range y.dependsOn(p.Namespace, look[0], configs) {
			if _, seen := then[on]; seen {
				continue
			}
			then[on] = look[0]
			if stands(on) {
				way := service
				for ; on != ""; on = then[on] {
					way += " → " + on
				}
				return way
			}
			look = append(look, on)
		}
	}
	return ""
}

// serves says whether the pod stands behind a Service that a config names.
func (y *Yard) serves(p *podState, configs []*matcher) bool {
	for _, m := range configs {
		for name := range m.Services {
			if _, backs := y.backing(p.Namespace, name)[p.Name]; backs {
				return true
			}
		}
	}
	return false
}

// acting are the configs whose deletions count for cycles in a namespace: those that may act, and those of which that isn't
// known.
func (y *Yard) acting(namespace string) (acting []*matcher) {
	for _, cs := range y.configs {
		if cs.mayAct() && y.holds(cs, namespace) {
			if cs.matches == nil {
				cs.matches = newMatcher(cs)
			}
			acting = append(acting, cs.matches)
		}
	}
	return acting
}

func (cs *configState) mayAct() bool {
	return cs.state != lifecycle.Refused && cs.state != lifecycle.Forbidden && !cs.Observe
}

// dependsOn are the Services for whose recovery pods behind a Service would be deleted.
func (y *Yard) dependsOn(namespace, service string, configs []*matcher) []string {
	on := sets.New[string]()
	for pod := range y.backing(namespace, service) {
		if p := y.pods[namespace][pod]; p != nil {
			for _, m := range configs {
				on.Insert(m.of(p.Pod)...)
			}
		}
	}
	return sets.List(on.Delete(service)) // its own pods are told of apart from cycles
}

func (y *Yard) backing(namespace, service string) map[string]endpoint {
	if svc := y.services[types.NamespacedName{Namespace: namespace, Name: service}]; svc != nil {
		return svc.backing
	}
	return nil
}
