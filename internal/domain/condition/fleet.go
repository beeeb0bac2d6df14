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
	limits limit.Limits
	synced bool
	// follows: another replica may lead.
	follows bool
	// actsFrom is until when nothing new is done because our clock stepped.
	actsFrom   time.Time
	precedence Precedence

	nodes      map[string]*nodeState
	sets       map[types.UID]*setState
	declared   map[string]bool // every taint key that some set is known to have declared
	orphans    map[types.UID]bool
	systemPods []SystemPod

	index  index
	counts counts
	queues queues
	dirty  map[types.UID]string // sets whose status may have changed, and their names
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
}

// setState is a set with the nodes it concerns.
type setState struct {
	*Set
	standing Standing
	selected int
	matching names // its members' statuses are there, fresh or not
	tainted  names // it has a claim on a taint
	recorded names // the record names it, also only in its history
	held     map[string]Hold
	breaker  *OpenBreaker
	resetID  string
}

// NewFleet is an empty fleet that lets nothing be done until MarkSynced.
func NewFleet(limits limit.Limits) *Fleet {
	return &Fleet{
		limits: limits, precedence: PrecedenceKey,
		nodes: map[string]*nodeState{}, sets: map[types.UID]*setState{},
		declared: map[string]bool{}, orphans: map[types.UID]bool{}, dirty: map[types.UID]string{},
		index: newIndex(), counts: newCounts(), queues: queues{},
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
// the held-back nodes that may have room now.
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
		return true, f.heads()
	}
	n := &nodeState{Node: NewNode(node, was.Node, at.Now), inFlight: was.inFlight, print: was.print}
	landed := n.land(live)
	if !landed && n.sameButSightings(was.Node) {
		f.nodes[n.Name] = n
		return f.proofChanged(was.Node, n.Node, at), nil
	}
	if f.replace(was, n, at) {
		wake = f.heads()
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

// ForgetNode removes a node that is gone.
func (f *Fleet) ForgetNode(name string, at Moment) (wake []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[name]; n != nil {
		f.replace(n, nil, at)
	}
	return f.heads()
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
	var b, a *Node
	name := ""
	if before != nil {
		b, name = before.Node, before.Name
	}
	if after != nil {
		a, name = after.Node, after.Name
		f.nodes[name] = after
	} else {
		delete(f.nodes, name)
		f.queues.leave(name)
	}
	f.index.replace(name, b, a)
	if after != nil {
		freed = f.recount(after)
	} else {
		freed = f.counts.replace(before.print, footprint{})
	}
	for s := range f.setsToJudge(b, a) {
		f.judgeMatch(s, b, a, name, at)
	}
	for _, s := range f.sets {
		claims, recorded := false, false
		if after != nil {
			claims, recorded = after.print.claims(s), after.recordNames(s.UID)
		} else {
			delete(s.held, name)
		}
		if s.tainted.put(name, claims) {
			f.touch(s)
		}
		if s.recorded.put(name, recorded) {
			f.touch(s)
		}
	}
	return freed
}

// setsToJudge are the sets whose stand to the node may differ between before and after.
func (f *Fleet) setsToJudge(before, after *Node) map[*setState]struct{} {
	sets := map[*setState]struct{}{}
	all := before == nil || after == nil || before.Deleting != after.Deleting || !maps.Equal(before.Labels, after.Labels)
	for _, s := range f.sets {
		if all || slices.ContainsFunc(s.Members, func(m Member) bool { return before.Readings[m.Type].Status != after.Readings[m.Type].Status }) {
			sets[s] = struct{}{}
		}
	}
	return sets
}

func (f *Fleet) judgeMatch(s *setState, before, after *Node, name string, at Moment) {
	selects := func(n *Node) bool { return n != nil && !n.Deleting && s.Selects(n) }
	if selects(before) {
		s.selected--
	}
	if selects(after) {
		s.selected++
	}
	s.matching.put(name, selects(after) && s.matches(after))
	f.judgeBreaker(s, at)
	f.touch(s)
}

// proofChanged says whether a set's phase changed though no condition did: a silent reporter spoke, or an unproven one
// proved that it lives.
func (f *Fleet) proofChanged(before, after *Node, at Moment) bool {
	for _, s := range f.sets {
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
	for _, key := range set.KeysDeclared {
		f.declared[key] = true
	}
	was := f.sets[set.UID]
	if was != nil && f.follows && !sameBreaker(was.breaker, stored) {
		was.breaker = stored
		f.touch(was)
	}
	if was != nil && was.Generation == set.Generation && was.standing == standing && was.resetID == resetID {
		return nil
	}
	s := &setState{Set: set, standing: standing, matching: names{}, tainted: names{}, recorded: names{}, held: map[string]Hold{},
		breaker: stored, resetID: resetID}
	touched := names{}
	if was != nil {
		s.breaker = was.breaker // the leader's own is never older than the stored one, and a follower's is the stored one
		maps.Copy(touched, was.matching)
	}
	f.sets[set.UID] = s
	for name, n := range f.nodes {
		s.count(name, n)
	}
	f.judgeBreaker(s, at)
	f.touch(s)
	maps.Copy(touched, s.matching)
	maps.Copy(touched, s.recorded)
	maps.Copy(touched, s.tainted) // also by a former set of its name
	return touched.sorted()
}

// count takes a node into the counts of a set that is new to the fleet.
func (s *setState) count(name string, n *nodeState) {
	if !n.Deleting && s.Selects(n.Node) {
		s.selected++
		s.matching.put(name, s.matches(n.Node))
	}
	s.tainted.put(name, n.print.claims(s))
	s.recorded.put(name, n.recordNames(s.UID))
}

// ForgetSet removes a set that is gone, and gives the nodes that still carry its record.
func (f *Fleet) ForgetSet(uid types.UID) (affected []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sets[uid]
	if s == nil {
		return nil
	}
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
