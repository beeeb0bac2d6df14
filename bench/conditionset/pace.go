package conditionset

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/bench/report"
	"github.com/resourcestack/autohealer/bench/testbed"
	"github.com/resourcestack/autohealer/e2e/cluster"
)

const (
	flipsPerSecond      = 20
	heartbeatsPerSecond = 50
)

// Trickle flips nodes at an even pace, whatever becomes of those before: problems in the first half, recoveries in the second. The
// latency runs from the API server's answer to the flip until the watch shows the taint come or go.
func (b *Bench) Trickle(ctx context.Context) error {
	n := min(int(b.TrickleFor.Seconds())*flipsPerSecond/2, b.Nodes)
	b.Say("trickle: %d flips and %d recoveries, %d a second", n, n, flipsPerSecond)
	before, began := b.Usage(), time.Now()
	var latencies, flips []time.Duration
	for _, problem := range []bool{true, false} {
		answered, took, err := testbed.Timed(ctx, n, flipsPerSecond, func(ctx context.Context, i int) error { return b.flip(ctx, i, problem) })
		if err != nil {
			return err
		}
		if _, err := b.awaitTainted(ctx, n, problem); err != nil {
			return err
		}
		flips = append(flips, took...)
		for i, at := range answered {
			latencies = append(latencies, max(0, b.watch.Get(nodeName(i)).At.Sub(at))) // a taint can be visible before the flip's answer is read
		}
	}
	p50, p99 := report.Quantile(latencies, .5), report.Quantile(latencies, .99)
	b.Report.Checked(fmt.Sprintf("trickle: %d flips/s, flip acknowledged → taint on a watch, p50", flipsPerSecond), report.Milliseconds(p50), "< 25 ms", p50 < 25*time.Millisecond)
	b.Report.Checked("the same, p99", report.Milliseconds(p99), "< 150 ms", p99 < 150*time.Millisecond)
	b.Report.Value("for comparison, the flips' own requests: p50 and p99", report.P50P99(flips))
	b.Report.CostPerSecond("trickle", b.Usage().Since(before), time.Since(began))
	return nil
}

// Heartbeats renews conditions that stay as they are. Nothing may be written for that.
func (b *Bench) Heartbeats(ctx context.Context) error {
	n := int(b.HeartbeatsFor.Seconds()) * heartbeatsPerSecond
	b.Say("heartbeats only: %d a second for %s", heartbeatsPerSecond, b.HeartbeatsFor)
	transitions, err := b.transitions(ctx)
	if err != nil {
		return err
	}
	since, err := b.AwaitNoWrites(ctx)
	if err != nil {
		return err
	}
	before, began := b.Usage(), time.Now()
	err = testbed.Paced(ctx, n, heartbeatsPerSecond, func(ctx context.Context, i int) error {
		node := i % b.Nodes
		return b.SetCondition(ctx, nodeName(node), b.ownType(node), corev1.ConditionFalse, cluster.ConditionOptions{
			Reason: "AsExpected", Message: "reported by the benchmark", Transition: transitions[nodeName(node)],
		})
	})
	if err != nil {
		return err
	}
	spent, took := b.Usage().Since(before), time.Since(began)
	writes, err := b.Writes(since)
	if err != nil {
		return err
	}
	b.Report.Checked(fmt.Sprintf("heartbeats only: %d/s for %s, the manager's writes to nodes and sets", heartbeatsPerSecond, b.HeartbeatsFor),
		fmt.Sprint(len(writes)), "0", len(writes) == 0)
	b.Report.CostPerSecond("heartbeats", spent, took)
	return nil
}

// transitions are the times at which each node's own condition last changed, which a heartbeat keeps.
func (b *Bench) transitions(ctx context.Context) (map[string]time.Time, error) {
	nodes, err := b.Clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	own := map[string]corev1.NodeConditionType{}
	for i := range b.Nodes {
		own[nodeName(i)] = b.ownType(i)
	}
	at := map[string]time.Time{}
	for _, node := range nodes.Items {
		for _, c := range node.Status.Conditions {
			if c.Type == own[node.Name] {
				at[node.Name] = c.LastTransitionTime.Time
			}
		}
	}
	return at, nil
}
