package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

const heartbeatsPerSecond = 50

// heartbeats renews conditions that stay as they are. Nothing may be written for that.
func (b *bench) heartbeats(ctx context.Context) error {
	n := int(b.size.heartbeats.Seconds()) * heartbeatsPerSecond
	b.say("heartbeats only: %d a second for %s", heartbeatsPerSecond, b.size.heartbeats)
	transitions, err := b.transitions(ctx)
	if err != nil {
		return err
	}
	since, err := b.quiet(ctx)
	if err != nil {
		return err
	}
	before, began := b.usage(), time.Now()
	err = paced(ctx, n, heartbeatsPerSecond, func(ctx context.Context, i int) error {
		node := i % b.size.nodes
		return b.SetCondition(ctx, b.nodes[node], conditionType(node%b.size.sets), corev1.ConditionFalse, cluster.ConditionOptions{
			Reason: "AsExpected", Message: "reported by the benchmark", Transition: transitions[b.nodes[node]],
		})
	})
	if err != nil {
		return err
	}
	spent, took := b.usage().since(before), time.Since(began)
	writes, err := b.managerWrites(since)
	if err != nil {
		return err
	}
	b.report.absolute(row{what: fmt.Sprintf("heartbeats only: %d/s for %s, the manager's writes to nodes and sets", heartbeatsPerSecond, b.size.heartbeats),
		ours: fmt.Sprint(len(writes)), goal: "0", reached: len(writes) == 0})
	b.report.perSecond("heartbeats", spent, took)
	return nil
}

// transitions are the times at which each node's own condition last changed, which a heartbeat keeps.
func (b *bench) transitions(ctx context.Context) (map[string]time.Time, error) {
	nodes, err := b.clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	at := map[string]time.Time{}
	own := map[string]corev1.NodeConditionType{}
	for i, name := range b.nodes {
		own[name] = conditionType(i % b.size.sets)
	}
	for i := range nodes.Items {
		for _, c := range nodes.Items[i].Status.Conditions {
			if c.Type == own[nodes.Items[i].Name] {
				at[nodes.Items[i].Name] = c.LastTransitionTime.Time
			}
		}
	}
	return at, nil
}
