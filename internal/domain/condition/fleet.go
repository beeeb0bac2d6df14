package condition

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

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
	systemPods []SystemPod

	index     index
	setsBy    setIndex
	union     union
	recording nodeBits // nodes with a record, or with a write in flight
	// unreadable are the nodes whose record can't be read.
	unreadable nodeBits
	lastHeard  int // the slot of the node that was observed last
	counts     counts
	queues     queues
	woken      names                // held-back nodes that may go on, since another left the queue
	dirty      map[types.UID]string // sets whose status may have changed, and their names
}

type names map[string]struct{}

func (n names) put(name string, in bool) (changed bool) {
	_, was := n[name]
	if in {
		n[name] = struct{}{}
	} else {
		delete(n, name)
	}
	return was != in
}

func (n names) sorted() []string { return slices.Sorted(maps.Keys(n)) }

// nodeState is a node with what is in flight for it.
type nodeState struct {
	*Node
	// inFlight is a write of ours that the node as we know it doesn't show yet.
	inFlight *inFlight
	print    footprint
	slot     int
	sets     map[*setState]struct{} // that concern it
	undone   map[claimed]time.Time  // when taints of ours were taken off
}

// claimed is what a set tainted.
type claimed struct {
	set types.UID
	key string
}

// NewFleet is an empty fleet under these limits that lets nothing be done until MarkSynced.
func NewFleet(limits limit.Limits) *Fleet {
	return &Fleet{
		policy: Policy{Limits: limits, Precedence: PrecedenceKey},
		nodes:  map[string]*nodeState{}, sets: map[types.UID]*setState{},
		declared: map[string]bool{}, orphans: map[types.UID]bool{}, dirty: map[types.UID]string{},
		index: newIndex(), setsBy: newSetIndex(), counts: newCounts(), queues: newQueues(), woken: names{},
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

// ObserveNode takes in a node as the API server has it. It says whether the node's plan may have changed, and which
// held-back nodes may have room now. Older news than what is known is ignored.
func (f *Fleet) ObserveNode(node *corev1.Node, at Moment) (changed bool, wake []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.observe(node, at, false)
}

// ObserveLive takes in a node read live after a write of ours whose outcome was uncertain: it shows the outcome. It gives
// the held-back nodes that may have room now. One read is enough, provided that no cache answers it: a get without a
// resourceVersion, as the manager's API reader sends it, is a quorum read of etcd (kube-apiserver's watch cache passes it
// on), so what it doesn't show wasn't there when it was asked for.
func (f *Fleet) ObserveLive(node *corev1.Node, at Moment) (wake []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, wake = f.observe(node, at, true)
	return wake
}

func (f *Fleet) observe(node *corev1.Node, at Moment, live bool) (changed bool, wake []string) {
	was := f.nodes[node.Name]
	if was != nil && older(node.ResourceVersion, was.ResourceVersion) { // of a former node of this name, too
		if live {
			wake = f.settle(was)
		}
		return false, wake
	}
	if was != nil && was.UID != node.UID {
		f.replace(was, nil, at)
		was = nil
	}
	if was == nil {
		n := &nodeState{Node: NewNode(node, nil, at.Now)}
		f.replace(nil, n, at)
		return true, f.queues.heads()
	}
	n := &nodeState{Node: NewNode(node, was.Node, at.Now), inFlight: was.inFlight, print: was.print, slot: was.slot, sets: was.sets, undone: was.undone}
	f.lastHeard = n.slot
	landed := n.land(live)
	if !landed && n.sameButSightings(was.Node) {
		f.nodes[n.Name] = n
		return f.proofChanged(was.Node, n.Node, at), nil
	}
	if f.replace(was, n, at) {
		wake = f.queues.heads()
	}
	return true, wake
}

// land says whether the node shows the write in flight, or, read live, that it isn't there to come.
func (n *nodeState) land(live bool) bool {
	landed := n.inFlight != nil && (live || n.inFlight.version != "" && !older(n.ResourceVersion, n.inFlight.version))
	if landed {
		n.inFlight = nil
	}
	return landed
}

// ForgetNode removes a node that is gone, unless another has come under its name.
func (f *Fleet) ForgetNode(name string, uid types.UID, at Moment) (wake []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[name]
	if n == nil || n.UID != uid {
		return nil
	}
	f.replace(n, nil, at)
	return f.queues.heads()
}

// ObserveLease takes in a renewal of a node's Lease, the sign of life for conditions without a heartbeat.
func (f *Fleet) ObserveLease(name string, renewed time.Time, at Moment) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[name]
	if n == nil || n.Lease.Heartbeat.Equal(renewed) {
		return false
	}
	before, after := n.Node, *n.Node
	after.Lease = Reading{Heartbeat: renewed}
	if !before.Lease.Heartbeat.IsZero() {
		after.Lease.AliveSeen = at.Now
	}
	n.Node = &after
	return f.proofChanged(before, n.Node, at)
}

// replace puts after in before's place everywhere; either may be nil. It says whether room was freed.
func (f *Fleet) replace(before, after *nodeState, at Moment) (freed bool) {
	n, gone := after, after == nil
	var b, a *Node
	if before != nil {
		b = before.Node
	}
	if gone {
		n = before
		freed = f.counts.replace(before.print, footprint{})
	} else {
		if before == nil {
			n.slot, n.sets, n.undone = f.index.enter(n.Name), map[*setState]struct{}{}, map[claimed]time.Time{}
		}
		a = n.Node
		f.nodes[n.Name] = n
		freed = f.recount(n)
	}
	f.index.replace(n.slot, b, a)
	for s := range f.setsToJudge(b, a) {
		f.judgeMatch(s, b, a, n, at)
	}
	f.noteRecord(n, gone)
	if gone {
		f.forget(n)
	}
	return freed
}

// forget takes out what is left of a node that no set matches and that no record names any more.
func (f *Fleet) forget(n *nodeState) {
	for s := range n.sets {
		delete(s.held, n.Name)
		f.touch(s)
	}
	f.wake(f.queues.enter(n.Name, nil))
	f.index.leave(n.Name, n.slot)
	delete(f.nodes, n.Name)
}

// setsToJudge are the sets whose stand to the node may differ between before and after.
func (f *Fleet) setsToJudge(before, after *Node) map[*setState]struct{} {
	sets := map[*setState]struct{}{}
	if before == nil || after == nil || before.Deleting != after.Deleting || !maps.Equal(before.Labels, after.Labels) {
		for _, s := range f.sets {
			sets[s] = struct{}{}
		}
		return sets
	}
	for t, is := range after.Readings { // what vanished has a reading still
		if was := before.Readings[t]; was.Status != is.Status {
			f.setsBy.watching(sets, t, was.Status, is.Status)
		}
	}
	return sets
}

func (f *Fleet) judgeMatch(s *setState, before, after *Node, n *nodeState, at Moment) {
	selects := func(n *Node) bool { return n != nil && !n.Deleting && s.Selects(n) }
	was, is := selects(before), selects(after)
	if is {
		s.selected++
	}
	if was {
		s.selected--
	}
	if was != is {
		f.resize(s)
	}
	f.rematch(s, n, is && s.matches(after))
	f.judgeBreaker(s, at)
	f.touch(s)
}

// proofChanged says whether a set's phase changed though no condition did: a silent reporter spoke, or an unproven one
// proved that it lives.
func (f *Fleet) proofChanged(before, after *Node, at Moment) bool {
	for s := range f.nodes[after.Name].sets {
		_, matching := s.matching[after.Name]
		_, tainted := s.tainted[after.Name]
		if (matching || tainted) && s.Match(before, at).Phase != s.Match(after, at).Phase {
			f.touch(s)
			return true
		}
	}
	return false
}

// ObserveSet takes in a set, what it may do, its stored breaker and the reset that its annotations ask for. It gives the
// nodes whose plans may have changed.
func (f *Fleet) ObserveSet(set *Set, standing Standing, stored *OpenBreaker, resetID string, at Moment) (affected []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.declare(set.KeysDeclared)
	was := f.sets[set.UID]
	if was != nil && f.follows && !sameBreaker(was.breaker, stored) {
		was.breaker = stored
		f.recountAll(was)
		f.touch(was)
	}
	if was != nil && was.Generation == set.Generation && was.standing == standing && was.resetID == resetID {
		return nil
	}
	s := newSetState(set.under(f.policy.Types), standing, stored, resetID)
	touched := names{}
	if was != nil {
		s.breaker = was.breaker // the leader's own is never older than the stored one, and a follower's is the stored one
		maps.Copy(touched, was.matching)
		f.part(was)
	}
	f.sets[set.UID] = s
	f.introduce(s)
	f.judgeBreaker(s, at)
	f.touch(s)
	maps.Copy(touched, s.matching)
	maps.Copy(touched, s.recorded)
	maps.Copy(touched, s.tainted) // also by a former set of its name
	return touched.sorted()
}

// declare notes keys. Where a record can't be read, the taints of a new one count from now on.
func (f *Fleet) declare(keys []string) {
	news := false
	for _, key := range keys {
		news = news || !f.declared[key]
		f.declared[key] = true
	}
	if !news {
		return
	}
	for slot := range f.unreadable.all() {
		f.recount(f.nodes[f.index.slots[slot]])
	}
}

func (f *Fleet) isDeclared(key string) bool { return f.declared[key] }

// ForgetSet removes a set that is gone, and gives the nodes that still carry its record.
func (f *Fleet) ForgetSet(uid types.UID) (affected []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sets[uid]
	if s == nil {
		return nil
	}
	f.part(s)
	delete(f.sets, uid)
	delete(f.dirty, uid)
	return s.recorded.sorted()
}

// ConfirmOrphan says that a record's set was twice found to be gone; what the record holds is undone.
func (f *Fleet) ConfirmOrphan(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.orphans[uid] = true
}

// ObserveSystemPods takes in the DaemonSets that nodes can't do without, for previews.
func (f *Fleet) ObserveSystemPods(pods []SystemPod) {
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
	if len(f.woken) == 0 {
		return nil
	}
	woken := f.woken.sorted()
	clear(f.woken)
	return woken
}

func (f *Fleet) wake(nodes []string) {
	for _, name := range nodes {
		f.woken.put(name, true)
	}
}

func (f *Fleet) touch(s *setState) { f.dirty[s.UID] = s.Name }

// older says whether resource version a lies before b; what can't be compared isn't older.
func older(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c < 0
}

func byAge(a, b Claimant) int {
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}
