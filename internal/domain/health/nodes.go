package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// conditionTerminating is what Gardener's machine-controller-manager sets before it drains a node that goes.
	conditionTerminating = corev1.NodeConditionType("Terminating")
	// joining is how long after its creation a node's first Ready condition may be set.
	joining = time.Minute
)

// leavingTaints are those of nodes that an autoscaler takes away.
var leavingTaints = []string{"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"}

// Nodes is healthy when at least so many nodes are Ready and can be scheduled on, those aside that are being deleted, or are
// cordoned to be. Too few that have registered are Progressing, because nodes come and go as a cluster is scaled; so are those that start.
func Nodes(nodes []*corev1.Node, least int) Result {
	by := map[string][]string{}
	for _, n := range nodes {
		state := stateOf(n)
		by[state] = append(by[state], n.Name)
	}
	available, cordoned := len(by[nodeAvailable]), len(by[nodeCordoned])
	if available >= least {
		return healthy()
	}
	text := fmt.Sprintf("%d of at least %d nodes are available", available, least)
	missing := least - available - cordoned - len(by[nodeStarting]) - len(by[nodeBroken])
	switch {
	case len(by[nodeBroken]) > 0:
		return unhealthy(text + "; not ready: " + someOf(by[nodeBroken]))
	case available+cordoned >= least:
		return unhealthy(text + "; cordoned: " + someOf(by[nodeCordoned]))
	case missing > 0:
		return progressing(fmt.Sprintf("%s; %d haven't registered", text, missing))
	}
	return progressing(fmt.Sprintf("%s; %d are starting", text, len(by[nodeStarting])))
}

// What a node is to a cluster that needs it.
const (
	nodeLeaving   = "leaving"
	nodeStarting  = "starting"
	nodeAvailable = "available"
	nodeCordoned  = "cordoned"
	nodeBroken    = "broken"
)

func stateOf(n *corev1.Node) string {
	ready := conditionOf(n, corev1.NodeReady)
	switch {
	case isLeaving(n):
		return nodeLeaving
	case ready == nil:
		return nodeStarting
	case ready.Status == corev1.ConditionTrue && isCordoned(n):
		return nodeCordoned
	case ready.Status == corev1.ConditionTrue:
		return nodeAvailable
	case !hasJoined(n, ready):
		return nodeStarting
	}
	return nodeBroken
}

func isLeaving(n *corev1.Node) bool {
	terminating := conditionOf(n, conditionTerminating)
	return n.DeletionTimestamp != nil || terminating != nil && terminating.Status == corev1.ConditionTrue ||
		slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return slices.Contains(leavingTaints, t.Key) })
}

func conditionOf(n *corev1.Node, conditionType corev1.NodeConditionType) *corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == conditionType })
	if i < 0 {
		return nil
	}
	return &n.Status.Conditions[i]
}

// hasJoined tells a node that broke from one that isn't up yet, whose kubelet gives the same reason (KubeletNotReady): there
// the condition hasn't changed since the node was created.
func hasJoined(n *corev1.Node, ready *corev1.NodeCondition) bool {
	return ready.LastTransitionTime.Sub(n.CreationTimestamp.Time) > joining
}

func isCordoned(n *corev1.Node) bool {
	return n.Spec.Unschedulable || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
}

func someOf(names []string) string {
	slices.Sort(names)
	const most = 5
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// TrimNode leaves of a node what Nodes reads, so that a heartbeat changes nothing.
func TrimNode(n *corev1.Node) {
	kept := corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: n.Name, CreationTimestamp: n.CreationTimestamp, DeletionTimestamp: n.DeletionTimestamp,
	}}
	kept.Spec.Unschedulable = n.Spec.Unschedulable
	for _, t := range n.Spec.Taints {
		if t.Key == corev1.TaintNodeUnschedulable || slices.Contains(leavingTaints, t.Key) {
			kept.Spec.Taints = append(kept.Spec.Taints, t)
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady || c.Type == conditionTerminating {
			c.LastHeartbeatTime = metav1.Time{}
			kept.Status.Conditions = append(kept.Status.Conditions, c)
		}
	}
	*n = kept
}
