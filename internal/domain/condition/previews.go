package condition

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// Preview tells what a ConditionSet would do if it were in force now, in place of a stored one of its name.
// A spec that can't be read gives that error.
func (f *Fleet) Preview(cs *v1alpha1.ConditionSet, limits limit.Limits, at Moment) (Preview, error) {
	s, err := NewSet(cs)
	if err != nil {
		return Preview{}, err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	p := Preview{Nodes: f.counts.cluster.counted, Selected: f.selectedNow(s), ControlPlaneReady: f.counts.planeReady, ControlPlaneReadyAfter: f.counts.planeReady}
	f.previewMatching(&p, s, limits)
	f.previewReporters(&p, s, at)
	f.previewForeign(&p, s)
	f.previewOthers(&p, s)
	if s.Effect == corev1.TaintEffectNoExecute && p.Selected > 0 {
		names := intolerant(f.systemPods, s.Key)
		p.IntolerantSystemPods = names[:min(len(names), SampleSize)]
	}
	return p, nil
}

func (f *Fleet) selectedNow(s *Set) int {
	switch {
	case s.Selector.Empty() && s.IncludeControlPlane:
		return f.counts.cluster.counted + f.counts.planes
	case s.Selector.Empty():
		return f.counts.cluster.counted
	}
	selected := 0
	for _, n := range f.nodes {
		if !n.Deleting && s.Selects(n.Node) {
			selected++
		}
	}
	return selected
}

// previewMatching looks once at each node that may match: a set that matches everything must not cost more than a look.
func (f *Fleet) previewMatching(p *Preview, s *Set, limits limit.Limits) {
	others := f.taintedByOthers(s)
	var first firstNames
	alone, planeLost := 0, false
	for name := range f.index.candidates(s) {
		n := f.nodes[name]
		if n.Deleting || !s.Selects(n.Node) || !s.matches(n.Node) {
			continue
		}
		p.Matching++
		first.add(name)
		if _, too := others[name]; !too {
			alone++
		}
		planeLost = planeLost || n.print.planeReady
	}
	p.MatchingNodes = first.names
	if planeLost && s.Effect == corev1.TaintEffectNoExecute {
		p.ControlPlaneReadyAfter-- // one at a time
	}
	p.WouldTaint = p.Matching
	if s.MaxNodes != nil {
		p.WouldTaint = min(p.WouldTaint, limit.Of(*s.MaxNodes, p.Selected))
	}
	p.UnionLimit = limit.Of(limits.MaxTaintedNodes, p.Nodes)
	p.UnionTainted = len(others) + min(alone, p.WouldTaint)
	switch s.Effect {
	case corev1.TaintEffectNoExecute:
		p.LimitName, p.Limit = "maxEvictingNodes", limit.Of(limits.MaxEvictingNodes, p.Nodes)
	case corev1.TaintEffectNoSchedule:
		p.LimitName, p.Limit = "maxTaintedNodes", p.UnionLimit
	default: // PreferNoSchedule is free
		p.Limit, p.UnionTainted = limit.None, len(others)
	}
}

// taintedByOthers are the nodes that all other enforcing sets would taint or have tainted.
func (f *Fleet) taintedByOthers(s *Set) names {
	others := names{}
	for _, o := range f.sets {
		if o.Name != s.Name && !o.Observe && o.standing == Active && o.Effect != corev1.TaintEffectPreferNoSchedule {
			maps.Copy(others, o.mayTaint())
			maps.Copy(others, o.tainted)
		}
	}
	return others
}

// mayTaint are the matching nodes that the set could taint: none while its breaker is open, and no more than its own cap.
func (s *setState) mayTaint() names {
	switch {
	case s.why() != "":
		return nil
	case s.MaxNodes == nil:
		return s.matching
	}
	may, sorted := names{}, s.matching.sorted()
	for _, name := range sorted[:min(len(sorted), limit.Of(*s.MaxNodes, s.selected))] {
		may.put(name, true)
	}
	return may
}

func (f *Fleet) previewReporters(p *Preview, s *Set, at Moment) {
	for _, m := range s.Members {
		if !f.index.reported(m.Type) {
			if _, ok := known(m.Type); !ok {
				p.UnreportedTypes = append(p.UnreportedTypes, m.Type)
			}
			continue
		}
		if !f.anyAlive(m, s, at) {
			p.SilentTypes = append(p.SilentTypes, m.Type)
		}
	}
}

func (f *Fleet) anyAlive(m Member, s *Set, at Moment) bool {
	for status, with := range f.index.byCondition[m.Type] {
		for name := range with {
			if n := f.nodes[name]; status != "" && n.alive(n.Readings[m.Type], m, s.StaleAfter, at) {
				return true
			}
		}
	}
	return false
}

func (f *Fleet) previewForeign(p *Preview, s *Set) {
	var first firstNames
	for name := range f.index.byTaint[s.Key] {
		n := f.nodes[name]
		if slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return t.Key == s.Key && !n.Owned.Owns(t) }) {
			p.ForeignTainted++
			first.add(name)
		}
	}
	p.ForeignTaintedNodes = first.names
}

func (f *Fleet) previewOthers(p *Preview, s *Set) {
	for _, o := range f.sets {
		if o.Name == s.Name {
			continue
		}
		equal := slices.Equal(o.Members, s.Members)
		switch {
		case o.Type == s.Type || equal:
			p.DuplicateOf = append(p.DuplicateOf, o.Name)
		case o.Key == s.Key && subset(o.Members, s.Members):
			p.ImpliedBy = append(p.ImpliedBy, o.Name)
		}
	}
	slices.Sort(p.DuplicateOf)
	slices.Sort(p.ImpliedBy)
	p.DuplicateOf = p.DuplicateOf[:min(len(p.DuplicateOf), SampleSize)]
	p.ImpliedBy = p.ImpliedBy[:min(len(p.ImpliedBy), SampleSize)]
}

func subset[T comparable](of, in []T) bool {
	for _, m := range of {
		if !slices.Contains(in, m) {
			return false
		}
	}
	return true
}
