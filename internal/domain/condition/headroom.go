package condition

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// headroom gives what the limits leave for a node, which ranks by when a match of it expired.
func (f *Fleet) headroom(n *nodeState, at timing.Moment) Headroom {
	return func(of Cap, c Claimant, expired time.Time) Gate {
		switch of {
		case CapTainted:
			return f.clusterCap(HeldByLimit, "maxTaintedNodes", f.policy.Limits.MaxTaintedNodes, n, expired, n.usage.repels, func(t tally) int { return t.repelling })
		case CapEvicting:
			return f.evictionHeadroom(n, expired, at)
		case CapControlPlane:
			return f.controlPlaneHeadroom(n, expired)
		default:
			return f.maxNodesHeadroom(f.sets[c.UID], n, expired)
		}
	}
}

func (f *Fleet) evictionHeadroom(n *nodeState, expired time.Time, at timing.Moment) Gate {
	if n.usage.controlPlaneReady && f.counts.controlPlaneReady <= 1 {
		return Gate{Reason: HeldByControlPlane, Message: "the node is the last Ready control-plane node", queue: "plane"}
	}
	full := f.clusterCap(HeldByEvictLimit, "maxEvictingNodes", f.policy.Limits.MaxEvictingNodes, n, expired, n.usage.evicts, func(t tally) int { return t.evicting })
	if full.Closed() {
		return full
	}
	return f.evictionPace(n, expired, at)
}

func (f *Fleet) controlPlaneHeadroom(n *nodeState, expired time.Time) Gate {
	planes := f.counts.controlPlaneTainted + f.deleted.counts().controlPlaneTainted
	if n.usage.controlPlane && n.usage.tainted {
		planes--
	}
	if planes+f.waitingBefore("plane", n, expired) > 0 {
		return Gate{Reason: HeldByControlPlane, Message: "another control-plane node is tainted; one at a time", queue: "plane"}
	}
	return Gate{}
}

// clusterCap is a cluster-wide limit, which from three zones on also holds in each zone. It counts the other nodes: a node that
// is itself counted asks only when what counts is a forged claim. The node that asks is one of those that percentages are of, though it
// be away already: its taint takes nothing more away.
func (f *Fleet) clusterCap(reason Reason, name string, value limit.Cap, n *nodeState, expired time.Time, itself bool, count func(tally) int) Gate {
	used := count
	if itself {
		used = func(t tally) int { return count(t) - 1 }
	}
	itsOwn := 0
	if n.usage.unavailable {
		itsOwn = 1
	}
	counted := areTainted
	if reason == HeldByEvictLimit {
		counted = areEvicting
	}
	deleted := f.deleted.counts()
	all, past := f.counts.cluster, count(deleted.cluster)
	nodes := all.counted + itsOwn
	allowed := value.Of(nodes)
	if used(all)+past+f.waitingBefore(name, n, expired) >= allowed {
		return Gate{Reason: reason, queue: name,
			Message: fmt.Sprintf("%s %s allows %d of %d nodes, and %s", name, value.String(), allowed, nodes, counted(used(all))) + deletedNote(past) + unavailableNote(all.unavailable-itsOwn)}
	}
	if f.counts.zonesCounted() < 3 {
		return Gate{}
	}
	zone, queue := f.counts.zone(n.Zone), name+"/"+n.Zone
	here := zone.counted + itsOwn
	past, allowed = count(deleted.zone(n.Zone)), value.OfZone(here, nodes)
	if used(zone)+past+f.waitingBefore(queue, n, expired) >= allowed {
		return Gate{Reason: reason, queue: queue,
			Message: fmt.Sprintf("%s %s allows %d of %d nodes of zone %q, and %s", name, value.String(), allowed, here, n.Zone, counted(used(zone))) + deletedNote(past) + unavailableNote(zone.unavailable-itsOwn)}
	}
	return Gate{}
}

