package condition

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// footprint is what a node counts for under the limits: what it is known to carry together with what is in flight to it.
type footprint struct {
	// counted: it is one of the N that percentages are of. away: it would be one, if it were available.
	counted, away bool
	// plane: a control-plane node; planeReady: one that serves.
	plane, planeReady bool
	zone              string
	// any taint of ours; one that keeps pods away; one that evicts.
	any, repels, evicts bool
	// taintedAt and evictedAt are when a taint of ours was last set, and when one last became NoExecute.
	taintedAt, evictedAt time.Time
	sets                 []claimer
}

// claimer is a set that has a claim on a taint of the node.
type claimer struct {
	uid  types.UID
	name string
}

// claims counts what a former set of the same name did, too: the present one takes it over.
func (p footprint) claims(s *setState) bool {
	return slices.ContainsFunc(p.sets, func(c claimer) bool { return c.uid == s.UID || c.name == s.Name })
}

// inFlight is a write of ours.
type inFlight struct {
	owned  Ownership
	taints []corev1.Taint
	// version is the resource version that the write gave, "" while that is uncertain.
	version string
	since   time.Time
}

// footprint of the node. What a record that can't be read says is unknown, so that the taints of all keys that a set ever
// declared count.
func (n *nodeState) footprint(declared func(key string) bool) footprint {
	worker := !n.Deleting && !n.ControlPlane
	p := footprint{counted: worker && n.Available, away: worker && !n.Available, zone: n.Zone,
		plane: n.ControlPlane, planeReady: n.ControlPlane && n.Ready && !n.Deleting}
	if n.RecordBroken {
		for _, t := range n.suspects(declared) {
			p.carry(t.Effect)
		}
	}
	p.add(n.Owned, n.Taints)
	if n.inFlight != nil {
		p.add(n.inFlight.owned, n.inFlight.taints)
	}
	return p
}

func (p *footprint) add(o Ownership, taints []corev1.Taint) {
	for _, t := range taints {
		if !o.Owns(t) {
			continue
		}
		p.carry(t.Effect)
	}
	for _, t := range o.Taints {
		p.sets = append(p.sets, claimer{t.Set, t.Name})
		p.taintedAt = later(p.taintedAt, t.Since.Time)
		if t.EvictSince != nil {
			p.evictedAt = later(p.evictedAt, t.EvictSince.Time)
		}
	}
	for _, h := range o.History {
		if h.Evicted != nil {
			p.evictedAt = later(p.evictedAt, h.Evicted.Time)
		}
	}
}

func (p *footprint) carry(effect corev1.TaintEffect) {
	p.any = true
	p.repels = p.repels || rank[effect] >= rank[corev1.TaintEffectNoSchedule]
	p.evicts = p.evicts || effect == corev1.TaintEffectNoExecute
}

func (n *nodeState) recordNames(set types.UID) bool {
	return n.Owned.names(set) || n.inFlight != nil && n.inFlight.owned.names(set)
}

// recordedSets are the sets that the record names, or will once the write in flight is there.
func (n *nodeState) recordedSets() []types.UID {
	sets := n.Owned.Sets()
	if n.inFlight != nil {
		sets = append(sets, n.inFlight.owned.Sets()...)
	}
	return sets
}

// tally counts the nodes of the cluster or of a zone.
type tally struct {
	counted, away, repelling, evicting int
	// evictions counts when nodes began to evict, in Unix seconds. All are kept, so that a write that failed leaves none.
	evictions map[int64]int
}

func (t *tally) add(p footprint, n int) {
	if p.counted {
		t.counted += n
	}
	if p.away {
		t.away += n
	}
	if p.repels {
		t.repelling += n
	}
	if p.evicts {
		t.evicting += n
	}
	if p.evictedAt.IsZero() {
		return
	}
	if t.evictions == nil {
		t.evictions = map[int64]int{}
	}
	at := p.evictedAt.Unix()
	if t.evictions[at] += n; t.evictions[at] == 0 {
		delete(t.evictions, at)
	}
}

// lastEviction is when a node last began to evict. What lies after before comes from a clock that was wrong, or from a
// forged record, and would stop evictions for ever.
func (t *tally) lastEviction(before time.Time) (last time.Time) {
	for at := range t.evictions {
		if when := time.Unix(at, 0); !when.After(before) {
			last = later(last, when)
		}
	}
	return last
}

type counts struct {
	cluster tally
	zones   map[string]*tally
	// planeReady are control-plane nodes that serve; planeTainted are those with any taint of ours.
	planeReady, planeTainted int
}

func newCounts() counts { return counts{zones: map[string]*tally{}} }

func (c *counts) add(p footprint, n int) {
	c.cluster.add(p, n)
	if c.zones[p.zone] == nil {
		c.zones[p.zone] = &tally{}
	}
	c.zones[p.zone].add(p, n)
	if p.plane && p.any {
		c.planeTainted += n
	}
	if p.planeReady {
		c.planeReady += n
	}
}

// replace counts after instead of before, and says whether that makes room, but for what percentages are of.
func (c *counts) replace(before, after footprint) (freed bool) {
	c.add(before, -1)
	c.add(after, 1)
	return before.repels && !after.repels || before.evicts && !after.evicts || before.any && !after.any ||
		!subset(before.sets, after.sets)
}

// zonesCounted is the number of zones that have nodes, available or not; limits hold by zone from three on.
func (c *counts) zonesCounted() int {
	n := 0
	for zone, t := range c.zones {
		if zone != "" && t.counted+t.away > 0 {
			n++
		}
	}
	return n
}

// recount brings the counts up to the node's present footprint.
func (f *Fleet) recount(n *nodeState) (freed bool) {
	p := n.footprint(f.isDeclared)
	was := f.allowed(p.zone)
	freed = f.counts.replace(n.print, p)
	n.print = p
	for i, is := range f.allowed(p.zone) {
		freed = freed || is > was[i]
	}
	return freed
}

// allowed are what the limits allow in the cluster and in a zone: they grow with some of the nodes that come, not with each.
func (f *Fleet) allowed(zone string) (allowed [4]int) {
	all, here := f.counts.cluster.counted, 0
	if t := f.counts.zones[zone]; t != nil {
		here = t.counted
	}
	for i, most := range []limit.Cap{f.policy.Limits.MaxTaintedNodes, f.policy.Limits.MaxEvictingNodes} {
		allowed[2*i], allowed[2*i+1] = most.Of(all), most.OfZone(here, all)
	}
	return allowed
}
