// Package condition decides which node gets which taint from the ConditionSets that match it. It is pure: time comes in
// as an argument, and nothing here reads or writes a cluster. Fleet holds what is known, Decide plans one node, Forecast
// computes what a set would do; admission, controller and CLI share them, so that a forecast equals what is then done.
// Begin at PlanNode (decide.go).
//
// A set's claim on a node's taint, which the node's record (ownership.go) keeps:
//
//	Matching for `for`, no Gate closed ──► claimed ── evictAfter over ──► NoExecute
//	                                        │  ▲                            │
//	        someone removed the taint ──────┘  └── put back, with backoff   │
//	                                        │                               │
//	Clear for recoverAfter, deselected, ────┴───────────────────────────────┴──► dropped, the taint is removed
//	set changed, deleted or observing
//
// Doubtful keeps a claim as it is and makes none. A closed Gate, of a hold, a limit or a breaker, is a Hold in the plan: the
// node waits in that limit's queue (headroom.go) until Fleet requeues it.
package condition

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// Fleet is the known state of all nodes and sets, indexed so that neither a node's event nor an admission request visits
// more than it must. It is safe for concurrent use; plans are made and their headroom reserved under one lock, so that two
// workers can't both take the last place under a limit.
type Fleet struct {
	mu     sync.RWMutex
	policy Policy
	synced bool
	// follows: another replica may lead.
	follows bool
	// actsFrom is until when nothing new is done because our clock stepped.
	actsFrom time.Time

	nodes      map[string]*nodeState
	sets       map[types.UID]*setState
	declared   map[string]bool // every taint key that some set is known to have declared
	orphans    map[types.UID]bool
	systemPods []ecosystem.SystemPod

	index        index
	setIndex     setIndex
	union        atomic.Pointer[union] // nil when it must be recomputed
	withRecord   nodeSet               // nodes with a record, or with a write in flight
	counts       counts
	deleted      deletedNodes
	evictions    limit.Memory
	recalls      int // how often evictions were recalled that were news
	taintHistory taintHistory
	deletedSets  map[string]deletedSet   // by the names of sets that were deleted
	held         map[*nodeState]struct{} // nodes with holds
	requeues     sets.Set[string]        // those that may proceed, see DrainRequeues
	dirty        map[types.UID]string    // sets whose status may have changed, and their names
}

// NewFleet is an empty fleet under these limits that lets nothing be done until MarkSynced.
func NewFleet(limits limit.Limits) *Fleet {
	return &Fleet{
		policy: Policy{Limits: limits, Precedence: PrecedenceKey},
		nodes:  map[string]*nodeState{}, sets: map[types.UID]*setState{},
		declared: map[string]bool{}, orphans: map[types.UID]bool{}, dirty: map[types.UID]string{}, taintHistory: taintHistory{taints: map[historyKey][]PastTaint{}}, deletedSets: map[string]deletedSet{},
		index: index{by: map[trait]*nodeSet{}}, setIndex: setIndex{}, counts: newCounts(), deleted: deletedNodes{}, held: map[*nodeState]struct{}{}, requeues: sets.New[string](),
	}
}

// MarkSynced says that every node and set that exists has been observed; shares of the whole mean something from now on.
func (f *Fleet) MarkSynced(at timing.Moment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced = true
	for _, s := range f.sets {
		f.evaluateBreaker(s, at)
	}
}

// Follow leaves the breakers to the replica that leads: this one takes over what that one stored.
func (f *Fleet) Follow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.follows = true
}

// Lead says that this replica leads now: from what was stored last it judges the breakers by itself.
func (f *Fleet) Lead(at timing.Moment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.follows = false
	for _, s := range f.sets {
		f.reopen(s, at.Now)
		f.markDirty(s)
		f.evaluateBreaker(s, at)
	}
}

// Synced says whether MarkSynced was called.
func (f *Fleet) Synced() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.synced
}

// DeferActsUntil lets nothing new be done before t: our clock stepped, and every deadline with it.
func (f *Fleet) DeferActsUntil(t time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.actsFrom = timing.Later(f.actsFrom, t)
}

// ObserveSystemPods takes in the DaemonSets that nodes can't do without, for forecasts.
func (f *Fleet) ObserveSystemPods(pods []ecosystem.SystemPod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.systemPods = pods
}

// DrainDirty returns the names of the sets whose status may have changed since the last call.
func (f *Fleet) DrainDirty() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.dirty) == 0 {
		return nil
	}
	dirty := slices.Sorted(maps.Values(f.dirty))
	clear(f.dirty)
	return dirty
}

// DrainRequeues returns the held nodes that may have headroom since the last call, which may happen with every call: another node needs
// less, or left the queue before them.
func (f *Fleet) DrainRequeues() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	requeues := sets.List(f.requeues)
	clear(f.requeues)
	return requeues
}

// markDirty notes that a set's status may have changed.
func (f *Fleet) markDirty(s *setState) {
	f.dirty[s.UID] = s.Name
	f.union.Store(nil)
}

func (f *Fleet) markAllDirty() {
	for _, s := range f.sets {
		f.markDirty(s)
	}
}

// markClaimantsDirty touches the sets that the node's record names, or will once a write in flight is there.
func (f *Fleet) markClaimantsDirty(n *nodeState) {
	for _, s := range f.sets {
		if n.usage.claims(s) || n.usage.records(s.UID) {
			f.markDirty(s)
		}
	}
}

// Decide plans a node and reserves what the plan takes from the limits until the write is seen or has failed.
// Wait says that an earlier write isn't visible yet; NeedsLive that its outcome is uncertain and ObserveLive must show it.
func (f *Fleet) Decide(name string, at timing.Moment, evidence *Evidence) (plan Plan, next Next) {
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

// Written records the resource version that a plan's write returned.
func (f *Fleet) Written(name, version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[name]
	if n == nil || n.inFlight == nil {
		return
	}
	n.inFlight.version = version
	if !older(n.ResourceVersion, version) { // the watch was faster
		f.finishWrite(n)
	}
}

// Failed records that a plan's write surely did nothing. It isn't called after an uncertain failure: the reservation stays until a
// live read.
func (f *Fleet) Failed(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[name]; n != nil {
		f.finishWrite(n)
	}
}

// finishWrite ends what is in flight for a node: what is known of it is all there is.
func (f *Fleet) finishWrite(n *nodeState) {
	n.inFlight = nil
	f.recount(n)
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
