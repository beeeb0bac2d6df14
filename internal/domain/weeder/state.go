// Package weeder decides which pods are deleted after a Service that they depend on recovered, so that they restart now and
// not after the kubelet's back-off. It is pure: time comes in as an argument, and nothing here reads or writes a cluster.
// State holds what is known, PlanPod plans one pod, Forecast tells what a WeederConfig would do; admission, controller and
// CLI share them, so that a forecast equals what is then done. Begin at PlanPod (plan.go) and State.Decide.
//
// A Service that a config watches:
//
//	notReady ── turns Ready ──► pending ── its pods show when ──► window ── watchDuration is over ──► Ready
//	   ▲                           │                                │                                  │
//	   └───────────────────────────┴────────── turns notReady ──────┴──────────────────────────────────┘
//
// A pod that crash-loops in a window:
//
//	Claim: what earlier leaders did is known
//	Decide ──► held: Plan.Holds say why, and when to decide again
//	       ──► Delete: its headroom under all limits is reserved ── Revalidate, request ──► Confirm: never deleted again
//	                                                                              ──► Failed: the headroom is released
//	                                                                              ──► unknown: ReadLive ── ObserveLive or ForgetPod
package weeder

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// State is what is known of pods, Services and configs, indexed so that a pod's event costs next to nothing while no window
// is open, and opening one costs a look at the pods that have the labels of its dependents. It is safe for concurrent use; plans are made and
// their places reserved under one lock, so that two workers can't both take the last place under a limit.
type State struct {
	mu           sync.RWMutex
	limits       limit.Limits
	ownNamespace string
	synced       bool
	// claimed: what former processes did is known, and only this one acts, which knows better than the statuses from now on.
	claimed bool
	// actsFrom is until when nothing is done because our clock stepped.
	actsFrom time.Time

	// pods by namespace and name, and labelled by namespace and label.
	pods     map[string]map[string]*podState
	labelled map[string]labelled
	// sent are deletions of ours whose outcome isn't known yet, by the pod's UID. The pod may be gone.
	sent map[types.UID]*sent

	services      map[types.NamespacedName]*service
	slices        map[types.NamespacedName]sliceState
	deletedSlices map[types.UID]time.Time // with when that was observed
	namespaces    map[string]namespace
	workloadHolds map[Workload]workloadHold

	configs map[types.UID]*configState
	// scopes are the configs by the namespace that they hold in.
	scopes map[string]scope
	// named are the configs by name: of two, one of which is gone, the one that was observed last.
	named map[types.NamespacedName]*configState

	pending map[watchKey]pendingRecovery
	opened  []Opened
	log     records
	queue   queue
	dirty   map[types.UID]types.NamespacedName
}

// watchKey is one config's watch of one Service.
type watchKey struct {
	config  types.UID
	service types.NamespacedName
}

// NewState is an empty state that lets nothing be done until MarkSynced. OwnNamespace is where Autohealer runs, "" when that
// is unknown.
func NewState(limits limit.Limits, ownNamespace string) *State {
	return &State{
		limits: limits, ownNamespace: ownNamespace,
		pods: map[string]map[string]*podState{}, labelled: map[string]labelled{}, sent: map[types.UID]*sent{},
		services: map[types.NamespacedName]*service{}, slices: map[types.NamespacedName]sliceState{}, deletedSlices: map[types.UID]time.Time{},
		namespaces: map[string]namespace{}, workloadHolds: map[Workload]workloadHold{},
		configs: map[types.UID]*configState{}, scopes: map[string]scope{}, named: map[types.NamespacedName]*configState{},
		pending: map[watchKey]pendingRecovery{},
		dirty:   map[types.UID]types.NamespacedName{},
	}
}

// MarkSynced says that everything that exists was observed: only from now on is a Service's turn to Ready a recovery, and
// not news of an old one. It gives the pods to decide on.
func (s *State) MarkSynced(at timing.Moment) (due []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
	for _, cs := range s.configs {
		due = append(due, s.evaluateAll(cs, at)...)
	}
	return due
}

// Synced says whether MarkSynced was called.
func (s *State) Synced() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.synced
}

// DeferActsUntil lets nothing be done before t: our clock stepped, and every deadline with it.
func (s *State) DeferActsUntil(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.actsFrom = timing.Later(s.actsFrom, t)
}

// SetLimits replaces the limits and gives the pods that wait for one.
func (s *State) SetLimits(limits limit.Limits) (due []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = limits
	return s.queue.first(len(s.queue))
}

// Due are all pods to decide on, for a replica that begins to lead.
func (s *State) Due(at timing.Moment) (due []types.NamespacedName) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, cs := range s.configs {
		for _, w := range cs.windows {
			due = append(due, s.selectedPods(w, at)...)
		}
	}
	return sortedKeys(due)
}

// Opened describes a window that opened.
type Opened struct {
	Config types.UID
	Key    types.NamespacedName // of the config
	Window
	// FirstObservation: the Service was Ready already when first observed, so that this recovery may have been reported before.
	FirstObservation bool
	// Acts: the config may delete pods for it, and isn't only observing.
	Acts bool
}

// maxOpened bounds how many windows are kept to be reported.
const maxOpened = 1000

// DrainOpened returns the windows that opened since the last call, for Events.
func (s *State) DrainOpened() []Opened {
	s.mu.Lock()
	defer s.mu.Unlock()
	opened := s.opened
	s.opened = nil
	return opened
}

// DrainDirty returns the configs whose status may have changed since the last call.
func (s *State) DrainDirty() []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.dirty) == 0 {
		return nil
	}
	dirty := sortedKeys(slices.Collect(maps.Values(s.dirty)))
	clear(s.dirty)
	return dirty
}

func (s *State) markDirty(cs *configState) { s.dirty[cs.UID] = cs.Key() }

// sortedKeys are the keys in order, each once.
func sortedKeys(keys []types.NamespacedName) []types.NamespacedName {
	slices.SortFunc(keys, compareKeys)
	return slices.Compact(keys)
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// older says whether resource version a lies before b; what can't be compared isn't older.
func older(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c < 0
}