func areTainted(n int) string { return sample.Clause(n, "is tainted", "are tainted") }

func areEvicting(n int) string { return sample.Clause(n, "is evicting", "are evicting") }

// evictionPace lets one node of a zone begin to evict at a time.
func (f *Fleet) evictionPace(n *nodeState, expired time.Time, at timing.Moment) Gate {
	queue := "pace/" + n.Zone
	pace, before := f.policy.Limits.EvictPace, at.Now.Add(f.policy.Limits.EvictPace)
	last := f.evictions.Last(n.Zone, before)
	for _, other := range f.index.nodes(&f.withRecord) {
		if other.Zone == n.Zone {
			last = timing.Later(last, other.lastEviction(before))
		}
	}
	next := last.Add(pace)
	if at.Now.Before(next) || f.waitingBefore(queue, n, expired) > 0 {
		if !at.Now.Before(next) {
			next = time.Time{}
		}
		return Gate{Reason: HeldByEvictPace, At: next, queue: queue,
			Message: fmt.Sprintf("one node of zone %q begins to evict every %s", n.Zone, pace) + nextAt(next)}
	}
	return Gate{}
}

// nextAt is the part of a limit's message that says when it opens by time alone.
func nextAt(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return "; the next may at " + t.UTC().Format(time.RFC3339)
}

// maxNodesHeadroom counts the other nodes: a taint that the set already has on this one needs no further headroom.
func (f *Fleet) maxNodesHeadroom(s *setState, n *nodeState, expired time.Time) Gate {
	if s.MaxNodes == nil {
		return Gate{}
	}
	tainted := f.claimed(s)
	tainted.set(n.slot, false)
	others := tainted.count()
	past := f.deleted.claimedBy(s)
	all := f.index.selected(s.Set)
	selected := f.index.countAvailable(all)
	if !n.Available {
		selected++
	}
	queue, allowed := maxNodesQueue(s), limit.Of(*s.MaxNodes, selected)
	if others+past+f.waitingBefore(queue, n, expired) < allowed {
		return Gate{}
	}
	return Gate{Reason: HeldByMaxNodes, queue: queue,
		Message: fmt.Sprintf("maxNodes %s allows %d of %d selected nodes, and %s", s.MaxNodes.String(), allowed, selected, areTainted(others)) +
			deletedNote(past) + unavailableNote(all.count()-selected)}
}

// maxNodesQueue is where nodes wait for a set's own cap.
func maxNodesQueue(s *setState) string { return "set/" + string(s.UID) }

// evaluateBreaker opens a set's breaker when more of its nodes match at once than is plausible. Only a reset lets it act
// again: falling numbers don't, because what comes back may be the same reporter.
//
// It counts every match, whether its reporter is alive and whether `for` has passed or not. A breaker only
// forbids, so that the safe side is to count too many: conditions frozen at their worst by a reporter that died are the very
// thing that it is for, and if matches counted only once `for` passed, the first of a wave would be tainted before the
// last is counted.
func (f *Fleet) evaluateBreaker(s *setState, at timing.Moment) {
	if !f.synced || f.follows {
		return
	}
	matching, selected := f.matchingAtOnce(s, at.Now)
	wave := f.policy.Limits.OpensBreaker(matching, selected)
	_, open := s.breaker.Opening()
	if wave && !open && !s.Observe { // one that only observes does nothing that could be stopped
		s.breaker.Open(limit.Opening{ID: at.Now.UTC().Format("20060102t150405z"), OpenedAt: at.Now, Turned: matching, Targets: selected})
		f.markDirty(s)
	}
	reset := s.breaker.ResetBy(s.resetID)
	if closed := !wave && s.breaker.Close(); reset || closed {
		f.markDirty(s)
	}
}

