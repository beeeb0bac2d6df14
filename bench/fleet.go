package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
)

const (
	keyPrefix  = "bench.example.com/"
	foreignKey = "foreign.example.com/mark"
	// writers is how many requests run at once, as many as the manager has workers.
	writers = 16
	// typesPerNode is how many of the sets' condition types each node reports, about as many as node-problem-detector does.
	typesPerNode = 10
)

func conditionType(set int) corev1.NodeConditionType {
	return corev1.NodeConditionType(fmt.Sprintf("BenchProblem%02d", set))
}

func setName(set int) string { return fmt.Sprintf("bench-%02d", set) }

// each does something for 0 to n-1, `writers` at once.
func each(ctx context.Context, n int, do func(context.Context, int) error) error {
	return eachOf(ctx, writers, n, do)
}

func eachOf(ctx context.Context, atOnce, n int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// addNodes creates nodes that nothing plays: only the benchmark writes their status. Each reports Kubernetes' own
// conditions and ten of the sets'.
func (b *bench) addNodes(ctx context.Context) error {
	b.nodes = make([]string, b.size.nodes)
	return each(ctx, b.size.nodes, func(ctx context.Context, i int) error {
		b.nodes[i] = fmt.Sprintf("node-%d", i)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.nodes[i], Labels: map[string]string{
			corev1.LabelHostname: b.nodes[i], corev1.LabelOSStable: "linux", corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%4),
		}}}
		if _, err := b.clients.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node %s: %w", b.nodes[i], err)
		}
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": b.healthy(i)}})
		if err != nil {
			return fmt.Errorf("encode conditions: %w", err)
		}
		if _, err := b.clients.CoreV1().Nodes().Patch(ctx, b.nodes[i], types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return fmt.Errorf("report the conditions of node %s: %w", b.nodes[i], err)
		}
		return nil
	})
}

func (b *bench) healthy(node int) (conditions []corev1.NodeCondition) {
	now := metav1.Now()
	report := func(t corev1.NodeConditionType, status corev1.ConditionStatus) {
		conditions = append(conditions, corev1.NodeCondition{Type: t, Status: status, Reason: "AsExpected",
			Message: "reported by the benchmark", LastHeartbeatTime: now, LastTransitionTime: now})
	}
	report(corev1.NodeReady, corev1.ConditionTrue)
	for _, t := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		report(t, corev1.ConditionFalse)
	}
	for i := range typesPerNode {
		report(conditionType((node+i)%b.size.sets), corev1.ConditionFalse)
	}
	return conditions
}

// flip reports a node's own condition as a problem, or as none. Node i's own is that of set i modulo the number of sets,
// so that all nodes together flip 2% for each of 50 sets: no breaker opens.
func (b *bench) flip(ctx context.Context, node int, problem bool) error {
	status := corev1.ConditionFalse
	if problem {
		status = corev1.ConditionTrue
	}
	now := time.Now()
	return b.SetCondition(ctx, b.nodes[node], conditionType(node%b.size.sets), status, cluster.ConditionOptions{
		Reason: "Flipped", Message: "reported by the benchmark", Heartbeat: now, Transition: now,
	})
}

// flipAll flips nodes [from, to).
func (b *bench) flipAll(ctx context.Context, from, to int, problem bool) error {
	return each(ctx, to-from, func(ctx context.Context, i int) error { return b.flip(ctx, from+i, problem) })
}

// addSets creates one set for each condition type and waits until all are in force. PreferNoSchedule, because the limits
// that ship hold back other effects at a tenth of the nodes, and the storm is about the speed without that.
func (b *bench) addSets(ctx context.Context) error {
	err := each(ctx, b.size.sets, func(ctx context.Context, i int) error {
		return b.Client.Create(ctx, conditionSet(setName(i), i))
	})
	if err != nil {
		return fmt.Errorf("create the sets: %w", err)
	}
	_, err = b.Kubectl(ctx, "wait", "--for=condition=Ready", "--timeout=60s", "conditionset", "--all")
	return err
}

func conditionSet(name string, i int) *v1alpha1.ConditionSet {
	return &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ConditionSetSpec{
		Type: string(conditionType(i)), Effect: corev1.TaintEffectPreferNoSchedule, TaintKey: keyPrefix + string(conditionType(i)),
		Conditions: map[string]v1alpha1.MemberCondition{string(conditionType(i)): {Status: v1alpha1.RequiredStatus{JSON: "true"}}},
		StaleAfter: "2h", // nobody renews the heartbeats between the scenarios
	}}
}

// newSet is one that no stored set resembles, so that admission has nothing to warn of.
func newSet() *v1alpha1.ConditionSet {
	cs := conditionSet("new", 7)
	cs.APIVersion, cs.Kind = v1alpha1.GroupVersion.String(), "ConditionSet"
	cs.Spec.Type, cs.Spec.TaintKey = "BenchNew", keyPrefix+"BenchNew"
	cs.Spec.Conditions[string(conditionType(8))] = v1alpha1.MemberCondition{Status: v1alpha1.RequiredStatus{JSON: `"Unknown"`}}
	return cs
}

// setMode turns all sets to a mode; Observe undoes what they did.
func (b *bench) setMode(ctx context.Context, mode v1alpha1.Mode) error {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"mode":%q}}`, mode))
	return each(ctx, b.size.sets, func(ctx context.Context, i int) error {
		return b.Client.Patch(ctx, &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: setName(i)}}, patch)
	})
}
