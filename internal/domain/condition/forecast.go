package condition

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/domain/suggest"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// Forecast is what a set would do if it were in force now, as rules and people read it. Counts are of nodes; samples are sorted and at most sample.Size.
type Forecast struct {
	// Nodes is what the cluster-wide limits count from: nodes neither being deleted nor control plane that are available, which is
	// Ready and neither cordoned nor on their way out. Unavailable are the others.
	Nodes, Unavailable int
	// Selected by nodeSelector and includeControlPlane.
	Selected int
	// Matching all members now, whatever `for` says. MatchingNodes samples them.
	Matching      int
	MatchingNodes []string
	// WouldTaint is Matching, cut by the set's own maxNodes.
	WouldTaint int
	// Limit is how many nodes the strictest cluster-wide limit allows for this effect, limit.None when none applies;
	// LimitName says which (maxTaintedNodes, maxEvictingNodes).
	Limit     int
	LimitName string
	// UnionTainted counts the nodes that this set and all other enforcing sets would taint or have tainted, but for
	// PreferNoSchedule, which is free; UnionLimit is maxTaintedNodes in nodes.
	UnionTainted, UnionLimit int
	// UnreportedTypes are members' types that are neither known nor reported by any node.
	UnreportedTypes []string
	// SimilarTypes are known or reported types that UnreportedTypes may be misspellings of.
	SimilarTypes []string
	// SilentTypes are members' types whose reporter is silent on every node that carries them.
	SilentTypes []string
	// ForeignTainted counts nodes that carry the key without our record. ForeignTaintedNodes samples them.
	ForeignTainted      int
	ForeignTaintedNodes []string
	// ImpliedBy names other sets with the same key whose conditions are a subset of this one's: whenever this set
	// matches, so do they.
	ImpliedBy []string
	// DuplicateOf names other sets with the same type or equal conditions.
	DuplicateOf []string
	// ControlPlaneReady counts Ready control-plane nodes; ControlPlaneReadyAfter what is left of them once this set has
	// evicted the one it may.
	ControlPlaneReady, ControlPlaneReadyAfter int
	// IntolerantSystemPods names system pods ("namespace/name (role)") on selected nodes that don't tolerate the key.
	IntolerantSystemPods []string
}

