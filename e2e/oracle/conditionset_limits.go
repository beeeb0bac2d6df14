package oracle

import (
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// paceRounding: records hold whole seconds, and a request takes time to arrive.
const paceRounding = 2 * time.Second

// limits judges a write of ours by what all nodes carry after it. Only what the write raised counts.
func (s *nodes) limits(w *World, c Change, before, after *node) []Broken {
	var found []Broken
	exceeded := func(text string) {
		if text != "" {
			found = append(found, Broken{Limits, text})
		}
	}
	if after.repels() && !before.repels() {
		exceeded(s.capped(w, c, "tainted", func(r Rules) []intstr.IntOrString { return r.Tainted }, after.uid, after.zone, (*node).repels))
	}
	if after.evicts() && !before.evicts() {
		s.evicting[after.uid] = stamp{c.Version, c.At}
		exceeded(s.capped(w, c, "evicting", func(r Rules) []intstr.IntOrString { return r.Evicting }, after.uid, after.zone, (*node).evicts))
		exceeded(s.paced(c, after.zone))
	}
	exceeded(s.planes(before, after))
	for _, claim := range asked(before, after) {
		if before.record.of(claim.Set, claim.Key).Effect == "" {
			exceeded(s.ownCap(w, claim, c.At))
		}
	}
	return found
}

// planes lets one control-plane node be tainted at a time.
func (s *nodes) planes(before, after *node) string {
	if !after.plane || len(after.owned()) == 0 || len(before.owned()) > 0 {
		return ""
	}
	n := s.count(func(n *node) bool { return n.plane && len(n.owned()) > 0 })
	if n <= 1 {
		return ""
	}
	return fmt.Sprintf("%d control-plane nodes are tainted; one is allowed", n)
}

func (s *nodes) count(has func(*node) bool) int {
	n := 0
	for _, node := range s.now {
		if has(node) {
			n++
		}
	}
	return n
}

// capped compares with the cap of the cluster and, from three zones on, of the zone.
func (s *nodes) capped(w *World, c Change, verb string, caps func(Rules) []intstr.IntOrString, asks types.UID, zone string, has func(*node) bool) string {
	counted := func(n *node) bool { return s.countedAt(c.At)(n) || n.uid == asks && n.worker } // whoever asks is one of them
	all := s.count(counted)
	past := s.countGone(c, "", has)
	if used, allowed := s.count(has)+past, w.allowed(caps, all, all, c.At, s.options.Lag); used > allowed {
		return fmt.Sprintf("%d of %d nodes are %s, %d of them deleted since; %d are allowed", used, all, verb, past, allowed)
	}
	zones := map[string]bool{}
	for _, n := range s.now {
		zones[n.zone] = zones[n.zone] || n.worker
	}
	maps.DeleteFunc(zones, func(zone string, has bool) bool { return zone == "" || !has })
	if len(zones) < 3 || zone == "" {
		return ""
	}
	of := s.count(func(n *node) bool { return n.zone == zone && counted(n) })
	past = s.countGone(c, zone, has)
	used := s.count(func(n *node) bool { return n.zone == zone && has(n) }) + past
	if allowed := w.allowed(caps, of, all, c.At, s.options.Lag); used > allowed {
		return fmt.Sprintf("%d of %d nodes of zone %s are %s, %d of them deleted since; %d are allowed", used, of, zone, verb, past, allowed)
	}
	return ""
}

// countedAt says of a node whether percentages are of it, or were until so lately that the manager needn't know.
func (s *nodes) countedAt(at time.Time) func(*node) bool {
	return func(n *node) bool {
		until, was := s.counted[n.uid]
		return n.counted || was && at.Sub(until) <= s.options.Lag
	}
}

// countGone counts nodes, of a zone or with "" of all, that were deleted while they were evicted, shortly after that began: else who
// deletes what is evicted would lift the limits.
func (s *nodes) countGone(c Change, zone string, has func(*node) bool) (past int) {
	for _, n := range s.gone {
		if (zone == "" || n.zone == zone) && has(n) && c.At.Sub(s.evicting[n.uid].at) < s.options.EvictPace-paceRounding {
			past++
		}
	}
	return past
}

// share rounds down, but a cluster of three or more may have one node healed, and so may each of its zones.
func share(percent, of, all int) int {
	if all < 3 {
		return 0
	}
	return max(1, percent*of/100)
}

func (s *nodes) paced(c Change, zone string) string {
	last, evictedBefore := s.evicted[zone]
	s.evicted[zone] = stamp{c.Version, c.At}
	if gap := c.At.Sub(last.at); evictedBefore && gap < s.options.EvictPace-paceRounding {
		return fmt.Sprintf("a node of zone %q began to evict %s after another; the pace is %s", zone, gap, s.options.EvictPace)
	}
	return ""
}

// ownCap judges spec.maxNodes of the generation that acted.
func (s *nodes) ownCap(w *World, c claim, at time.Time) string {
	p := w.Policies[c.Set]
	if p == nil {
		return ""
	}
	generation, _ := p.Spec(c.Generation)
	spec, err := readSetSpec(generation)
	if err != nil || spec.MaxNodes == nil {
		return ""
	}
	selected := s.count(func(n *node) bool {
		return (s.countedAt(at)(n) || n.plane && n.available) && spec.selects(n)
	})
	used := s.count(func(n *node) bool { return claimants(n)[c.Set] })
	if allowed := allowedBy(*spec.MaxNodes, selected); used > allowed {
		return fmt.Sprintf("%s has tainted %d of %d selected nodes; its maxNodes %s allows %d", c.Name, used, selected, spec.MaxNodes.String(), allowed)
	}
	return ""
}

func claimants(n *node) map[types.UID]bool {
	sets := map[types.UID]bool{}
	for _, c := range n.record.Taints {
		sets[c.Set] = true
	}
	return sets
}

func allowedBy(limit intstr.IntOrString, selected int) int {
	return nodesOf(limit, selected, selected)
}
