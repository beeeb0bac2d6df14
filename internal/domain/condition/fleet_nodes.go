package condition

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/resourcestack/autohealer/internal/domain/limit"
)

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
	n.noteUndone(was.Owned, n.Owned, at.Now)
	landed := n.land(live)
	if !landed && n.sameButSightings(was.Node) {
		f.hold(n)
		return f.proofChanged(was.Node, n.Node, at), nil
	}
	if f.replace(was, n, at) {
		wake = f.queues.heads()
	}
	return true, wake
}

// noteUndone remembers when claims went from the record, by whomever: what comes after is another act.
func (n *nodeState) noteUndone(was, is Ownership, now time.Time) {
	for _, t := range was.Taints {
		if !slices.ContainsFunc(is.Taints, func(k OwnedTaint) bool { return k.Set == t.Set && k.Key == t.Key }) {
			n.undone[claimed{t.Set, t.Key}] = now
		}
	}
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
		f.remember(n, true, at.Now)
	} else {
		if before == nil {
			n.slot, n.sets, n.undone = f.index.enter(n), map[*setState]struct{}{}, map[claimed]time.Time{}
		}
		a = n.Node
		f.hold(n)
		freed = f.recount(n)
		f.remember(n, false, at.Now)
		f.past.note(b, a, at.Now)
		if b != nil {
			f.past.ended(b, a, func(set types.UID) bool { return f.sets[set] == nil || f.sets[set].state.IsWithdrawn() })
		}
	}
	f.index.replace(n.slot, b, a)
	for s := range f.setsToJudge(b, a) {
		f.judgeMatch(s, b, a, n, at)
	}
	f.noteRecord(n, gone)
	if b != nil && a != nil && !sameTaints(b.Taints, a.Taints) {
		for s := range n.sets { // somebody may have taken away what it counts
			f.touch(s)
		}
	}
	if gone {
		f.forget(n)
	}
	return freed
}

func (f *Fleet) hold(n *nodeState) { f.nodes[n.Name], f.index.slots[n.slot] = n, n }

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
	anew := before == nil || after == nil || before.Deleting != after.Deleting || !maps.Equal(before.Labels, after.Labels)
	if anew || before.Available != after.Available {
		for _, s := range f.sets {
			if anew || s.MaxNodes != nil {
				sets[s] = struct{}{}
			}
		}
	}
	if anew {
		return sets
	}
	for _, t := range after.changedSince(before) {
		maps.Copy(sets, f.setsBy.byMember[t])
	}
	return sets
}

// changedSince are the types of the conditions that came, went or have another status.
func (n *Node) changedSince(before *Node) (types []string) {
	for _, is := range n.Readings {
		if was, there := before.Readings.Of(is.Type); !there || was.Status != is.Status {
			types = append(types, is.Type)
		}
	}
	return types // what vanished has a reading still
}

func (f *Fleet) judgeMatch(s *setState, before, after *Node, n *nodeState, at Moment) {
	was, is := s.concerning(before), s.concerning(after)
	if is.selected != was.selected || is.available != was.available {
		s.selected += is.selected - was.selected
		s.available += is.available - was.available
		f.resize(s)
	}
	if _, matched := s.matching[n.Name]; matched && (after == nil || after.Deleting) {
		s.departed.Forget(at.Now.Add(-f.policy.Limits.EvictPace))
		s.departed.Remember(limit.Act{UID: n.UID, Name: n.Name, Zone: n.Zone, Began: at.Now}, at.Now)
	}
	f.rematch(s, n, is.selected == 1 && s.matches(after))
	f.judgeBreaker(s, at)
	f.touch(s)
}

// share is what one node adds to a set's counts.
type share struct{ selected, available int }

func (s *setState) concerning(n *Node) (of share) {
	if n == nil || n.Deleting || !s.Selects(n) {
		return of
	}
	of.selected = 1
	if n.Available && s.MaxNodes != nil { // else nobody asks, and it isn't judged when that changes
		of.available = 1
	}
	return of
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

// older says whether resource version a lies before b; what can't be compared isn't older.
func older(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c < 0
}
