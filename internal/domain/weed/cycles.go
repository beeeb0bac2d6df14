package weed

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// viewCycles finds, for each of the config's Services, the shortest way on which its recovery comes back to it.
func (v *viewer) viewCycles(namespace string, configs []*configState) {
	named := map[string]bool{}
	for _, cs := range configs {
		for service := range cs.Services {
			named[service] = true
		}
	}
	services := slices.Sorted(maps.Keys(named))
	next := map[string][]string{}
	for service := range v.cs.Services {
		v.walk(namespace, service, services, configs, next)
		if way := wayBack(service, next); way != nil {
			v.cycles[namespace+": "+strings.Join(way, " → ")] = true
		}
	}
}

// walk fills in which Services' pods depend on a Service, on those, and so on.
func (v *viewer) walk(namespace, service string, services []string, configs []*configState, next map[string][]string) {
	if _, walked := next[service]; walked {
		return
	}
	next[service] = nil
	for _, other := range services {
		if other != service && v.depends(namespace, other, service, configs) {
			next[service] = append(next[service], other)
		}
	}
	for _, other := range next[service] {
		v.walk(namespace, other, services, configs, next)
	}
}

// depends says whether some config selects a pod behind one Service as a dependent of another.
func (v *viewer) depends(namespace, one, on string, configs []*configState) bool {
	svc := v.services[types.NamespacedName{Namespace: namespace, Name: one}]
	if svc == nil {
		return false
	}
	for name := range svc.backing {
		p := v.pods[namespace][name]
		if p != nil && slices.ContainsFunc(configs, func(cs *configState) bool { return cs.Selects(on, &p.Pod) }) {
			return true
		}
	}
	return false
}

// wayBack is the shortest way from a Service to itself, beginning with the first of its names so that it is the same from
// wherever it was found; nil when there is none.
func wayBack(from string, next map[string][]string) []string {
	ways := [][]string{{from}}
	seen := map[string]bool{}
	for len(ways) > 0 {
		way := ways[0]
		ways = ways[1:]
		for _, service := range next[way[len(way)-1]] {
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
