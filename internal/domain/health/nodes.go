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
	// annotationUnmanaged is "1" on nodes that Gardener's machine-controller-manager didn't make, and doesn't care for.
	annotationUnmanaged = "node.machine.sapcloud.io/not-managed-by-mcm"
	// conditionTerminating is what Gardener's machine-controller-manager sets before it drains a node that goes.
	conditionTerminating = corev1.NodeConditionType("Terminating")
	// joinGrace is how long after its creation a node's first Ready condition may be set.
	joinGrace = time.Minute
)

// leavingTaints are those of nodes that an autoscaler takes away.
var leavingTaints = []string{"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"}

// Nodes is healthy when every node is Ready, and at least so many can be scheduled on. One that was Ready and isn't makes it unhealthy,
// however many others are. Too few of them are Progressing, because nodes come, go and are cordoned as a cluster is scaled and
// maintained; so are those that start. Nodes that are being taken away count as not there, and so do those that no machine controller manages.
func Nodes(nodes []*corev1.Node, least int) Result {
	by := map[string][]string{}
	for _, n := range nodes {
		state := stateOf(n)
		by[state] = append(by[state], n.Name)
	}
	available, broken, starting := len(by[nodeAvailable]), len(by[nodeBroken]), len(by[nodeStarting])
	if available >= least && broken+starting == 0 {
		return healthy()
	}
	detail := fmt.Sprintf("%d of at least %d nodes are available", available, least)
	for _, state := range []string{nodeBroken, nodeCordoned, nodeStarting, nodeLeaving} {
		if names := by[state]; len(names) > 0 {
			detail += "; " + state + ": " + sampleNames(names)
		}
	}
	if missing := least - available - broken - starting - len(by[nodeCordoned]); missing > 0 {
		detail += fmt.Sprintf("; not registered: %d", missing)
	}
	if broken > 0 {
		return unhealthy(detail)
	}
	return progressing(detail)
}

// What a node is to a cluster that needs it.
const (
	nodeUnmanaged = "not managed"
	nodeLeaving   = "being removed"
	nodeStarting  = "starting"
	nodeAvailable = "available"
	nodeCordoned  = "cordoned"
	nodeBroken    = "not ready"
)

func stateOf(n *corev1.Node) string {
	ready := conditionOf(n, corev1.NodeReady)
	switch {
	case n.Annotations[annotationUnmanaged] == "1":
		return nodeUnmanaged
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
	return ready.LastTransitionTime.Sub(n.CreationTimestamp.Time) > joinGrace
}

func isCordoned(n *corev1.Node) bool {
	return n.Spec.Unschedulable || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
}

func sampleNames(names []string) string {
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
	if unmanaged, annotated := n.Annotations[annotationUnmanaged]; annotated {
		kept.Annotations = map[string]string{annotationUnmanaged: unmanaged}
	}
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
