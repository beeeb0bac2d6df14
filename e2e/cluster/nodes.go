package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// writers is how many requests run at once when many nodes are written; more gains nothing on one API server.
const writers = 32

// NodeOptions describe nodes to add.
type NodeOptions struct {
	// Prefix of the names; a number follows that goes on from the nodes added before. Default: "node".
	Prefix string
	// Zones is over how many zones (zone-1, zone-2, …) the nodes are spread in turn. Default 0: no zone label.
	Zones int
	// ControlPlane gives the nodes the role label and the taint that kubeadm gives to control-plane nodes.
	ControlPlane bool
	// Labels are added to each node.
	Labels map[string]string
}

// AddNodes creates n nodes and gives their names once they are Ready, and without the taint of new nodes. kwok plays
// them if it runs; else this writes their status once.
func (c *Cluster) AddNodes(ctx context.Context, n int, o NodeOptions) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute+time.Duration(n)*50*time.Millisecond)
	defer cancel()
	nodes := c.newNodes(n, o)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	names := make([]string, 0, n)
	for _, node := range nodes {
		names = append(names, node.Name)
		group.Go(func() error { return c.addNode(groupCtx, node) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return names, c.waitNodesReady(ctx, names)
}

func (c *Cluster) newNodes(n int, o NodeOptions) []*corev1.Node {
	if o.Prefix == "" {
		o.Prefix = "node"
	}
	c.mu.Lock()
	first := c.nodeCount[o.Prefix]
	c.nodeCount[o.Prefix] += n
	c.mu.Unlock()
	nodes := make([]*corev1.Node, 0, n)
	for i := first; i < first+n; i++ {
		name := fmt.Sprintf("%s-%d", o.Prefix, i)
		labels := map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if o.Zones > 0 {
			labels[corev1.LabelTopologyZone] = fmt.Sprintf("zone-%d", i%o.Zones+1)
		}
		if o.ControlPlane {
			labels["node-role.kubernetes.io/control-plane"] = ""
			node.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
		}
		maps.Copy(labels, o.Labels)
		nodes = append(nodes, node)
	}
	return nodes
}

func (c *Cluster) addNode(ctx context.Context, node *corev1.Node) error {
	created, err := c.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create node %s: %w", node.Name, err)
	}
	if c.hasKwok {
		return nil
	}
	now := metav1.Now()
	created.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}}
	created.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("500"),
	}
	created.Status.Allocatable = created.Status.Capacity
	patch, err := json.Marshal(map[string]any{"status": created.Status})
	if err != nil {
		return fmt.Errorf("encode the status of node %s: %w", node.Name, err)
	}
	return c.patchNodeStatus(ctx, node.Name, patch)
}

func (c *Cluster) waitNodesReady(ctx context.Context, names []string) error {
	pending := make(map[string]bool, len(names))
	for _, name := range names {
		pending[name] = true
	}
	nodes := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.client.CoreV1().Nodes().List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.client.CoreV1().Nodes().Watch(ctx, o)
		},
	}, c.client)
	allReady := func(event watch.Event) (bool, error) {
		if node, ok := event.Object.(*corev1.Node); ok && usable(node) {
			delete(pending, node.Name)
		}
		return len(pending) == 0, nil
	}
	if len(pending) == 0 {
		return nil
	}
	if _, err := watchtools.UntilWithSync(ctx, nodes, &corev1.Node{}, nil, allReady); err != nil {
		waiting := slices.Sorted(maps.Keys(pending))
		return fmt.Errorf("wait for %d of %d nodes to be Ready and untainted (%v …): %w",
			len(waiting), len(names), waiting[:min(3, len(waiting))], errors.Join(err, ctx.Err()))
	}
	return nil
}

// usable: Ready, and the control plane has taken away the taint of new nodes.
func usable(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady {
			return false
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// ConditionOptions are the parts of a node condition that a reporter may leave to SetCondition.
type ConditionOptions struct {
	Reason, Message string
	// Heartbeat defaults to now.
	Heartbeat time.Time
	// Transition defaults to what the node has if the status doesn't change, else to now; this costs a read of the node.
	Transition time.Time
}

// SetCondition writes one condition of a node's status the way node-problem-detector does: a strategic merge patch of
// the status subresource with that condition alone.
func (c *Cluster) SetCondition(ctx context.Context, node string, conditionType corev1.NodeConditionType, status corev1.ConditionStatus, o ConditionOptions) error {
	condition := corev1.NodeCondition{
		Type: conditionType, Status: status, Reason: o.Reason, Message: o.Message,
		LastHeartbeatTime: metav1.NewTime(o.Heartbeat), LastTransitionTime: metav1.NewTime(o.Transition),
	}
	if o.Heartbeat.IsZero() {
		condition.LastHeartbeatTime = metav1.Now()
	}
	if o.Transition.IsZero() {
		transition, err := c.transition(ctx, node, condition)
		if err != nil {
			return err
		}
		condition.LastTransitionTime = transition
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{condition}}})
	if err != nil {
		return fmt.Errorf("encode condition %s: %w", conditionType, err)
	}
	return c.patchNodeStatus(ctx, node, patch)
}

// Label sets a node's label, or with "" takes it off. It is a change in any case: of two writes that give one version nobody can tell which
// changed nothing.
func (c *Cluster) Label(ctx context.Context, node, label, value string) error {
	text := "null"
	if value != "" {
		text = strconv.Quote(value)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s},"annotations":{"e2e.example.com/labelled":"%d"}}}`, label, text, c.labelled.Add(1))
	if _, err := c.client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("label node %s: %w", node, err)
	}
	return nil
}

func (c *Cluster) transition(ctx context.Context, name string, next corev1.NodeCondition) (metav1.Time, error) {
	node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return metav1.Time{}, fmt.Errorf("get node %s: %w", name, err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == next.Type && condition.Status == next.Status {
			return condition.LastTransitionTime, nil
		}
	}
	return next.LastHeartbeatTime, nil
}

func (c *Cluster) patchNodeStatus(ctx context.Context, name string, patch []byte) error {
	_, err := c.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patch the status of node %s: %w", name, err)
	}
	return nil
}
