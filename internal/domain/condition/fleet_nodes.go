package condition

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// nodeState is a node with what is in flight for it.
type nodeState struct {
	*Node
	slot int
	// inFlight is a write of ours that the node as we know it doesn't show yet.
	inFlight *inFlight
	usage    usage
	holds    []Hold                 // of its last plan
	undone   map[claimKey]time.Time // when taints of ours were taken off
}

// claimKey is what a set tainted.
type claimKey struct {
	set types.UID
	key string
}

// ObserveNode takes in a node as the API server has it. changed: the node's plan may differ now. A version older than the known one
// is ignored.
func (f *Fleet) ObserveNode(node *corev1.Node, at timing.Moment) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.observe(node, at, false)
}

// ObserveLive takes in a node read live after a write of ours whose outcome was uncertain: it shows the outcome. One read is enough,
// provided that no cache answers it: a get without a resourceVersion, as the manager's API reader sends it, is a quorum read of etcd
// (kube-apiserver's watch cache passes it on), so what it doesn't show wasn't there when it was asked for.
func (f *Fleet) ObserveLive(node *corev1.Node, at timing.Moment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observe(node, at, true)
}

func (f *Fleet) observe(node *corev1.Node, at timing.Moment, live bool) (changed bool) {
	n := f.nodes[node.Name]
	if n != nil && older(node.ResourceVersion, n.ResourceVersion) { // of a former node of this name, too
		if live {
			f.finishWrite(n)
		}
		return false
	}
	if n != nil && n.UID != node.UID {
		f.forget(n, at)
		n = nil
	}
	if n == nil {
		n = &nodeState{Node: NewNode(node, nil, at.Now), undone: map[claimKey]time.Time{}}
		n.slot, f.nodes[n.Name] = f.index.add(n), n
		f.replace(n, nil, at)
		f.requeueHeads()
		return true
	}
	before := n.Node
	n.Node = NewNode(node, before, at.Now)
	n.recordUndone(before.Owned, n.Owned, at.Now)
	if !n.clearWritten(live) && n.equalExceptHeartbeats(before) {
		return f.livenessChanged(n, before, at)
	}
	f.replace(n, before, at)
	return true
}

// recordUndone remembers when claims went from the record, by whomever: what comes after is another act.
func (n *nodeState) recordUndone(was, is Ownership, now time.Time) {
	for _, t := range was.Taints {
		if !slices.ContainsFunc(is.Taints, func(k OwnedTaint) bool { return k.Set == t.Set && k.Key == t.Key }) {
			n.undone[claimKey{t.Set, t.Key}] = now
		}
	}
}

// clearWritten says whether the node shows the write in flight, or, read live, that it isn't there to come.
func (n *nodeState) clearWritten(live bool) bool {
	landed := n.inFlight != nil && (live || n.inFlight.version != "" && !older(n.ResourceVersion, n.inFlight.version))
	if landed {
		n.inFlight = nil
	}
	return landed
}

// ForgetNode removes a node that is gone, unless another has come under its name.
func (f *Fleet) ForgetNode(name string, uid types.UID, at timing.Moment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[name]; n != nil && n.UID == uid {
		f.forget(n, at)
		f.requeueHeads()
	}
}

// ObserveLease takes in a renewal of a node's Lease, the sign of life for conditions without a heartbeat.
func (f *Fleet) ObserveLease(name string, renewed time.Time, at timing.Moment) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[name]
	if n == nil || n.Lease.Heartbeat.Equal(renewed) {
		return false
	}
	before, after := n.Node, *n.Node
	after.Lease = Observation{Heartbeat: renewed}
	if !before.Lease.Heartbeat.IsZero() {
		after.Lease.LastActivity = at.Now
	}
	n.Node = &after
	return f.livenessChanged(n, before, at)
}

