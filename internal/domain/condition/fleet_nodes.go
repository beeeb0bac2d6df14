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
	slot int
	// inFlight is a write of ours that the node as we know it doesn't show yet.
	inFlight *inFlight
	usage    usage
	holds    []Hold                // of its last plan
	undone   map[claimed]time.Time // when taints of ours were taken off
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
	n := f.nodes[node.Name]
	if n != nil && older(node.ResourceVersion, n.ResourceVersion) { // of a former node of this name, too
		if live {
			wake = f.settle(n)
		}
		return false, wake
	}
	if n != nil && n.UID != node.UID {
		f.forget(n, at)
		n = nil
	}
	if n == nil {
		n = &nodeState{Node: NewNode(node, nil, at.Now), undone: map[claimed]time.Time{}}
		n.slot, f.nodes[n.Name] = f.index.enter(n), n
		f.replace(n, nil, at)
		return true, f.heads()
	}
	before := n.Node
	n.Node = NewNode(node, before, at.Now)
	f.lastHeard = n.slot
	n.noteUndone(before.Owned, n.Owned, at.Now)
	if !n.land(live) && n.sameButSightings(before) {
		return f.proofChanged(n, before, at), nil
	}
	if f.replace(n, before, at) {
		wake = f.heads()
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
	f.forget(n, at)
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
	return f.proofChanged(n, before, at)
}

// replace takes in how a node is now; before is what was known of it, nil for nothing. It says whether room was freed.
func (f *Fleet) replace(n *nodeState, before *Node, at Moment) (freed bool) {
	freed = f.recount(n)
	f.remember(n, at.Now)
	f.past.note(before, n.Node, at.Now)
	if before != nil {
		f.past.ended(before, n.Node, func(set types.UID) bool { return f.sets[set] == nil || f.sets[set].state.IsWithdrawn() })
	}
	f.index.replace(n.slot, before, n.Node)
	f.judge(n, before, n.Node, at)
	if broken := before != nil && before.RecordBroken; broken != n.RecordBroken {
		f.touchAll()
	}
	if before != nil && !sameTaints(before.Taints, n.Taints) { // somebody may have taken away what sets count
		f.touchClaimants(n)
	}
	return freed
}

// forget takes out a node that is gone.
func (f *Fleet) forget(n *nodeState, at Moment) {
	f.bury(n, at.Now)
	f.touchClaimants(n)
	f.counts.add(n.usage, -1)
	n.usage = usage{}
	f.recording.put(n.slot, false)
	f.noteHolds(n, nil)
	f.index.replace(n.slot, n.Node, nil)
	f.judge(n, n.Node, nil, at)
	if n.RecordBroken {
		f.touchAll()
	}
	f.index.leave(n.slot)
	delete(f.nodes, n.Name)
}

// judge has the sets learn how a node changed; before or after may be nil.
func (f *Fleet) judge(n *nodeState, before, after *Node, at Moment) {
	if before == nil || after == nil || before.Deleting != after.Deleting || !maps.Equal(before.Labels, after.Labels) {
		for _, s := range f.sets {
			f.judgeFor(s, n, before, after, at)
			f.resize(s)
		}
		return
	}
	if before.Available != after.Available {
		for _, s := range f.sets {
			if s.MaxNodes != nil {
				f.judgeFor(s, n, before, after, at)
				f.resize(s)
			}
		}
	}
	for _, is := range after.Readings { // what vanished has a reading still
		if !before.Readings.same(is) {
			for s := range f.alike[facet{"condition", is.Type}] {
				f.judgeFor(s, n, before, after, at)
			}
		}
	}
}

// resize wakes who waits for a set's own cap: of more nodes it may allow more.
func (f *Fleet) resize(s *setState) {
	if s.MaxNodes != nil {
		f.woken.Insert(f.firstInLine(ownLine(s))...)
	}
}

func (f *Fleet) judgeFor(s *setState, n *nodeState, before, after *Node, at Moment) {
	if s.isMatched(before) && (after == nil || after.Deleting) {
		s.departed.Forget(at.Now.Add(-f.policy.Limits.EvictPace))
		s.departed.Remember(limit.Act{UID: n.UID, Name: n.Name, Zone: n.Zone, Began: at.Now}, at.Now)
	}
	f.judgeBreaker(s, at)
	f.touch(s)
}

// proofChanged says whether a set's phase changed though no condition did: a silent reporter spoke, or an unproven one
// proved that it lives.
func (f *Fleet) proofChanged(n *nodeState, before *Node, at Moment) bool {
	for _, s := range f.sets {
		if (s.isMatched(n.Node) || n.usage.claims(s)) && s.Match(before, at).Phase != s.Match(n.Node, at).Phase {
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
