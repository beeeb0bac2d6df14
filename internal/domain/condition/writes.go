package condition

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Decide plans a node and reserves what the plan takes from the limits until the write is seen or has failed.
// Wait says that an earlier write isn't visible yet; NeedsLive that its outcome is uncertain and ObserveLive must show it.
func (f *Fleet) Decide(name string, at Moment, evidence *Evidence) (plan Plan, next Next) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire(at.Now)
	n := f.nodes[name]
	switch {
	case n == nil || !f.synced:
		return Plan{}, Nothing
	case n.inFlight != nil && (n.inFlight.version == "" || at.Now.Sub(n.inFlight.since) > maxWriteLag):
		return Plan{Node: n.Node}, ReadLive
	case n.inFlight != nil:
		return Plan{Node: n.Node}, Wait
	}
	claimants := f.claimants(n)
	plan = PlanNode(Input{
		Node: n.Node, Claimants: claimants, At: at, ActsFrom: f.actsFrom, Precedence: f.policy.Precedence,
		Paused: f.policy.Paused, Frozen: f.policy.Frozen,
		Declared:  f.isDeclared,
		Withdrawn: func(uid types.UID) bool { return f.orphans[uid] },
		Undone:    func(set types.UID, key string) time.Time { return n.undone[claimKey{set, key}] },
		Tainted:   func(set string) []PastTaint { return f.taintHistory.taints[historyKey{n.Name, set}] },
		Headroom:  f.headroom(n, at), Evidence: evidence,
	})
	if plan.recalls = f.recalls; plan.NeedsEvidence {
		return plan, ReadLive
	}
	f.recordHolds(n, plan.Holds)
	if len(plan.Steps) == 0 {
		return plan, Nothing
	}
	n.recordUndone(n.Owned, plan.Owned, at.Now)
	n.inFlight = &inFlight{owned: plan.Owned, taints: plan.Taints, since: at.Now}
	f.recount(n)
	return plan, Write
}

// maxWriteLag is how long a write may stay invisible before the watch is doubted.
const maxWriteLag = 30 * time.Second

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

// Written records the resource version that a plan's write returned. requeue are held nodes that may have headroom now.
func (f *Fleet) Written(name, version string) (requeue []string) {
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
	return f.finishWrite(n) // the watch was faster
}

// Failed records that a plan's write surely did nothing. requeue are held nodes that may have headroom now. It isn't called
// after an uncertain failure: the reservation stays until a live read.
func (f *Fleet) Failed(name string) (requeue []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[name]; n != nil && n.inFlight != nil {
		return f.finishWrite(n)
	}
	return nil
}

// finishWrite ends what is in flight for a node: what is known of it is all there is.
func (f *Fleet) finishWrite(n *nodeState) (requeue []string) {
	n.inFlight = nil
	if f.recount(n) {
		return f.queueHeads()
	}
	return nil
}

// claimants are the sets that match the node or have an entry in its record, the oldest first.
func (f *Fleet) claimants(n *nodeState) []Claimant {
	var claimants []Claimant
	for _, s := range f.sets {
		if s.concerns(n) {
			claimants = append(claimants, Claimant{Set: s.Set, State: s.state, HoldReason: s.holdReason()})
		}
	}
	slices.SortFunc(claimants, byAge)
	return claimants
}

func byAge(a, b Claimant) int {
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// recordHolds stores why a node's acts are held, and marks the sets concerned dirty.
func (f *Fleet) recordHolds(n *nodeState, holds []Hold) {
	was := n.holds
	f.setHolds(n, holds)
	for _, h := range slices.Concat(was, holds) {
		s := f.sets[h.Set]
		if s != nil && holdReason(was, h.Set) != holdReason(holds, h.Set) {
			f.markDirty(s)
		}
	}
}

// holdReason is the first reason for which a set is held back; "" for none.
func holdReason(holds []Hold, set types.UID) Reason {
	i := slices.IndexFunc(holds, func(h Hold) bool { return h.Set == set })
	if i < 0 {
		return ""
	}
	return holds[i].Reason
}
