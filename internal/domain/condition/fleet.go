package condition

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/limit"
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
	lastObserved int                   // the slot of the node that was observed last
	counts       counts
	deleted      deletedNodes
	evictions    limit.Memory
	recalls      int // how often evictions were recalled that were news
	taintHistory taintHistory
	formerSets   map[string]formerSet    // by the names of sets that were deleted
	held         map[*nodeState]struct{} // nodes with holds
	requeues     sets.Set[string]        // those that may proceed, since another left the queue
	dirty        map[types.UID]string    // sets whose status may have changed, and their names
}

// NewFleet is an empty fleet under these limits that lets nothing be done until MarkSynced.
func NewFleet(limits limit.Limits) *Fleet {
	return &Fleet{
		policy: Policy{Limits: limits, Precedence: PrecedenceKey},
		nodes:  map[string]*nodeState{}, sets: map[types.UID]*setState{},
		declared: map[string]bool{}, orphans: map[types.UID]bool{}, dirty: map[types.UID]string{}, taintHistory: taintHistory{taints: map[historyKey][]PastTaint{}}, formerSets: map[string]formerSet{},
		index: index{by: map[trait]*nodeSet{}}, setIndex: setIndex{}, counts: newCounts(), deleted: deletedNodes{}, held: map[*nodeState]struct{}{}, requeues: sets.New[string](),
	}
}

// MarkSynced says that every node and set that exists has been observed; shares of the whole mean something from now on.
func (f *Fleet) MarkSynced(at Moment) {
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
func (f *Fleet) Lead(at Moment) {
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
	f.actsFrom = later(f.actsFrom, t)
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

// DrainRequeues returns the held nodes that may proceed since another left the queue before them, which may happen with every
// decision.
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
