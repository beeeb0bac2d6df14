package weeder

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// label is one that a pod has or that a selector asks for.
type label struct{ key, value string }

// anyValue stands for all values of a key; no label has it.
const anyValue = "*"

// requiredLabels are the labels by which one finds what a selector selects: a pod must have one of each list. Keys whatever their value
// are listed only where no value is required, and there is no list for what only excludes.
func requiredLabels(s labels.Selector) (all [][]label) {
	requirements, _ := s.Requirements()
	var keys [][]label
	for i := range requirements {
		switch r := &requirements[i]; r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			var of []label
			for _, value := range r.ValuesUnsorted() {
				of = append(of, label{r.Key(), value})
			}
			all = append(all, of)
		case selection.Exists:
			keys = append(keys, []label{{r.Key(), anyValue}})
		}
	}
	if all == nil {
		return keys
	}
	return all
}

// rarest is the list of which there is the least; nil when there is no list.
func rarest(all [][]label, count func(label) int) []label {
	if len(all) == 0 {
		return nil
	}
	total := func(of []label) (n int) {
		for _, l := range of {
			n += count(l)
		}
		return n
	}
	return slices.MinFunc(all, func(a, b []label) int { return cmp.Compare(total(a), total(b)) })
}

// labelled has the pods of a namespace by each of their labels, so that who selects a few need not look at all.
type labelled map[label][]*podState

func (here labelled) add(p *podState) {
	for key, value := range p.Labels {
		l := label{key, value}
		here[l] = append(here[l], p)
	}
}

func (here labelled) remove(p *podState) {
	for key, value := range p.Labels {
		l := label{key, value}
		pods := here[l]
		last := len(pods) - 1
		pods[slices.Index(pods, p)] = pods[last]
		pods[last] = nil
		if here[l] = pods[:last]; last == 0 {
			delete(here, l)
		}
	}
}

// updatePod replaces what is known of a pod, and indexes it again where its labels changed.
func (s *State) updatePod(p *podState, news *Pod) {
	if maps.Equal(p.Labels, news.Labels) {
		p.Pod = news
		return
	}
	s.labelled[p.Namespace].remove(p)
	p.Pod = news
	s.labelled[p.Namespace].add(p)
}

// candidates are pods of a namespace, each once: all that one of the selectors selects, and others. It looks at all only where so many
// may be meant.
func (s *State) candidates(namespace string, selectors []labels.Selector) iter.Seq[*podState] {
	here, all := s.labelled[namespace], s.pods[namespace]
	found, looked := map[*podState]bool{}, 0
	for _, selector := range selectors {
		of := rarest(requiredLabels(selector), func(l label) int {
			if l.value == anyValue {
				return len(all)
			}
			return len(here[l])
		})
		for _, l := range of {
			looked += len(here[l])
		}
		if of == nil || of[0].value == anyValue || looked > len(all) {
			return maps.Values(all)
		}
		for _, l := range of {
			for _, p := range here[l] {
				found[p] = true
			}
		}
	}
	return maps.Keys(found)
}

// claim is a selector by which a config's Service has dependents.
type claim struct {
	*configState
	service  string
	selector labels.Selector
}

// claims have each claim under labels of which a pod must have one; under the zero label those that only exclude.
type claims map[label][]claim

// add files a config's claims.
func (c claims) add(cs *configState) {
	for service, selectors := range cs.Services {
		for _, s := range selectors {
			of := rarest(requiredLabels(s), func(l label) int { return len(c[l]) })
			if of == nil {
				of = []label{{}}
			}
			for _, l := range of {
				c[l] = append(c[l], claim{cs, service, s})
			}
		}
	}
}

// remove takes a config's claims out.
func (c claims) remove(cs *configState) {
	for l := range c {
		if c[l] = slices.DeleteFunc(c[l], func(cl claim) bool { return cl.configState == cs }); len(c[l]) == 0 {
			delete(c, l)
		}
	}
}

// on are the claims on a pod.
func (c claims) on(p *Pod) iter.Seq[claim] {
	return func(yield func(claim) bool) {
		visit := func(l label) bool {
			for _, cl := range c[l] {
				if cl.selector.Matches(labels.Set(p.Labels)) && !yield(cl) {
					return false
				}
			}
			return true
		}
		if len(c) == 0 || !visit(label{}) {
			return
		}
		for key, value := range p.Labels {
			if !visit(label{key, value}) || !visit(label{key, anyValue}) {
				return
			}
		}
	}
}

// of are the Services on which a pod depends by these claims, in order.
func (c claims) of(p *Pod) (services []string) {
	for cl := range c.on(p) {
		services = append(services, cl.service)
	}
	slices.Sort(services)
	return slices.Compact(services)
}

// claimsOn are the claims on a pod of stored configs that count.
func (s *State) claimsOn(p *Pod, counts func(*configState) bool) iter.Seq[claim] {
	return func(yield func(claim) bool) {
		for _, in := range []string{p.Namespace, everywhere} {
			for cl := range s.scopes[in].claims.on(p) {
				if counts(cl.configState) && s.appliesTo(cl.configState, p.Namespace) && !yield(cl) {
					return
				}
			}
		}
	}
}
