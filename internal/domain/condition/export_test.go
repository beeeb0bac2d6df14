package condition

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// LookAtEach fills in what a forecast counts, by looking at each node and each set instead of at an index.
func (f *Fleet) LookAtEach(s *Set) Forecast {
	p := Forecast{}
	others := map[string]bool{}
	for _, o := range f.sets {
		if o.Name != s.Name && !o.Observe && o.state == lifecycle.Active && o.Effect != corev1.TaintEffectPreferNoSchedule {
			for _, name := range f.wouldTaintByLook(o) {
				others[name] = true
			}
		}
	}
	alone, available, asks, worker := 0, 0, 0, 0
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		n := f.nodes[name]
		if slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return t.Key == s.Key && !n.Owned.Owns(t) }) {
			p.ForeignTainted++
			p.ForeignTaintedNodes = append(p.ForeignTaintedNodes, name)
		}
		if !n.Deleting && !n.ControlPlane && !n.Available {
			p.Unavailable++
		}
		if n.Deleting || !s.Selects(n.Node) {
			continue
		}
		p.Selected++
		if n.Available {
			available++
		}
		if !s.matches(n.Node) {
			continue
		}
		if !n.Available {
			asks = 1
			if !n.ControlPlane {
				worker = 1
			}
		}
		p.Matching++
		p.MatchingNodes = append(p.MatchingNodes, name)
		if !others[name] {
			alone++
		}
	}
	p.WouldTaint = p.Matching
	if s.MaxNodes != nil {
		p.WouldTaint = min(p.Matching, limit.Of(*s.MaxNodes, available+asks))
	}
	p.Unavailable -= worker
	p.UnionTainted = len(others)
	if s.Effect != corev1.TaintEffectPreferNoSchedule {
		p.UnionTainted += min(alone, p.WouldTaint)
	}
	for _, o := range f.sets {
		switch equal := slices.Equal(o.Members, s.Members); {
		case o.Name == s.Name:
		case o.Type == s.Type || equal:
			p.DuplicateOf = append(p.DuplicateOf, o.Name)
		case o.Key == s.Key && subset(o.Members, s.Members):
			p.ImpliedBy = append(p.ImpliedBy, o.Name)
		}
	}
	for _, names := range []*[]string{&p.MatchingNodes, &p.ForeignTaintedNodes, &p.DuplicateOf, &p.ImpliedBy} {
		slices.Sort(*names)
		*names = (*names)[:min(len(*names), sample.Size)]
	}
	return p
}

func (f *Fleet) wouldTaintByLook(s *setState) (nodes []string) {
	available := 0
	var matching []string
	for name, n := range f.nodes {
		if n.usage.claims(s) {
			nodes = append(nodes, name)
		}
		if n.Deleting || !s.Selects(n.Node) {
			continue
		}
		if n.Available {
			available++
		}
		if s.matches(n.Node) {
			matching = append(matching, name)
		}
	}
	slices.Sort(matching)
	if s.MaxNodes != nil {
		matching = matching[:min(len(matching), limit.Of(*s.MaxNodes, available))]
	}
	if s.holdReason() != "" {
		return nodes
	}
	return append(nodes, matching...)
}

// Sets are the UIDs of the sets with an entry, also only a past one.
func (o Ownership) Sets() []types.UID {
	var uids []types.UID
	for _, t := range o.Taints {
		uids = append(uids, t.Set)
	}
	for _, p := range o.History {
		uids = append(uids, p.Set)
	}
	slices.Sort(uids)
	return slices.Compact(uids)
}
