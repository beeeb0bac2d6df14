// Package conditionset measures taints: how soon one follows a condition, how many a second come and go at once, against a bare loop that
// sends the manager's own patches, that nothing is written without need, and that no taint of others is lost.
//
// Begin at Prepare, which makes the nodes and sets that all measurements run beside. Nothing plays these nodes: only the benchmark writes
// their status.
package conditionset

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/bench/testbed"
	"github.com/resourcestack/autohealer/e2e/cluster"
)

const (
	// KeyPrefix of the sets' taints.
	KeyPrefix = "bench.example.com/"
	// TypesPerNode is how many of the sets' condition types each node reports, about as many as node-problem-detector does.
	TypesPerNode = 10
)

// Bench measures ConditionSets, each over a condition type of its own.
type Bench struct {
	*testbed.Bed
	Nodes, Sets int
	// ForeignWrites are made by the foreign tainter.
	ForeignWrites             int
	TrickleFor, HeartbeatsFor time.Duration

	renewed int // how often the sets were made anew

	watch *testbed.Watch[*corev1.Node, bool] // whether nodes have taints of the sets
	lost  atomic.Int64                       // foreign taints that vanished from the watch or went back to an earlier value
}

// ConditionType is that of a set.
func ConditionType(set int) corev1.NodeConditionType {
	return corev1.NodeConditionType(fmt.Sprintf("BenchProblem%02d", set))
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

func (b *Bench) setName(i int) string { return fmt.Sprintf("bench-%02d-%d", i, b.renewed) }

// Prepare makes nodes, starts a manager, and makes sets.
func (b *Bench) Prepare(ctx context.Context) (err error) {
	b.Say("%d nodes, %d sets", b.Nodes, b.Sets)
	if err := testbed.Each(ctx, b.Nodes, b.addNode); err != nil {
		return err
	}
	marks := map[string]int{}
	if b.watch, err = testbed.StartWatch(ctx, informers.NewNodeInformer(b.Clients, 0, cache.Indexers{}), func(node *corev1.Node) (tainted bool) {
		mark := markOf(node)
		if mark < marks[node.Name] {
			b.lost.Add(1)
		}
		marks[node.Name] = mark
		return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return strings.HasPrefix(t.Key, KeyPrefix) })
	}); err != nil {
		return err
	}
	if err := b.StartManager(ctx); err != nil {
		return err
	}
	return b.addSets(ctx)
}

// addNode makes a node that reports Kubernetes' own conditions and ten of the sets'.
func (b *Bench) addNode(ctx context.Context, i int) error {
	name := nodeName(i)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%4),
	}}}
	if _, err := b.Clients.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create node %s: %w", name, err)
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": b.healthy(i)}})
	if err != nil {
		return fmt.Errorf("encode conditions: %w", err)
	}
	if _, err := b.Clients.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("report the conditions of node %s: %w", name, err)
	}
	return nil
}

func (b *Bench) healthy(node int) (conditions []corev1.NodeCondition) {
	now := metav1.Now()
	report := func(t corev1.NodeConditionType, status corev1.ConditionStatus) {
		conditions = append(conditions, corev1.NodeCondition{Type: t, Status: status, Reason: "AsExpected",
			Message: "reported by the benchmark", LastHeartbeatTime: now, LastTransitionTime: now})
	}
	report(corev1.NodeReady, corev1.ConditionTrue)
	for _, t := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		report(t, corev1.ConditionFalse)
	}
	for i := range TypesPerNode {
		report(ConditionType((node+i)%b.Sets), corev1.ConditionFalse)
	}
	return conditions
}

// ownType is the condition type that a node flips. Node i's is that of set i modulo the number of sets, so that all nodes together
// flip 2% for each of 50 sets: no breaker opens.
func (b *Bench) ownType(node int) corev1.NodeConditionType { return ConditionType(node % b.Sets) }

// flip reports a node's own condition as a problem, or as none.
func (b *Bench) flip(ctx context.Context, node int, problem bool) error {
	status := corev1.ConditionFalse
	if problem {
		status = corev1.ConditionTrue
	}
	now := time.Now()
	return b.SetCondition(ctx, nodeName(node), b.ownType(node), status, cluster.ConditionOptions{
		Reason: "Flipped", Message: "reported by the benchmark", Heartbeat: now, Transition: now,
	})
}

// flipAll flips nodes [from, to).
func (b *Bench) flipAll(ctx context.Context, from, to int, problem bool) error {
	return testbed.Each(ctx, to-from, func(ctx context.Context, i int) error { return b.flip(ctx, from+i, problem) })
}

// awaitTainted waits until of n nodes that were flipped all are seen with taints of the sets, or none, and no others are.
func (b *Bench) awaitTainted(ctx context.Context, n int, problem bool) (last time.Time, err error) {
	if !problem {
		n = 0
	}
	return b.watch.Await(ctx, true, n)
}

// addSets creates one set for each condition type and waits until all are in force. PreferNoSchedule, because the limits
// that ship hold back other effects at a tenth of the nodes, and the storm is about the speed without that.
func (b *Bench) addSets(ctx context.Context) error {
	err := testbed.Each(ctx, b.Sets, func(ctx context.Context, i int) error { return b.Client.Create(ctx, Set(b.setName(i), i)) })
	if err != nil {
		return fmt.Errorf("create the sets: %w", err)
	}
	_, err = b.Kubectl(ctx, "wait", "--for=condition=Ready", "--timeout=60s", "conditionset", "--all")
	return err
}

// renewSets makes the sets anew under other names, for which no node flaps yet: the third taint of a node within an hour would stay for
// a minute after its recovery, the fourth for two.
func (b *Bench) renewSets(ctx context.Context) error {
	if _, err := b.Kubectl(ctx, "delete", "conditionset", "--all", "--timeout=60s"); err != nil {
		return err
	}
	b.renewed++
	return b.addSets(ctx)
}

// Set is one over the i-th condition type.
func Set(name string, i int) *v1alpha1.ConditionSet {
	return &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ConditionSetSpec{
		Type: string(ConditionType(i)), Effect: corev1.TaintEffectPreferNoSchedule, TaintKey: KeyPrefix + string(ConditionType(i)),
		Conditions: map[string]v1alpha1.MemberCondition{string(ConditionType(i)): {Status: v1alpha1.RequiredStatus{JSON: "true"}}},
		StaleAfter: "2h", // nobody renews the heartbeats between the measurements
	}}
}

var modes = map[bool]v1alpha1.Mode{true: v1alpha1.Enforce, false: v1alpha1.Observe}

// enforce has all sets enforce or observe, which undoes what they did.
func (b *Bench) enforce(ctx context.Context, enforce bool) error {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"mode":%q}}`, modes[enforce]))
	return testbed.Each(ctx, b.Sets, func(ctx context.Context, i int) error {
		return b.Client.Patch(ctx, &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: b.setName(i)}}, patch)
	})
}