// matchingAtOnce is how many nodes match at once, of how many. A node that is deleted while it matches counts until EvictPace has passed:
// otherwise deleting nodes as fast as the reporter marks them would hide how many match.
func (f *Fleet) matchingAtOnce(s *setState, now time.Time) (matching, selected int) {
	nodes, deleted := f.index.selected(s.Set), f.countDeletedMatching(s, now)
	return f.index.matching(s.Set, nodes).count() + deleted, nodes.count() + deleted
}

// countDeletedMatching counts the nodes that were deleted while they matched, within EvictPace.
func (f *Fleet) countDeletedMatching(s *setState, now time.Time) (nodes int) {
	for _, a := range s.deletedMatching.Acts() {
		if now.Before(a.Began.Add(f.policy.Limits.EvictPace)) && !inFuture(a.Began, now) {
			nodes++
		}
	}
	return nodes
}

func (s *setState) holdReason() Reason {
	if s.breaker.Blocks() {
		return HeldByBreaker
	}
	return ""
}

// queuePosition is a node's position in the queue for a limit. The node whose match expired first goes first.
type queuePosition struct {
	since time.Time
	name  string
}

func byQueueOrder(a, b queuePosition) int {
	return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.name, b.name))
}

// positionIn gives a node's position in a queue; ok is false when it doesn't wait there.
func (n *nodeState) positionIn(queue string) (position queuePosition, ok bool) {
	for _, h := range n.holds {
		if h.queue == queue {
			position, ok = queuePosition{timing.Earlier(position.since, h.At), n.Name}, true
		}
	}
	return position, ok
}

// waitingBefore is how many nodes wait longer than this one would, if it had waited since then.
func (f *Fleet) waitingBefore(queue string, n *nodeState, since time.Time) (nodes int) {
	for other := range f.held {
		if position, waits := other.positionIn(queue); waits && other != n && byQueueOrder(position, queuePosition{since, n.Name}) < 0 {
			nodes++
		}
	}
	return nodes
}

// maxRequeued bounds how many nodes one freed slot requeues; each that leaves the queue requeues the next.
const maxRequeued = 16

// firstInQueue are the longest-waiting nodes of a queue.
func (f *Fleet) firstInQueue(queue string) (nodes []string) {
	var first []queuePosition
	for n := range f.held {
		if position, waits := n.positionIn(queue); waits {
			at, _ := slices.BinarySearchFunc(first, position, byQueueOrder)
			first = slices.Insert(first, at, position)
			first = first[:min(len(first), maxRequeued)]
		}
	}
	for _, position := range first {
		nodes = append(nodes, position.name)
	}
	return nodes
}

// requeueHeads requeues the longest-waiting nodes of every queue.
func (f *Fleet) requeueHeads() { f.requeues.Insert(f.queueHeads()...) }

// queueHeads are the longest-waiting nodes of every queue.
func (f *Fleet) queueHeads() []string {
	queues, heads := sets.New[string](), sets.New[string]()
	for n := range f.held {
		for _, h := range n.holds {
			queues.Insert(h.queue)
		}
	}
	delete(queues, "") // where nothing but time is waited for
	for queue := range queues {
		heads.Insert(f.firstInQueue(queue)...)
	}
	return sets.List(heads)
}

// setHolds puts the node into the queues of its holds, and takes it out of the others. The heads of the queues that it left, or in which
// it moved back, are requeued: it didn't take the slot that was free.
func (f *Fleet) setHolds(n *nodeState, holds []Hold) {
	was := *n
	n.holds = holds
	if delete(f.held, n); len(holds) > 0 {
		f.held[n] = struct{}{}
	}
	for _, h := range was.holds {
		before, waited := was.positionIn(h.queue)
		if after, waits := n.positionIn(h.queue); waited && h.queue != "" && (!waits || byQueueOrder(before, after) < 0) {
			first := f.firstInQueue(h.queue)
			if next := slices.IndexFunc(first, func(name string) bool { return name != n.Name }); next >= 0 { // alone it would requeue itself forever
				f.requeues.Insert(first[next])
			}
		}
	}
}
