package condition

import (
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// deletedNodes are nodes that were deleted while taints of ours evicted pods from them, as autoscalers and repair controllers do. Each
// counts under the limits until EvictPace has passed since its last taint: otherwise deleting nodes as fast as they are evicted
// would lift every limit.
type deletedNodes map[types.UID]deletedNode

type deletedNode struct {
	usage usage
	until time.Time
}

// expire drops nodes that no longer count, and those that would count for longer than possible, since our clock was set back. freed: there
// were some.
func (g deletedNodes) expire(now time.Time, pace time.Duration) (freed bool) {
	was := len(g)
	maps.DeleteFunc(g, func(_ types.UID, n deletedNode) bool { return !now.Before(n.until) || n.until.After(now.Add(pace)) })
	return len(g) < was
}

func (g deletedNodes) counts() counts {
	c := newCounts()
	for _, n := range g {
		c.add(n.usage, 1)
	}
	return c
}

// claimedBy counts those that a set of this UID or name had tainted.
func (g deletedNodes) claimedBy(s *setState) (nodes int) {
	for _, n := range g {
		if n.usage.claims(s) {
			nodes++
		}
	}
	return nodes
}

// unavailableNote is the part of a limit's message that says how many nodes percentages leave out.
func unavailableNote(nodes int) string {
	if nodes == 0 {
		return ""
	}
	return "; " + sample.Clause(nodes, "more is cordoned, not Ready or tainted as leaving and doesn't count", "more are cordoned, not Ready or tainted as leaving and don't count")
}

// deletedNote is the part of a limit's message that says how many of the counted nodes are deleted.
func deletedNote(nodes int) string {
	if nodes == 0 {
		return ""
	}
	return fmt.Sprintf(", %d deleted since; each counts until evictPace has passed since its taint", nodes)
}

// taintHistory is when sets of a name tainted nodes of a name. It outlives the record, which goes with the node, with the set, and while the set only
// observes: none of these makes flapping conditions more reliable.
type taintHistory struct {
	taints map[historyKey][]PastTaint
	pruned time.Time
}

type historyKey struct{ node, set string }

// observe records the claims that are new in a node's record: not those that were there before, though another set of the name adopted them,
// nor, for a node that is new, those of a former node of the name. A time in the future is forged, or of a wrong clock.
func (p *taintHistory) observe(before, after *Node, now time.Time) {
	for _, t := range after.Owned.Taints {
		of := historyKey{after.Name, t.Name}
		known := false
		if before == nil {
			known = slices.ContainsFunc(p.taints[of], func(was PastTaint) bool { return was.Key == t.Key && was.At.Equal(&t.Since) })
		} else {
			known = slices.ContainsFunc(before.Owned.Taints, func(b OwnedTaint) bool { return b.Name == t.Name && b.Key == t.Key && b.Since.Equal(&t.Since) })
		}
		if !known && !inFuture(t.Since.Time, now) {
			p.taints[of] = pruned(append(slices.Clone(p.taints[of]), PastTaint{Key: t.Key, At: t.Since}), now)
		}
	}
	if now.Sub(p.pruned) < historyRetention {
		return
	}
	p.pruned = now
	maps.DeleteFunc(p.taints, func(_ historyKey, all []PastTaint) bool { return len(pruned(all, now)) == 0 })
}

// markWithdrawn notes which claims went with their sets.
func (p *taintHistory) markWithdrawn(before, after *Node, withdrawn func(types.UID) bool) {
	for _, t := range before.Owned.Taints {
		kept := slices.ContainsFunc(after.Owned.Taints, func(a OwnedTaint) bool { return a.Name == t.Name && a.Key == t.Key })
		if kept || !withdrawn(t.Set) {
			continue
		}
		for i, was := range p.taints[historyKey{before.Name, t.Name}] {
			if was.Key == t.Key && was.At.Equal(&t.Since) {
				p.taints[historyKey{before.Name, t.Name}][i].Withdrawn = true
			}
		}
	}
}

// inFuture says whether a time lies further in the future than clocks may be apart: it is forged, or our clock was set back since.
func inFuture(t, now time.Time) bool { return t.After(now.Add(maxClockSkew)) }

// deletedSet is what a deleted set passes on to one created under its name within historyRetention: an open breaker, and the nodes that
// were deleted while they matched. Recreating a set doesn't mean that somebody checked the reporter.
type deletedSet struct {
	*setState
	until time.Time
}

// recordDeletedSet stores what a deleted set passes on.
func (f *Fleet) recordDeletedSet(s *setState, now time.Time) {
	maps.DeleteFunc(f.deletedSets, func(_ string, deleted deletedSet) bool { return !now.Before(deleted.until) })
	f.deletedSets[s.Name] = deletedSet{s, now.Add(historyRetention)}
}

// inherit gives a new set what the former set of its name passed on.
func (f *Fleet) inherit(s *setState, now time.Time) {
	f.reopen(s, now)
	if deleted, ok := f.deletedSets[s.Name]; ok {
		s.inheritDeletedMatching(deleted.setState)
	}
}

// reopen gives a set the open breaker that the former one of its name left, until its own status records an opening. One that was reset
// counts as closed: the reset was for that opening alone.
func (f *Fleet) reopen(s *setState, now time.Time) {
	if deleted, ok := f.deletedSets[s.Name]; ok && deleted.breaker.Blocks() && now.Before(deleted.until) {
		opening, _ := deleted.breaker.Opening()
		s.breaker.Restore(opening)
	}
}

// inheritDeletedMatching takes over which nodes were deleted while they matched the same conditions.
func (s *setState) inheritDeletedMatching(from *setState) {
	if slices.Equal(s.Members, from.Members) {
		s.deletedMatching = from.deletedMatching
	}
}

// recordEviction records a node's latest eviction, as the node shows it.
func (f *Fleet) recordEviction(n *nodeState, now time.Time) {
	began := n.Owned.lastEviction(now.Add(f.policy.Limits.EvictPace))
	f.addEviction(limit.Act{UID: n.UID, Name: n.Name, Zone: n.Zone, Began: began}, now)
	delete(f.deleted, n.UID)
	f.expire(now)
}

// expire requeues the heads of the queues once a deleted node no longer counts. A replica that follows decides nothing, and expires with
// each observation.
func (f *Fleet) expire(now time.Time) {
	if f.deleted.expire(now, f.policy.Limits.EvictPace) {
		f.requeueHeads()
	}
}

// recordDeleted records what was done to a node that is deleted now: a write in flight may have succeeded before.
func (f *Fleet) recordDeleted(n *nodeState, now time.Time) {
	pace := f.policy.Limits.EvictPace
	f.addEviction(limit.Act{UID: n.UID, Name: n.Name, Zone: n.Zone, Began: n.lastEviction(now.Add(pace))}, now)
	f.expire(now)
	after := n.usageOnceDeleted(now, f.isDeclared)
	if until := timing.Earlier(after.last, now).Add(pace); after.evicts && !after.last.IsZero() && now.Before(until) {
		f.deleted[n.UID] = deletedNode{after, until}
	}
}

// usageOnceDeleted is what a deleted node counts for: what it carried, and what was in flight to it, without claims to undeclared keys. Where
// its record can't be read, the taints count from now on. The node is none of those that percentages are of.
func (n *nodeState) usageOnceDeleted(now time.Time, declared func(key string) bool) usage {
	if n.RecordBroken {
		u := n.usage
		u.counted, u.unavailable, u.controlPlaneReady, u.last = false, false, false, now
		return u
	}
	u := usage{controlPlane: n.ControlPlane, zone: n.Zone}
	u.add(n.Owned.declaredOnly(declared), n.Taints)
	if n.inFlight != nil {
		u.add(n.inFlight.owned.declaredOnly(declared), n.inFlight.taints)
	}
	return u
}

// lastEviction is when a taint of the node last became NoExecute, or will have.
func (n *nodeState) lastEviction(latest time.Time) time.Time {
	last := n.Owned.lastEviction(latest)
	if n.inFlight != nil {
		last = timing.Later(last, n.inFlight.owned.lastEviction(latest))
	}
	return last
}

// lastEviction is when a taint last became NoExecute. What lies after latest is forged, or of a clock that was wrong, and hides nothing.
func (o Ownership) lastEviction(latest time.Time) (last time.Time) {
	take := func(at *metav1.Time) {
		if at != nil && !at.After(latest) {
			last = timing.Later(last, at.Time)
		}
	}
	for _, t := range o.Taints {
		take(t.EvictSince)
	}
	for _, h := range o.History {
		take(h.Evicted)
	}
	return last
}

// declaredOnly are the claims to keys that some set declared.
func (o Ownership) declaredOnly(declared func(key string) bool) Ownership {
	o.Taints = slices.DeleteFunc(slices.Clone(o.Taints), func(t OwnedTaint) bool { return ecosystem.NeverOurs(t.Key) || !declared(t.Key) })
	return o
}

func (f *Fleet) addEviction(a limit.Act, now time.Time) (news bool) {
	news = f.evictions.Remember(a, now.Add(f.policy.Limits.EvictPace))
	if news {
		f.evictions.Forget(now.Add(-f.policy.Limits.EvictPace))
	}
	return news
}

// Recall takes in evictions that were recorded before, by this manager or an earlier one: of nodes that are gone, or whose record was
// undone since. They pace others; whether a node that is gone still had its taint isn't recorded. It says whether one is news, so that what
// was planned may be too much.
func (f *Fleet) Recall(evictions []limit.Act, at timing.Moment) (news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range evictions {
		if at.Now.Before(a.Began.Add(f.policy.Limits.EvictPace)) && f.addEviction(a, at.Now) {
			news = true
			f.recalls++
		}
	}
	return news
}

// Stale says whether evictions were recalled since a plan was made, so that it may be too much.
func (f *Fleet) Stale(p Plan) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return p.recalls != f.recalls
}

// Evictions are those that pace others, the oldest first.
func (f *Fleet) Evictions() []limit.Act {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.evictions.Acts()
}
