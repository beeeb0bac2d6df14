package weed

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// viewCycles finds, for each of the config's Services, the shortest way on which its recovery comes back to it.
func (v *viewer) viewCycles(namespace string, configs []*matcher) {
	next := v.dependents(namespace, configs)
	for service := range v.cs.Services {
		if way := wayBack(service, next); way != nil {
			v.cycles[namespace+": "+strings.Join(way, " → ")] = true
		}
	}
}

// dependents are, for each Service, the others behind which pods stand that some config selects as its dependents.
func (v *viewer) dependents(namespace string, configs []*matcher) map[string][]string {
	named, found := sets.New[string](), map[string]sets.Set[string]{}
	for _, m := range configs {
		named = named.Union(sets.KeySet(m.Services))
	}
	for one := range named {
		svc := v.services[types.NamespacedName{Namespace: namespace, Name: one}]
		if svc == nil {
			continue
		}
		for pod := range svc.backing {
			if p := v.pods[namespace][pod]; p != nil {
				noteDependents(p.Pod, one, configs, found)
			}
		}
	}
	next := map[string][]string{}
	for on, ones := range found {
		next[on] = sets.List(ones.Delete(on)) // a Service's own pods are told of apart from cycles
	}
	return next
}

// noteDependents notes that a pod behind one Service depends on others.
func noteDependents(p *Pod, one string, configs []*matcher, found map[string]sets.Set[string]) {
	for _, m := range configs {
		for _, on := range m.of(p) {
			if found[on] == nil {
				found[on] = sets.New[string]()
			}
			found[on].Insert(one)
		}
	}
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
