package condition

import (
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// Node is what the planner reads of a node, with what we saw ourselves. It shares maps and slices with the object it
// was made from and must not be changed.
type Node struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Created         time.Time
	Labels          map[string]string
	Zone            string
	ControlPlane    bool
	Deleting        bool
	Ready           bool
	// Available: it takes pods, or would if no taint of ours or of a pool's owner kept them away. It is Ready, and neither cordoned
	// nor on its way out.
	Available bool
	Taints    []corev1.Taint
	Owned     Ownership
	// RecordBroken: the ownership annotation can't be read, so nothing on the node is known to be ours.
	RecordBroken bool
	// Hold keeps everything new from the node; nil for none.
	Hold *hold.Hold
	// Annotated: the node has annotations, ours or others'.
	Annotated    bool
	record       string
	recorded     bool
	Observations Observations
	// Lease is the node's Lease as an observation without a status; zero while unknown.
	Lease Observation
	// FirstSeen by our clock.
	FirstSeen time.Time
}

// Observations are of conditions of different types, in the order of these: every count of doubt asks for one of thousands of nodes each, which a
// map takes longer for.
type Observations []Observation

// Of gives the observation of a condition; ok says whether the node reports it, or did while we looked.
func (r Observations) Of(conditionType string) (of Observation, ok bool) {
	i := sort.Search(len(r), func(i int) bool { return r[i].Type >= conditionType })
	if i == len(r) || r[i].Type != conditionType {
		return Observation{}, false
	}
	return r[i], true
}

func (r Observations) sort() {
	slices.SortStableFunc(r, func(a, b Observation) int { return strings.Compare(a.Type, b.Type) })
}

func (r Observations) has(conditionType string) bool {
	_, there := r.Of(conditionType)
	return there
}

// same says whether a condition has the same status here.
func (r Observations) same(as Observation) bool {
	is, there := r.Of(as.Type)
	return there && is.Status == as.Status
}

// Observation is a node condition together with what we saw of it ourselves.
type Observation struct {
	Type string
	// Status as reported, which may be any text: the API server doesn't validate it. It is "" for a condition that was removed.
	Status corev1.ConditionStatus
	// Transition and Heartbeat as reported, by the reporter's clock.
	Transition, Heartbeat time.Time
	// ObservedSince is since when, by our clock, we have seen this status without a break.
	ObservedSince time.Time
	// LastActivity is when, by our clock, we last saw heartbeat, transition or status move; zero until we did.
	LastActivity time.Time
}

// NewNode reads a node; before is what we knew of it, nil when it is new to us.
func NewNode(node *corev1.Node, before *Node, now time.Time) *Node {
	n := &Node{
		Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Created: node.CreationTimestamp.Time,
		Labels: node.Labels, Zone: node.Labels[corev1.LabelTopologyZone], ControlPlane: isControlPlane(node.Labels),
		Deleting:  node.DeletionTimestamp != nil,
		Taints:    node.Spec.Taints,
		Annotated: len(node.Annotations) > 0, Hold: hold.Of(node.Annotations),
		Observations: make(Observations, 0, len(node.Status.Conditions)), FirstSeen: now,
	}
	n.record, n.recorded = node.Annotations[v1alpha1.AnnotationOwnedTaints]
	if before != nil {
		n.FirstSeen, n.Lease = before.FirstSeen, before.Lease
	}
	if before != nil && before.record == n.record {
		n.Owned, n.RecordBroken = before.Owned, before.RecordBroken
	} else {
		var err error
		n.Owned, err = ParseOwnership(n.record)
		n.RecordBroken = err != nil
	}
	for _, c := range node.Status.Conditions {
		n.Observations = append(n.Observations, observe(c, before, now))
	}
	n.Observations.sort()
	n.Observations = slices.CompactFunc(n.Observations, func(a, b Observation) bool { return a.Type == b.Type }) // of two Kubernetes' own helpers read the first
	n.keepRemovedConditions(before, now)
	ready, _ := n.Observations.Of(string(corev1.NodeReady))
	n.Ready = ready.Status == corev1.ConditionTrue
	n.Available = n.Ready && !node.Spec.Unschedulable && !slices.ContainsFunc(n.Taints, ecosystem.Leaves)
	return n
}

