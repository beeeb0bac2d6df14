package condition

import (
	"fmt"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// room gives what the limits leave for a node, which ranks by when a match of it expired.
func (f *Fleet) room(n *nodeState, at Moment) Room {
	return func(of Cap, c Claimant, expired time.Time) Gate {
		switch of {
		case CapTainted:
			return f.cap(HeldByLimit, "maxTaintedNodes", f.policy.Limits.MaxTaintedNodes, n, expired, n.usage.repels, func(t tally) int { return t.repelling })
		case CapEvicting:
			return f.evictRoom(n, expired, at)
		case CapPlane:
			return f.planeRoom(n, expired)
		default:
			return f.ownCap(f.sets[c.UID], n, expired)
		}
	}
}

func (f *Fleet) evictRoom(n *nodeState, expired time.Time, at Moment) Gate {
	if n.usage.planeReady && f.counts.planeReady <= 1 {
		return Gate{Reason: HeldByPlane, Message: "it is the last Ready control-plane node", dimension: "plane"}
	}
	full := f.cap(HeldByEvictLimit, "maxEvictingNodes", f.policy.Limits.MaxEvictingNodes, n, expired, n.usage.evicts, func(t tally) int { return t.evicting })
	if full.Closed() {
		return full
	}
	return f.pace(n, expired, at)
}

func (f *Fleet) planeRoom(n *nodeState, expired time.Time) Gate {
	planes := f.counts.planeTainted + f.gone.counts().planeTainted
	if n.usage.plane && n.usage.any {
		planes--
	}
	if planes+f.before("plane", n, expired) > 0 {
		return Gate{Reason: HeldByPlane, Message: "another control-plane node is tainted; one at a time", dimension: "plane"}
	}
	return Gate{}
}

// cap is a cluster-wide limit, which from three zones on also holds in each zone. It counts the other nodes: a node that
// is itself counted asks only when what counts is a forged claim. The node that asks is one of those that percentages are of, though it
// be away already: its taint takes nothing more away.
func (f *Fleet) cap(reason Reason, name string, value limit.Cap, n *nodeState, expired time.Time, itself bool, count func(tally) int) Gate {
	used := count
	if itself {
		used = func(t tally) int { return count(t) - 1 }
	}
	itsOwn := 0
	if n.usage.away {
		itsOwn = 1
	}
	gone := f.gone.counts()
	all, past := f.counts.cluster, count(gone.cluster)
	nodes := all.counted + itsOwn
	allowed := value.Of(nodes)
	if used(all)+past+f.before(name, n, expired) >= allowed {
		return Gate{Reason: reason, dimension: name,
			Message: fmt.Sprintf("%s %s allows %d of %d nodes, and %d are", name, value.String(), allowed, nodes, used(all)) + deletedSince(past) + unavailable(all.away-itsOwn)}
	}
	if f.counts.zonesCounted() < 3 {
		return Gate{}
	}
	zone, dimension := f.counts.zone(n.Zone), name+"/"+n.Zone
	here := zone.counted + itsOwn
	past, allowed = count(gone.zone(n.Zone)), value.OfZone(here, nodes)
	if used(zone)+past+f.before(dimension, n, expired) >= allowed {
		return Gate{Reason: reason, dimension: dimension,
			Message: fmt.Sprintf("%s %s allows %d of %d nodes of zone %q, and %d are", name, value.String(), allowed, here, n.Zone, used(zone)) + deletedSince(past) + unavailable(zone.away-itsOwn)}
	}
	return Gate{}
}

// pace lets one node of a zone begin to evict at a time.
func (f *Fleet) pace(n *nodeState, expired time.Time, at Moment) Gate {
	dimension := "pace/" + n.Zone
	pace, before := f.policy.Limits.EvictPace, at.Now.Add(f.policy.Limits.EvictPace)
	last := f.evictions.Last(n.Zone, before)
	for _, other := range f.index.all(&f.recording) {
		if other.Zone == n.Zone {
			last = later(last, other.lastEviction(before))
		}
	}
	next := last.Add(pace)
	if at.Now.Before(next) || f.before(dimension, n, expired) > 0 {
		if !at.Now.Before(next) {
			next = time.Time{}
		}
		return Gate{Reason: HeldByPace, At: next, dimension: dimension,
			Message: fmt.Sprintf("one node of zone %q begins to evict every %s", n.Zone, pace) + from(next)}
	}
	return Gate{}
}

// from adds to a message when time opens a limit.
func from(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return "; the next may at " + t.UTC().Format(time.RFC3339)
}

// ownCap counts the other nodes: what the set once did to this one doesn't stand in its way.
func (f *Fleet) ownCap(s *setState, n *nodeState, expired time.Time) Gate {
	if s.MaxNodes == nil {
		return Gate{}
	}
	tainted := f.claimed(s)
	tainted.put(n.slot, false)
	others := tainted.count()
	past := f.gone.claiming(s)
	all := f.index.selected(s.Set)
	selected := f.index.available(all)
	if !n.Available {
		selected++
	}
	dimension, allowed := ownLine(s), limit.Of(*s.MaxNodes, selected)
	if others+past+f.before(dimension, n, expired) < allowed {
		return Gate{}
	}
	return Gate{Reason: HeldByOwnCap, dimension: dimension,
		Message: fmt.Sprintf("maxNodes %s allows %d of %d selected nodes, and %d are tainted", s.MaxNodes.String(), allowed, selected, others) +
			deletedSince(past) + unavailable(all.count()-selected)}
}

// ownLine is where nodes wait for a set's own cap.
func ownLine(s *setState) string { return "set/" + string(s.UID) }

// judgeBreaker opens a set's breaker when more of its nodes match at once than can be believed. Only a reset lets it act
// again: falling numbers don't, because what comes back may be the same reporter.
//
// It counts every match, whether its reporter was heard of lately and whether `for` has passed or not. A breaker only
// forbids, so that the safe side is to count too many: conditions frozen at their worst by a reporter that died are the very
// thing that it is for, and if matches counted only once `for` passed, the first of a wave would be tainted before the
// last is counted.
func (f *Fleet) judgeBreaker(s *setState, at Moment) {
	if !f.synced || f.follows {
		return
	}
	matching, selected := f.wave(s, at.Now)
	wave := f.policy.Limits.Breaks(matching, selected)
	_, open := s.breaker.Opening()
	if wave && !open && !s.Observe { // one that only observes does nothing that could be stopped
		s.breaker.Open(limit.Opening{ID: at.Now.UTC().Format("20060102t150405z"), OpenedAt: at.Now, Turned: matching, Targets: selected})
		f.touch(s)
	}
	reset := s.breaker.ResetBy(s.resetID)
	if closed := !wave && s.breaker.Close(); reset || closed {
		f.touch(s)
	}
}

// wave is how many nodes match at once, of how many. A node that is deleted while it matches counts until EvictPace has passed: else whoever
// deletes sick nodes as fast as the reporter makes them would hide the wave.
func (f *Fleet) wave(s *setState, now time.Time) (matching, selected int) {
	nodes, gone := f.index.selected(s.Set), f.departed(s, now)
	return f.index.matching(s.Set, nodes).count() + gone, nodes.count() + gone
}

// departed counts the nodes that were deleted while they matched, within EvictPace.
func (f *Fleet) departed(s *setState, now time.Time) (nodes int) {
	for _, a := range s.departed.Acts() {
		if now.Before(a.Began.Add(f.policy.Limits.EvictPace)) && !ahead(a.Began, now) {
			nodes++
		}
	}
	return nodes
}

func (s *setState) why() Reason {
	if s.breaker.Holds() {
		return HeldByBreaker
	}
	return ""
}
