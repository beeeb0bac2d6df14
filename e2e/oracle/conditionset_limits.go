package oracle

import (
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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
		exceeded(s.flapped(c, after, claim))
		exceeded(s.wave(w, c, claim))
		if before.record.of(claim.Set, claim.Key).Effect == "" {
			exceeded(s.ownCap(w, claim, c.At))
		}
	}
	return found
}

// flapped lets a set, and whoever comes under its name, evict from a node twice within an hour, whatever becomes of both meanwhile.
func (s *nodes) flapped(c Change, after *node, claim claim) string {
	if claim.Effect != corev1.TaintEffectNoExecute {
		return ""
	}
	of := [2]string{after.name, claim.Name}
	if s.evictions[of] == nil {
		s.evictions[of] = map[time.Time]time.Time{}
	}
	maps.DeleteFunc(s.evictions[of], func(_, at time.Time) bool { return c.At.Sub(at) > time.Hour-paceRounding })
	s.evictions[of][claim.Since] = c.At
	if n := len(s.evictions[of]); n > 2 {
		return fmt.Sprintf("%s evicts from the node %d times within an hour; two are allowed", claim.Name, n)
	}
	return ""
}

// breakerPercent and breakerMin of the selected nodes that match at once open a set's breaker.
const breakerPercent, breakerMin = 20, 3

// wave lets no set act anew while more of its nodes match than can be believed, and have for so long that the manager must know it, until
// somebody resets its breaker. A node that was deleted while it matched counts until the pace has passed.
func (s *nodes) wave(w *World, c Change, claim claim) string {
	p := w.Policies[claim.Set]
	if p == nil || s.isNews(p, c.At) || p.Latest.GetAnnotations()[resetKey] != "" {
		return ""
	}
	spec, err := readSetSpec(p.Specs[len(p.Specs)-1])
	if err != nil {
		return ""
	}
	matches := func(n *node, at time.Time) bool { return spec.selects(n) && s.matched(spec, n, at) }
	past := s.departed(c.At, p.Latest.GetCreationTimestamp().Time, matches)
	selected := past + s.count(func(n *node) bool { return !n.deleting && spec.selects(n) })
	matching := past + s.count(func(n *node) bool { return !n.deleting && matches(n, c.At) })
	if matching < breakerMin || matching*100 <= breakerPercent*selected {
		return ""
	}
	return fmt.Sprintf("%s acts though %d of %d nodes match, %d of them deleted since", claim.Name, matching, selected, past)
}

// departed are nodes that were deleted while they matched, under this policy and until the pace has passed.
func (s *nodes) departed(at, from time.Time, matches func(*node, time.Time) bool) (nodes int) {
	for _, n := range s.gone {
		if at.Sub(n.at) < s.options.EvictPace-paceRounding && n.at.After(from) && matches(n.node, n.at) {
			nodes++
		}
	}
	return nodes
}

// matched: all conditions are as the set asks, and have been for so long that the manager must know it.
func (s *nodes) matched(spec setSpec, n *node, at time.Time) bool {
	r := s.reasons[n.uid]
	for member, asked := range spec.Conditions {
		if r == nil || !strings.EqualFold(fmt.Sprint(asked.Status), string(n.statuses[member])) {
			return false
		}
		since := r.known.at
		if changes := r.members[member]; len(changes) > 0 {
			since = changes[len(changes)-1].at
		}
		if at.Sub(since) <= s.options.Lag {
			return false
		}
	}
	return true
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
		if (zone == "" || n.zone == zone) && has(n.node) && c.At.Sub(s.evicting[n.uid].at) < s.options.EvictPace-paceRounding {
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
