package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	taintUnschedulable = "node.kubernetes.io/unschedulable"
	// joining is how long after its creation a node's first Ready condition may be set.
	joining = time.Minute
)

// Nodes is healthy when at least so many nodes are Ready and can be scheduled on, those that are being deleted aside. Too few
// that have registered are Progressing, because nodes come and go as a cluster is scaled; so are those that start.
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
	ready := readiness(n)
	switch {
	case n.DeletionTimestamp != nil:
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

func readiness(n *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
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
	return n.Spec.Unschedulable || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintUnschedulable })
}

func someOf(names []string) string {
	slices.Sort(names)
	const most = 5
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
