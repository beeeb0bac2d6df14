package condition

import (
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
	s = s.under(f.policy.Types)
	selected := f.index.selected(s)
	p := Preview{Nodes: f.counts.cluster.counted, Selected: selected.count(), ControlPlaneReady: f.counts.planeReady, ControlPlaneReadyAfter: f.counts.planeReady}
	f.previewMatching(&p, s, selected, limits)
	f.previewReporters(&p, s, at)
	foreign := f.index.foreign.of(s.Key)
	p.ForeignTainted = foreign.count()
	p.ForeignTaintedNodes = f.index.first(foreign, p.ForeignTainted)
	p.DuplicateOf, p.ImpliedBy = f.setsBy.duplicatesOf(s), f.setsBy.impliedBy(s)
	if s.Effect == corev1.TaintEffectNoExecute && p.Selected > 0 {
		names := intolerant(f.systemPods, s.Key)
		p.IntolerantSystemPods = names[:min(len(names), SampleSize)]
	}
	return p, nil
}

func (f *Fleet) previewMatching(p *Preview, s *Set, selected nodeBits, limits limit.Limits) {
	others, matching := f.ofOthers(s.Name), f.index.matching(s, selected)
	p.Matching = matching.count()
	p.MatchingNodes = f.index.first(matching, p.Matching)
	if s.Effect == corev1.TaintEffectNoExecute && matching.meets(f.index.readyPlanes) {
		p.ControlPlaneReadyAfter-- // one at a time
	}
	p.WouldTaint = p.Matching
	if s.MaxNodes != nil {
		p.WouldTaint = min(p.WouldTaint, limit.Of(*s.MaxNodes, p.Selected))
	}
	matching.drop(others)
	alone, ofOthers := matching.count(), others.count()
	p.UnionLimit = limits.MaxTaintedNodes.Of(p.Nodes)
	p.UnionTainted = ofOthers + min(alone, p.WouldTaint)
	switch s.Effect {
	case corev1.TaintEffectNoExecute:
		p.LimitName, p.Limit = "maxEvictingNodes", limits.MaxEvictingNodes.Of(p.Nodes)
	case corev1.TaintEffectNoSchedule:
		p.LimitName, p.Limit = "maxTaintedNodes", p.UnionLimit
	default: // PreferNoSchedule is free
		p.Limit, p.UnionTainted = limit.None, ofOthers
	}
}

func (f *Fleet) previewReporters(p *Preview, s *Set, at Moment) {
	for _, m := range s.Members {
		if f.index.byType.of(m.Type) == nil {
			if _, ok := f.policy.Types.Lookup(m.Type); !ok {
				p.UnreportedTypes = append(p.UnreportedTypes, m.Type)
			}
			continue
		}
		if !f.anyAlive(m, s, at) {
			p.SilentTypes = append(p.SilentTypes, m.Type)
		}
	}
}

// anyAlive says whether the reporter lives on some node. The node that was heard of last most likely shows it; only where
// a reporter is silent are all of its nodes looked at.
func (f *Fleet) anyAlive(m Member, s *Set, at Moment) bool {
	alive := func(slot int) bool {
		n := f.nodes[f.index.slots[slot]]
		return n.alive(n.Readings[m.Type], m, s.StaleAfter, at)
	}
	reporting := f.index.byType.of(m.Type)
	if reporting.has(f.lastHeard) && alive(f.lastHeard) {
		return true
	}
	for slot := range reporting.all() {
		if alive(slot) {
			return true
		}
	}
	return false
}

func subset[T comparable](of, in []T) bool {
	for _, m := range of {
		if !slices.Contains(in, m) {
			return false
		}
	}
	return true
}