// replace takes in how a node is now; before is what was known of it, nil for nothing.
func (f *Fleet) replace(n *nodeState, before *Node, at timing.Moment) {
	f.recount(n)
	f.recordEviction(n, at.Now)
	f.taintHistory.observe(before, n.Node, at.Now)
	if before != nil {
		f.taintHistory.markWithdrawn(before, n.Node, func(set types.UID) bool { return f.sets[set] == nil || f.sets[set].state.IsWithdrawn() })
	}
	f.index.replace(n.slot, before, n.Node)
	f.updateSets(n, before, n.Node, at)
	if broken := before != nil && before.RecordBroken; broken != n.RecordBroken {
		f.markAllDirty()
	}
	if before != nil && !sameTaints(before.Taints, n.Taints) { // somebody may have taken away what sets count
		f.markClaimantsDirty(n)
	}
}

// forget takes out a node that is gone.
func (f *Fleet) forget(n *nodeState, at timing.Moment) {
	f.recordDeleted(n, at.Now)
	f.markClaimantsDirty(n)
	f.counts.add(n.usage, -1)
	n.usage = usage{}
	f.withRecord.set(n.slot, false)
	f.recordHolds(n, nil)
	f.index.replace(n.slot, n.Node, nil)
	f.updateSets(n, n.Node, nil, at)
	if n.RecordBroken {
		f.markAllDirty()
	}
	f.index.remove(n.slot)
	delete(f.nodes, n.Name)
}

// updateSets has the sets learn how a node changed; before or after may be nil.
func (f *Fleet) updateSets(n *nodeState, before, after *Node, at timing.Moment) {
	if before == nil || after == nil || before.Deleting != after.Deleting || !maps.Equal(before.Labels, after.Labels) {
		for _, s := range f.sets {
			f.updateSet(s, n, before, after, at)
			f.requeueForMaxNodes(s)
		}
		return
	}
	if before.Available != after.Available {
		for _, s := range f.sets {
			if s.MaxNodes != nil {
				f.updateSet(s, n, before, after, at)
				f.requeueForMaxNodes(s)
			}
		}
	}
	for _, is := range after.Observations { // what vanished has an observation still
		if !before.Observations.same(is) {
			for s := range f.setIndex[facet{"condition", is.Type}] {
				f.updateSet(s, n, before, after, at)
			}
		}
	}
}

// requeueForMaxNodes requeues the nodes that wait for the set's maxNodes: of more nodes it may allow more.
func (f *Fleet) requeueForMaxNodes(s *setState) {
	if s.MaxNodes != nil {
		f.requeues.Insert(f.firstInQueue(maxNodesQueue(s))...)
	}
}

func (f *Fleet) updateSet(s *setState, n *nodeState, before, after *Node, at timing.Moment) {
	if s.isMatched(before) && (after == nil || after.Deleting) {
		s.deletedMatching.Forget(at.Now.Add(-f.policy.Limits.EvictPace))
		s.deletedMatching.Remember(limit.Act{UID: n.UID, Name: n.Name, Zone: n.Zone, Began: at.Now}, at.Now)
	}
	f.evaluateBreaker(s, at)
	f.markDirty(s)
}

// livenessChanged says whether a set's phase changed though no condition did: a silent reporter spoke, or an unproven one
// proved that it lives.
func (f *Fleet) livenessChanged(n *nodeState, before *Node, at timing.Moment) bool {
	for _, s := range f.sets {
		if (s.isMatched(n.Node) || n.usage.claims(s)) && s.Match(before, at).Phase != s.Match(n.Node, at).Phase {
			f.markDirty(s)
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

// FleetOfRecords is what records say of nodes, beside the sets that are stored, without a manager that knows more. It is for counting and not
// for plans: no set in it may act.
func FleetOfRecords(nodes []corev1.Node, sets []v1alpha1.ConditionSet, limits limit.Limits, at timing.Moment) *Fleet {
	fleet := NewFleet(limits)
	for i := range sets {
		set, err := NewSet(&sets[i])
		if err != nil {
			set = Unreadable(&sets[i])
		}
		fleet.ObserveSet(set, lifecycle.NotJudged, nil, "", at)
	}
	for i := range nodes {
		fleet.ObserveNode(&nodes[i], at)
	}
	return fleet
}
