package condition

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// room gives what the limits leave for a node, which ranks by when a match of it expired.
func (f *Fleet) room(n *nodeState, at Moment) Room {
	return func(of Cap, c Claimant, expired time.Time) Gate {
		switch of {
		case CapTainted:
			return f.cap(HeldByLimit, "maxTaintedNodes", f.policy.Limits.MaxTaintedNodes, n, expired, n.print.repels, func(t *tally) int { return t.repelling })
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
	if n.print.planeReady && f.counts.planeReady <= 1 {
		return Gate{Reason: HeldByPlane, Message: "it is the last Ready control-plane node", dimension: "plane"}
	}
	full := f.cap(HeldByEvictLimit, "maxEvictingNodes", f.policy.Limits.MaxEvictingNodes, n, expired, n.print.evicts, func(t *tally) int { return t.evicting })
	if full.Closed() {
		return full
	}
	return f.pace(n, expired, at)
}

func (f *Fleet) planeRoom(n *nodeState, expired time.Time) Gate {
	planes := f.counts.planeTainted
	if n.print.plane && n.print.any {
		planes--
	}
	if planes+f.queues.before("plane", n.Name, expired) > 0 {
		return Gate{Reason: HeldByPlane, Message: "another control-plane node is tainted; one at a time", dimension: "plane"}
	}
	return Gate{}
}

// cap is a cluster-wide limit, which from three zones on also holds in each zone. It counts the other nodes: a node that
// is itself counted asks only when what counts is a forged claim.
func (f *Fleet) cap(reason Reason, name string, value limit.Cap, n *nodeState, expired time.Time, itself bool, count func(*tally) int) Gate {
	used := count
	if itself {
		used = func(t *tally) int { return count(t) - 1 }
	}
	all := &f.counts.cluster
	allowed := value.Of(all.counted)
	if used(all)+f.queues.before(name, n.Name, expired) >= allowed {
		return Gate{Reason: reason, dimension: name,
			Message: fmt.Sprintf("%s %s allows %d of %d nodes, and %d are", name, value.String(), allowed, all.counted, used(all))}
	}
	if f.counts.zonesCounted() < 3 {
		return Gate{}
	}
	zone, dimension := f.counts.zones[n.Zone], name+"/"+n.Zone
	allowed = value.OfZone(zone.counted, all.counted)
	if used(zone)+f.queues.before(dimension, n.Name, expired) >= allowed {
		return Gate{Reason: reason, dimension: dimension,
			Message: fmt.Sprintf("%s %s allows %d of %d nodes of zone %q, and %d are", name, value.String(), allowed, zone.counted, n.Zone, used(zone))}
	}
	return Gate{}
}

// pace lets one node of a zone begin to evict at a time.
func (f *Fleet) pace(n *nodeState, expired time.Time, at Moment) Gate {
	dimension := "pace/" + n.Zone
	next := f.counts.zones[n.Zone].lastEviction(at.Now.Add(f.policy.Limits.EvictPace)).Add(f.policy.Limits.EvictPace)
	if at.Now.Before(next) || f.queues.before(dimension, n.Name, expired) > 0 {
		if !at.Now.Before(next) {
			next = time.Time{}
		}
		return Gate{Reason: HeldByPace, At: next, dimension: dimension,
			Message: fmt.Sprintf("one node of zone %q begins to evict in %s", n.Zone, f.policy.Limits.EvictPace)}
	}
	return Gate{}
}

// ownCap counts the other nodes: what the set once did to this one doesn't stand in its way.
func (f *Fleet) ownCap(s *setState, n *nodeState, expired time.Time) Gate {
	if s.MaxNodes == nil {
		return Gate{}
	}
	others := len(s.tainted)
	if _, tainted := s.tainted[n.Name]; tainted {
		others--
	}
	dimension, allowed := "set/"+string(s.UID), limit.Of(*s.MaxNodes, s.selected)
	if others+f.queues.before(dimension, n.Name, expired) < allowed {
		return Gate{}
	}
	return Gate{Reason: HeldByOwnCap, dimension: dimension,
		Message: fmt.Sprintf("maxNodes %s allows %d of %d selected nodes, and %d are tainted", s.MaxNodes.String(), allowed, s.selected, others)}
}

// Decide plans a node and reserves what the plan takes from the limits until the write is seen or has failed.
// Wait says that an earlier write isn't visible yet; NeedsLive that its outcome is uncertain and ObserveLive must show it.
func (f *Fleet) Decide(name string, at Moment, evidence *Evidence) (plan Plan, next Next) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[name]
	switch {
	case n == nil || !f.synced:
		return Plan{}, Nothing
	case n.inFlight != nil && (n.inFlight.version == "" || at.Now.Sub(n.inFlight.since) > longestUnseen):
		return Plan{Node: n.Node}, ReadLive
	case n.inFlight != nil:
		return Plan{Node: n.Node}, Wait
	}
	claimants := f.claimants(n)
	plan = PlanNode(Input{
		Node: n.Node, Claimants: claimants, At: at, ActsFrom: f.actsFrom, Precedence: f.policy.Precedence, Paused: f.policy.Paused,
		Declared:  f.isDeclared,
		Withdrawn: func(uid types.UID) bool { return f.orphans[uid] },
		Undone:    func(set types.UID, key string) time.Time { return n.undone[claimed{set, key}] },
		Room:      f.room(n, at), Evidence: evidence,
	})
	if plan.NeedsEvidence {
		return plan, ReadLive
	}
	f.noteHolds(n, plan.Holds)
	if len(plan.Steps) == 0 {
		return plan, Nothing
	}
	for _, t := range n.Owned.Taints {
		if !slices.ContainsFunc(plan.Owned.Taints, func(k OwnedTaint) bool { return k.Set == t.Set && k.Key == t.Key }) {
			n.undone[claimed{t.Set, t.Key}] = at.Now
		}
	}
	n.inFlight = &inFlight{owned: plan.Owned, taints: plan.Taints, since: at.Now}
	f.recount(n)
	f.noteRecord(n, false)
	return plan, Write
}

// longestUnseen is how long a write may stay invisible before the watch is doubted.
const longestUnseen = 30 * time.Second

// Next is what a decision asks for.
type Next int

const (
	// Nothing is to be done now.
	Nothing Next = iota
	// Write the plan, then say Written or Failed.
	Write
	// Wait for the node's next event: an earlier write isn't visible yet.
	Wait
	// ReadLive: read the node, and for an eviction its pods, and decide again.
	ReadLive
)

// Written says which resource version a plan's write gave, and gives the held-back nodes that may have room now.
func (f *Fleet) Written(name, version string) (wake []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[name]
	if n == nil || n.inFlight == nil {
		return nil
	}
	n.inFlight.version = version
	if older(n.ResourceVersion, version) {
		return nil
	}
	return f.settle(n) // the watch was faster
}

// Failed says that a plan's write surely did nothing, and gives the held-back nodes that may have room now. After an
// uncertain failure nothing is said: the reservation stays until a live read.
func (f *Fleet) Failed(name string) (wake []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[name]; n != nil && n.inFlight != nil {
		return f.settle(n)
	}
	return nil
}

// settle ends what is in flight for a node: what is known of it is all there is.
func (f *Fleet) settle(n *nodeState) (wake []string) {
	n.inFlight = nil
	freed := f.recount(n)
	f.noteRecord(n, false)
	if freed {
		return f.queues.heads()
	}
	return nil
}

// claimants are the sets that match the node or stand in its record, the oldest first.
func (f *Fleet) claimants(n *nodeState) []Claimant {
	var claimants []Claimant
	for s := range n.sets {
		_, matching := s.matching[n.Name]
		_, recorded := s.recorded[n.Name]
		_, inherits := s.tainted[n.Name]
		if matching || recorded || inherits {
			claimants = append(claimants, Claimant{Set: s.Set, Standing: s.standing, Why: s.why()})
		}
	}
	slices.SortFunc(claimants, byAge)
	return claimants
}

func (f *Fleet) noteHolds(n *nodeState, holds []Hold) {
	f.wake(f.queues.enter(n.Name, holds))
	for s := range n.sets { // also those that held the node and don't match it any more
		was, had := s.held[n.Name]
		i := slices.IndexFunc(holds, func(h Hold) bool { return h.Set == s.UID })
		if i < 0 {
			delete(s.held, n.Name)
		} else {
			s.held[n.Name] = holds[i]
		}
		if had != (i >= 0) || had && was.Reason != holds[i].Reason {
			f.touch(s)
			f.relate(s, n)
		}
	}
}

// Recorded counts the nodes whose record, or a write in flight, still names the set, and names some.
func (f *Fleet) Recorded(uid types.UID) (nodes int, some []string) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.sets[uid]
	if s == nil {
		return 0, nil
	}
	all := s.recorded.sorted()
	return len(all), all[:min(len(all), 5)]
}

// Undone says whether the set is known to be withdrawn and nothing of it is left.
func (f *Fleet) Undone(uid types.UID) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.sets[uid]
	return s != nil && s.standing == Withdrawn && len(s.recorded) == 0
}

// Evicting says whether a taint of ours evicts from the node, or is about to.
func (f *Fleet) Evicting(node string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := f.nodes[node]
	return n != nil && n.print.evicts
}

// UsesLease says whether some set reads a condition that carries no heartbeat.
func (f *Fleet) UsesLease() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.setsBy.byLease) > 0
}