// Record is the ownership annotation as it was read; ok is false when there is none.
func (n *Node) Record() (text string, ok bool) { return n.record, n.recorded }

func isControlPlane(labels map[string]string) bool {
	_, a := labels["node-role.kubernetes.io/control-plane"]
	_, b := labels["node-role.kubernetes.io/master"]
	return a || b
}

func observe(c corev1.NodeCondition, before *Node, now time.Time) Observation {
	r := Observation{Type: string(c.Type), Status: c.Status, Transition: c.LastTransitionTime.Time, Heartbeat: c.LastHeartbeatTime.Time, ObservedSince: now}
	if before == nil {
		return r
	}
	was, ok := before.Observations.Of(string(c.Type))
	if !ok { // it appeared while we were looking
		r.LastActivity = now
		return r
	}
	held := was.Status == r.Status && was.Transition.Equal(r.Transition)
	if held {
		r.ObservedSince = was.ObservedSince
	}
	r.LastActivity = was.LastActivity
	if !held || !was.Heartbeat.Equal(r.Heartbeat) {
		r.LastActivity = now
	}
	return r
}

// keepRemovedConditions keeps conditions that the node once reported: a removed one is Doubtful, and one never reported isn't.
func (n *Node) keepRemovedConditions(before *Node, now time.Time) {
	if before == nil {
		return
	}
	there := n.Observations
	for _, was := range before.Observations {
		if there.has(was.Type) {
			continue
		}
		if was.Status != "" {
			was = Observation{Type: was.Type, ObservedSince: now, LastActivity: now}
		}
		n.Observations = append(n.Observations, was)
	}
	if len(n.Observations) > len(there) { // hardly ever, and each heartbeat comes by here
		n.Observations.sort()
	}
}

// alive says whether an observation's reporter is known to be alive: we saw it change within staleAfter, or, where we never
// did, its heartbeat or last transition is that recent by the API server's clock.
func (n *Node) alive(r Observation, m Member, staleAfter time.Duration, at timing.Moment) bool {
	if m.noHeartbeat && fresh(n.Lease, staleAfter, at) {
		return true
	}
	return fresh(r, staleAfter, at)
}

func fresh(r Observation, staleAfter time.Duration, at timing.Moment) bool {
	if !r.LastActivity.IsZero() && at.Now.Sub(r.LastActivity) < staleAfter {
		return true
	}
	if !r.LastActivity.IsZero() || at.Server.IsZero() {
		return false
	}
	young := func(t time.Time) bool { return !t.IsZero() && at.Server.Sub(t).Abs() < staleAfter }
	return young(r.Heartbeat) || young(r.Transition)
}

// equalExceptHeartbeats says whether at most heartbeats differ from before.
func (n *Node) equalExceptHeartbeats(before *Node) bool {
	return before != nil && n.UID == before.UID && n.Deleting == before.Deleting && n.Available == before.Available && n.Annotated == before.Annotated && n.record == before.record && n.recorded == before.recorded &&
		n.Hold.Same(before.Hold) && maps.Equal(n.Labels, before.Labels) && equality.Semantic.DeepEqual(n.Taints, before.Taints) &&
		slices.EqualFunc(n.Observations, before.Observations, Observation.equalExceptHeartbeats)
}

func (r Observation) equalExceptHeartbeats(before Observation) bool {
	return r.Type == before.Type && r.Status == before.Status && r.Transition.Equal(before.Transition)
}

// foreignTaint says whether the node carries this very taint and our record doesn't claim it.
func (n *Node) foreignTaint(key string, effect corev1.TaintEffect) bool {
	return n.hasTaint(key, effect) && !n.Owned.Owns(corev1.Taint{Key: key, Effect: effect})
}

func (n *Node) hasTaint(key string, effect corev1.TaintEffect) bool {
	return slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect })
}