// Forecast is what a ConditionSet would do if it were in force now, in place of a stored one of its name. It is empty for a
// spec that can't be read; Terms.Unreadable says why.
func (f *Fleet) Forecast(cs *v1alpha1.ConditionSet, limits limit.Limits, at timing.Moment) Forecast {
	s, err := NewSet(cs)
	if err != nil {
		return Forecast{}
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	selected := f.index.selected(s)
	p := Forecast{Nodes: f.counts.cluster.counted, Unavailable: f.counts.cluster.unavailable, Selected: selected.count(), ControlPlaneReady: f.counts.controlPlaneReady, ControlPlaneReadyAfter: f.counts.controlPlaneReady}
	f.forecastMatching(&p, s, selected, limits)
	f.forecastReporters(&p, s, at)
	foreign := f.index.with(foreign(s.Key))
	p.ForeignTainted, p.ForeignTaintedNodes = foreign.count(), f.index.sampleNames(foreign)
	p.DuplicateOf, p.ImpliedBy = f.setIndex.duplicatesOf(s), f.setIndex.impliedBy(s)
	if s.Effect == corev1.TaintEffectNoExecute && p.Selected > 0 {
		names := ecosystem.Intolerant(f.systemPods, s.Key)
		p.IntolerantSystemPods = names[:min(len(names), sample.Size)]
	}
	return p
}

func (f *Fleet) forecastMatching(p *Forecast, s *Set, selected *nodeSet, limits limit.Limits) {
	others, matching := f.taintedByOthers(s.Name), f.index.matching(s, selected)
	p.Matching, p.MatchingNodes = matching.count(), f.index.sampleNames(matching)
	planes := matching.copy()
	planes.intersect(f.index.with(traitReadyControlPlane))
	if s.Effect == corev1.TaintEffectNoExecute && !planes.empty() {
		p.ControlPlaneReadyAfter-- // one at a time
	}
	p.WouldTaint = p.Matching
	asks := matching.copy()
	asks.intersect(f.index.with(traitUnavailable))
	if s.MaxNodes != nil {
		of := f.index.countAvailable(selected)
		if !asks.empty() { // the node that asks is one of those that percentages are of
			of++
		}
		p.WouldTaint = min(p.WouldTaint, limit.Of(*s.MaxNodes, of))
	}
	if asks.subtract(f.index.with(traitControlPlane)); !asks.empty() { // likewise, and a control-plane node is none of them
		p.Nodes, p.Unavailable = p.Nodes+1, p.Unavailable-1
	}
	matching.subtract(others)
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

func (f *Fleet) forecastReporters(p *Forecast, s *Set, at timing.Moment) {
	for _, m := range s.Members {
		if f.index.with(reports(m.Type)).empty() {
			if _, builtin := ecosystem.Lookup(m.Type); !builtin && !slices.Contains(f.policy.DeclaredTypes, m.Type) {
				p.UnreportedTypes = append(p.UnreportedTypes, m.Type)
				p.SimilarTypes = append(p.SimilarTypes, suggest.For(m.Type, slices.Concat(ecosystem.TypeNames(), f.policy.DeclaredTypes, f.index.reportedTypes()))...)
			}
			continue
		}
		if !f.anyAlive(m, s, at) {
			p.SilentTypes = append(p.SilentTypes, m.Type)
		}
	}
}

// anyAlive says whether the reporter is alive on some node. Mostly the first shows it.
func (f *Fleet) anyAlive(m Member, s *Set, at timing.Moment) bool {
	for slot := range f.index.with(reports(m.Type)).slots() {
		n := f.index.slots[slot]
		if r, _ := n.Observations.Of(m.Type); n.alive(r, m, s.StaleAfter, at) {
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

// setIndex finds sets by what they ask, so that neither a forecast nor a node's event looks at each of them.
type setIndex map[facet]map[*setState]struct{}

// facet is something by which sets are found: a name, type or taint key, one node condition, or all conditions.
type facet struct{ kind, value string }

func (s *Set) facets() []facet {
	facets := []facet{{"name", s.Name}, {"type", s.Type}, {"key", s.Key}, {"conditions", membersText(s.Members)}}
	for _, m := range s.Members {
		facets = append(facets, facet{"condition", m.Type})
	}
	return facets
}

func (i setIndex) add(s *setState) {
	for _, by := range s.facets() {
		if i[by] == nil {
			i[by] = map[*setState]struct{}{}
		}
		i[by][s] = struct{}{}
	}
}

func (i setIndex) remove(s *setState) {
	for _, by := range s.facets() {
		if delete(i[by], s); len(i[by]) == 0 {
			delete(i, by)
		}
	}
}

// membersText is the same for equal conditions; no type has a line's end in it.
func membersText(members []Member) string {
	var text strings.Builder
	for _, m := range members {
		text.WriteString(m.Type + "=" + string(m.Status) + "\n")
	}
	return text.String()
}

// duplicatesOf names other sets with the same type or equal conditions.
func (i setIndex) duplicatesOf(s *Set) []string {
	var first nameSample
	for _, by := range []facet{{"type", s.Type}, {"conditions", membersText(s.Members)}} {
		for o := range i[by] {
			if o.Name != s.Name {
				first.add(o.Name)
			}
		}
	}
	return first.names
}

// impliedBy names other sets with the same key that match whenever this one does, but for its duplicates.
func (i setIndex) impliedBy(s *Set) []string {
	var first nameSample
	for o := range i[facet{"key", s.Key}] {
		fewer := len(o.Members) > 0 && len(o.Members) < len(s.Members)
		if fewer && o.Name != s.Name && o.Type != s.Type && subset(o.Members, s.Members) {
			first.add(o.Name)
		}
	}
	return first.names
}
