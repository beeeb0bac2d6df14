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

// Fleet is what is known of all nodes and sets, indexed so that neither a node's event nor an admission request looks at
// more than it must. It is safe for concurrent use; plans are made and their room reserved under one lock, so that two
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

	index     index
	alike     setIndex
	union     atomic.Pointer[union] // nil when it has to be counted anew
	recording nodeSet               // nodes with a record, or with a write in flight
	lastHeard int                   // the slot of the node that was observed last
	counts    counts
	gone      gone
	evictions limit.Memory
	recalls   int // how often evictions were recalled that were news
	past      past
	formers   map[string]former       // by the names of sets that were deleted
	waiting   map[*nodeState]struct{} // nodes that are held back
	woken     sets.Set[string]        // those that may go on, since another left the line
	dirty     map[types.UID]string    // sets whose status may have changed, and their names
}

// NewFleet is an empty fleet under these limits that lets nothing be done until MarkSynced.
func NewFleet(limits limit.Limits) *Fleet {
	return &Fleet{
		policy: Policy{Limits: limits, Precedence: PrecedenceKey},
		nodes:  map[string]*nodeState{}, sets: map[types.UID]*setState{},
		declared: map[string]bool{}, orphans: map[types.UID]bool{}, dirty: map[types.UID]string{}, past: past{taints: map[tainting][]PastTaint{}}, formers: map[string]former{},
		index: index{by: map[trait]*nodeSet{}}, alike: setIndex{}, counts: newCounts(), gone: gone{}, waiting: map[*nodeState]struct{}{}, woken: sets.New[string](),
	}
}

// MarkSynced says that every node and set that exists has been observed; shares of the whole mean something from now on.
func (f *Fleet) MarkSynced(at Moment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced = true
	for _, s := range f.sets {
		f.judgeBreaker(s, at)
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
		f.touch(s)
		f.judgeBreaker(s, at)
	}
}

// Synced says whether MarkSynced was called.
func (f *Fleet) Synced() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.synced
}

// HoldActsUntil lets nothing new be done before t: our clock stepped, and every deadline with it.
func (f *Fleet) HoldActsUntil(t time.Time) {
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

// TakeDirty gives the names of the sets whose status may have changed since it was last asked.
func (f *Fleet) TakeDirty() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.dirty) == 0 {
		return nil
	}
	dirty := slices.Sorted(maps.Values(f.dirty))
	clear(f.dirty)
	return dirty
}

// TakeWoken gives the held-back nodes that may go on since another left the queue before them, which may happen with every
// decision.
func (f *Fleet) TakeWoken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	woken := sets.List(f.woken)
	clear(f.woken)
	return woken
}

// touch says that something about a set, or its nodes, may have changed.
func (f *Fleet) touch(s *setState) {
	f.dirty[s.UID] = s.Name
	f.union.Store(nil)
}

func (f *Fleet) touchAll() {
	for _, s := range f.sets {
		f.touch(s)
	}
}

// touchClaimants touches the sets that the node's record names, or will once a write in flight is there.
func (f *Fleet) touchClaimants(n *nodeState) {
	for _, s := range f.sets {
		if n.usage.claims(s) || n.usage.records(s.UID) {
			f.touch(s)
		}
	}
}
