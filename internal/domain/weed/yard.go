package weed

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// Yard is what is known of pods, Services and configs, indexed so that a pod's event costs next to nothing while no window
// is open, and opening one costs a look at the pods that crash-loop. It is safe for concurrent use; plans are made and
// their places reserved under one lock, so that two workers can't both take the last place under a limit.
type Yard struct {
	mu           sync.RWMutex
	limits       limit.Limits
	ownNamespace string
	synced       bool
	// actsFrom is until when nothing is done because our clock stepped.
	actsFrom time.Time

	// pods by namespace and name; crashing has those that crash-loop.
	pods, crashing map[string]map[string]*podState
	// labelled are the pods by namespace and label; statefulSets counts those of StatefulSets.
	labelled     map[string]labelled
	statefulSets map[Workload]int

	// gone are deletions of ours whose outcome wasn't told when their pods went, by whose doing is open.
	gone map[types.UID]*sent

	services   map[types.NamespacedName]*service
	slices     map[types.NamespacedName]sliceState
	ghosts     map[types.UID]time.Time // slices that are gone, with when we heard of it
	namespaces map[string]namespace
	// asked is what workloads ask for.
	asked map[Workload]asked

	configs map[types.UID]*configState
	// naming are the configs that name a Service, by its name.
	naming map[string]map[types.UID]*configState
	// named are the configs by name: of two, one of which is gone, the one that was told of last.
	named map[types.NamespacedName]*configState
	// claims on pods, by namespace.
	claims map[string]claims

	// windows are the open ones by namespace.
	windows map[string]map[watchKey]*window
	// unproven are Services that are Ready, and of which it isn't known yet when they turned so.
	unproven map[watchKey]turn
	opened   []Opened
	ledger   ledger
	queue    queue
	dirty    map[types.UID]types.NamespacedName
}

// configState is a config with what it watches and did.
type configState struct {
	*Config
	state lifecycle.State
	// seen is each watched Service's state when it was last judged; one that wasn't seen yet is missing.
	seen map[types.NamespacedName]sight
	held map[heldKey]Hold
	// matches is made when it is needed first; needs the yard's lock for writing.
	matches *matcher
	// claimed: what a former process did is known, and only this one acts. It knows better than the status from now on.
	claimed bool
	// left is what a former process left open.
	left left
	totals
}

type heldKey struct {
	pod     types.NamespacedName
	service string
}

// watchKey is one config's watch of one Service.
type watchKey struct {
	config  types.UID
	service types.NamespacedName
}

// NewYard is an empty yard that lets nothing be done until MarkSynced. OwnNamespace is where Autohealer runs, "" when that
// is unknown.
func NewYard(limits limit.Limits, ownNamespace string) *Yard {
	return &Yard{
		limits: limits, ownNamespace: ownNamespace,
		pods: map[string]map[string]*podState{}, crashing: map[string]map[string]*podState{}, labelled: map[string]labelled{}, statefulSets: map[Workload]int{}, gone: map[types.UID]*sent{},
		services: map[types.NamespacedName]*service{}, slices: map[types.NamespacedName]sliceState{}, ghosts: map[types.UID]time.Time{}, namespaces: map[string]namespace{},
		asked:   map[Workload]asked{},
		configs: map[types.UID]*configState{}, naming: map[string]map[types.UID]*configState{},
		named: map[types.NamespacedName]*configState{}, claims: map[string]claims{},
		windows: map[string]map[watchKey]*window{}, unproven: map[watchKey]turn{},
		ledger: ledger{byWorkload: map[Workload]*history{}}, queue: newQueue(), dirty: map[types.UID]types.NamespacedName{},
	}
}

// MarkSynced says that everything that exists was observed: only from now on is a Service's turn to Ready a recovery, and
// not news of an old one. It gives the pods to decide on.
func (y *Yard) MarkSynced(at Moment) (due []types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.synced = true
	for _, cs := range y.configs {
		due = append(due, y.judgeAll(cs, at)...)
	}
	return due
}

// Synced says whether MarkSynced was called.
func (y *Yard) Synced() bool {
	y.mu.RLock()
	defer y.mu.RUnlock()
	return y.synced
}

// HoldActsUntil lets nothing be done before t: our clock stepped, and every deadline with it.
func (y *Yard) HoldActsUntil(t time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.actsFrom = later(y.actsFrom, t)
}

// SetLimits replaces the limits and gives the pods that wait for one.
func (y *Yard) SetLimits(limits limit.Limits) (due []types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.limits = limits
	return y.queue.heads(len(y.queue.order))
}

// Due are all pods to decide on, for a replica that begins to lead.
func (y *Yard) Due(at Moment) (due []types.NamespacedName) {
	y.mu.RLock()
	defer y.mu.RUnlock()
	for namespace := range y.windows {
		for _, p := range y.crashing[namespace] {
			if y.selected(p, at.Now) {
				due = append(due, p.Key())
			}
		}
	}
	return sortedKeys(due)
}

// TakeDirty gives the configs whose status may have changed since it was last asked.
func (y *Yard) TakeDirty() []types.NamespacedName {
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.dirty) == 0 {
		return nil
	}
	dirty := sortedKeys(slices.Collect(maps.Values(y.dirty)))
	clear(y.dirty)
	return dirty
}

func (y *Yard) touch(cs *configState) { y.dirty[cs.UID] = cs.Key() }

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
