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

	// windows are the open ones by namespace.
	windows map[string]map[watchKey]*window
	// unproven are Services that are Ready, and of which it isn't known yet when they turned so.
	unproven map[watchKey]turn
	opened   []Opened
	ledger   ledger
	queue    queue
	dirty    map[types.UID]types.NamespacedName
}

// podState is a pod with what we did about it.
type podState struct {
	*Pod
	// firstSeen by our clock.
	firstSeen time.Time
	// restarted: one of its containers was. ranWell: that one ran without a restart for so long at first that the kubelet
	// would have forgotten its back-off.
	restarted, ranWell bool
	// sent is a deletion of ours that the pod as we know it doesn't show yet.
	sent *sent
	// confirmed: the API server took that deletion; this pod is never deleted again.
	confirmed bool
	// held: some config names it as held back.
	held bool
}

// configState is a config with what it watches and did.
type configState struct {
	*Config
	standing Standing
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
		pods: map[string]map[string]*podState{}, crashing: map[string]map[string]*podState{}, gone: map[types.UID]*sent{},
		services: map[types.NamespacedName]*service{}, slices: map[types.NamespacedName]sliceState{}, ghosts: map[types.UID]time.Time{}, namespaces: map[string]namespace{},
		asked:   map[Workload]asked{},
		configs: map[types.UID]*configState{}, naming: map[string]map[types.UID]*configState{},
		windows: map[string]map[watchKey]*window{}, unproven: map[watchKey]turn{},
		ledger: ledger{byWorkload: map[Workload][]*Record{}}, queue: newQueue(), dirty: map[types.UID]types.NamespacedName{},
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

// ObservePod takes in a pod as the API server has it and gives the pods to decide on, mostly none or this one. Older news
// than what is known is ignored.
func (y *Yard) ObservePod(pod *Pod, at Moment) (due []types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.observe(pod, at)
}

// ObserveLive takes in a pod read live after a deletion whose outcome was uncertain: it shows the outcome.
func (y *Yard) ObserveLive(pod *Pod, at Moment) (due []types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	due = y.observe(pod, at)
	p := y.pods[pod.Namespace][pod.Name]
	if p.UID == pod.UID && p.sent != nil && !p.Terminating {
		due = append(due, y.takeBack(p)...)
	}
	return due
}

func (y *Yard) observe(pod *Pod, at Moment) (due []types.NamespacedName) {
	key := pod.Key()
	p := y.pods[pod.Namespace][pod.Name]
	if p != nil && older(pod.ResourceVersion, p.ResourceVersion) { // of a former pod of this name, too
		return nil
	}
	if p != nil && p.UID != pod.UID {
		y.drop(p)
		p = nil
	}
	if p == nil {
		p = &podState{Pod: pod, firstSeen: at.Now}
		put(y.pods, key, p)
	}
	p.Pod = pod
	p.noteRestart()
	y.index(p)
	if p.Ready && len(y.unproven) > 0 {
		due = y.proveBy(p, at)
	}
	if p.actionable() && y.selected(p, at.Now) {
		due = append(due, key)
	}
	return due
}

// noteRestart keeps how the pod ran at first: later it shows only how it ran last.
func (p *podState) noteRestart() {
	if p.Restarted && !p.restarted {
		p.restarted, p.ranWell = true, p.FirstRun >= backOffForgotten
	}
}

// actionable says whether the pod may have to be deleted at all.
func (p *podState) actionable() bool { return p.looping() && !p.Terminating && !p.confirmed }

// index files a pod under those that crash-loop, or takes it from there.
func (y *Yard) index(p *podState) {
	switch {
	case p.actionable():
		put(y.crashing, p.Key(), p)
	case y.crashing[p.Namespace][p.Name] != nil:
		take(y.crashing, p.Key())
		y.release(p)
	}
}

func put(pods map[string]map[string]*podState, key types.NamespacedName, p *podState) {
	here := pods[key.Namespace]
	if here == nil {
		here = map[string]*podState{}
		pods[key.Namespace] = here
	}
	here[key.Name] = p
}

func take(pods map[string]map[string]*podState, key types.NamespacedName) {
	here := pods[key.Namespace]
	if delete(here, key.Name); len(here) == 0 {
		delete(pods, key.Namespace)
	}
}

// release ends a pod's waiting: it was deleted, recovered, or is gone.
func (y *Yard) release(p *podState) {
	key := p.Key()
	y.queue.leave(key)
	if !p.held {
		return
	}
	p.held = false
	for _, cs := range y.configs {
		y.releaseIn(cs, func(k heldKey) bool { return k.pod == key })
	}
}

func (y *Yard) releaseIn(cs *configState, which func(heldKey) bool) {
	before := len(cs.held)
	maps.DeleteFunc(cs.held, func(k heldKey, _ Hold) bool { return which(k) })
	if len(cs.held) != before {
		y.touch(cs)
	}
}

// ForgetPod removes a pod that is gone. Another that has its name by now stays.
func (y *Yard) ForgetPod(key types.NamespacedName, uid types.UID) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if p := y.pods[key.Namespace][key.Name]; p != nil && p.UID == uid {
		y.drop(p)
	}
}

func (y *Yard) drop(p *podState) {
	take(y.crashing, p.Key())
	y.release(p)
	take(y.pods, p.Key())
	if p.sent != nil {
		y.gone[p.UID] = p.sent
	}
}

// selected says whether an open window selects the pod.
func (y *Yard) selected(p *podState, now time.Time) bool {
	for _, w := range y.windows[p.Namespace] {
		if w.wants(p, now) {
			return true
		}
	}
	return false
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
