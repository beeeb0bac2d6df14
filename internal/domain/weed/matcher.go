package weed

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
)

// matcher tells for which Services a config selects a pod. It evaluates the selectors once for all pods that agree in the
// labels that the selectors read: a config with a hundred Services is judged over ten thousand pods.
type matcher struct {
	*configState
	keys    []string
	byClass map[string][]string
	class   []byte
}

// classesKept bounds what a matcher that stays remembers.
const classesKept = 1000

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
