package condition

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// usage is what a node counts for under the limits: what it is known to carry together with what is in flight to it.
type usage struct {
	// counted: it is one of the N that percentages are of. unavailable: it would be one, if it were available.
	counted, unavailable bool
	// controlPlane: a control-plane node; controlPlaneReady: one that serves.
	controlPlane, controlPlaneReady bool
	zone                            string
	// tainted: it has a taint of ours; repels: one that keeps pods away; evicts: one that evicts.
	tainted, repels, evicts bool
	// last is when a taint of ours was set, or became NoExecute, for the last time.
	last time.Time
	// sets have a claim on a taint of the node; past are those of its history.
	sets []setRef
	past []types.UID
}

// setRef is a set as a record names it.
type setRef struct {
	uid  types.UID
	name string
}

// claims counts what a former set of the same name did, too: the present one takes it over.
func (u usage) claims(s *setState) bool {
	return slices.ContainsFunc(u.sets, func(c setRef) bool { return c.uid == s.UID || c.name == s.Name })
}

// records says whether the record has an entry of the set, also only a past one.
func (u usage) records(set types.UID) bool {
	return slices.ContainsFunc(u.sets, func(c setRef) bool { return c.uid == set }) || slices.Contains(u.past, set)
}

// inFlight is a write of ours.
type inFlight struct {
	owned  Ownership
	taints []corev1.Taint
	// version is the resource version that the write gave, "" while that is uncertain.
	version string
	since   time.Time
}

// currentUsage of the node. What a record that can't be read says is unknown, so that the taints of all keys that a set ever
// declared count.
func (n *nodeState) currentUsage(declared func(key string) bool) usage {
	worker := !n.Deleting && !n.ControlPlane
	u := usage{counted: worker && n.Available, unavailable: worker && !n.Available, zone: n.Zone,
		controlPlane: n.ControlPlane, controlPlaneReady: n.ControlPlane && n.Ready && !n.Deleting}
	if n.RecordBroken {
		for _, t := range n.possiblyOurs(declared) {
			u.addTaint(t.Effect)
		}
	}
	u.add(n.Owned, n.Taints)
	if n.inFlight != nil {
		u.add(n.inFlight.owned, n.inFlight.taints)
	}
	return u
}

func (u *usage) add(o Ownership, taints []corev1.Taint) {
	for _, t := range taints {
		if o.Owns(t) {
			u.addTaint(t.Effect)
		}
	}
	for _, t := range o.Taints {
		u.sets = append(u.sets, setRef{t.Set, t.Name})
		u.last = timing.Later(u.last, t.Since.Time)
		if t.EvictSince != nil {
			u.last = timing.Later(u.last, t.EvictSince.Time)
		}
	}
	for _, h := range o.History {
		u.past = append(u.past, h.Set)
		if h.Evicted != nil {
			u.last = timing.Later(u.last, h.Evicted.Time)
		}
	}
}

func (u *usage) addTaint(effect corev1.TaintEffect) {
	u.tainted = true
	u.repels = u.repels || rank[effect] >= rank[corev1.TaintEffectNoSchedule]
	u.evicts = u.evicts || effect == corev1.TaintEffectNoExecute
}

// tally counts the nodes of the cluster or of a zone.
type tally struct{ counted, unavailable, repelling, evicting int }

func (t *tally) add(u usage, n int) {
	add := func(count *int, is bool) {
		if is {
			*count += n
		}
	}
	add(&t.counted, u.counted)
	add(&t.unavailable, u.unavailable)
	add(&t.repelling, u.repels)
	add(&t.evicting, u.evicts)
}

type counts struct {
	cluster tally
	zones   map[string]*tally
	// controlPlaneReady are control-plane nodes that serve; controlPlaneTainted are those with any taint of ours.
	controlPlaneReady, controlPlaneTainted int
}

func newCounts() counts { return counts{zones: map[string]*tally{}} }

func (c *counts) add(u usage, n int) {
	c.cluster.add(u, n)
	if c.zones[u.zone] == nil {
		c.zones[u.zone] = &tally{}
	}
	c.zones[u.zone].add(u, n)
	if u.controlPlane && u.tainted {
		c.controlPlaneTainted += n
	}
	if u.controlPlaneReady {
		c.controlPlaneReady += n
	}
}

// zone counts the nodes of one zone.
func (c *counts) zone(name string) tally {
	if t := c.zones[name]; t != nil {
		return *t
	}
	return tally{}
}

// zonesCounted is the number of zones that have nodes, available or not; limits hold by zone from three on.
func (c *counts) zonesCounted() int {
	n := 0
	for zone, t := range c.zones {
		if zone != "" && t.counted+t.unavailable > 0 {
			n++
		}
	}
	return n
}

// recount updates the counts to what the node carries, marks its sets dirty, and requeues other nodes if they have more headroom now.
func (f *Fleet) recount(n *nodeState) {
	was, is := n.usage, n.currentUsage(f.isDeclared)
	f.counts.add(was, -1)
	f.counts.add(is, 1)
	if same := slices.Equal(was.sets, is.sets) && slices.Equal(was.past, is.past); !same {
		f.markClaimantsDirty(n)
		n.usage = is
		f.markClaimantsDirty(n)
	}
	n.usage = is
	f.withRecord.set(n.slot, n.hasRecord())
	if was.frees(is) {
		f.requeueHeads()
	}
}

// frees says whether other nodes have more headroom once the node counts for what it is now.
func (u usage) frees(is usage) bool {
	return u.repels && !is.repels || u.evicts && !is.evicts || u.tainted && !is.tainted || !subset(u.sets, is.sets) ||
		is.counted && (!u.counted || u.zone != is.zone)
}

// hasRecord says whether the node has a record, or a write in flight.
func (n *nodeState) hasRecord() bool {
	return len(n.Owned.Taints) > 0 || len(n.Owned.History) > 0 || n.inFlight != nil
}
