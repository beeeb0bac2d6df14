package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// foreign lets somebody else write a taint of their own to each node at the very moment at which ours is due there, by
// reading and updating the whole node as most controllers do. Its number grows, so that a taint that vanished or went
// back is seen on the watch.
func (b *bench) foreign(ctx context.Context) error {
	n := min(b.size.foreign/2, b.size.nodes)
	b.say("foreign tainter: two writes to each of %d nodes, racing with ours", n)
	for number, problem := range []bool{true, false} {
		err := each(ctx, n, func(ctx context.Context, i int) error {
			if err := b.flip(ctx, i, problem); err != nil {
				return err
			}
			return b.mark(ctx, b.nodes[i], number+1)
		})
		if err != nil {
			return err
		}
		want := 0
		if problem {
			want = n
		}
		if _, err := b.sight.awaitTainted(ctx, want); err != nil {
			return err
		}
	}
	lost, err := b.lostMarks(ctx, n)
	b.report.absolute(row{what: fmt.Sprintf("foreign tainter: %d of its writes racing with %d of ours, lost", 2*n, 2*n),
		ours: fmt.Sprint(lost), goal: "0", reached: err == nil && lost == 0})
	return err
}

// mark writes the foreign taint's number.
func (b *bench) mark(ctx context.Context, name string, number int) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := b.clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		taints := slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == foreignKey })
		node.Spec.Taints = append(taints, corev1.Taint{Key: foreignKey, Value: strconv.Itoa(number), Effect: corev1.TaintEffectPreferNoSchedule})
		_, err = b.clients.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("write a foreign taint to node %s: %w", name, err)
	}
	return nil
}

// lostMarks counts foreign taints that went missing on the way or aren't there in the end.
func (b *bench) lostMarks(ctx context.Context, marked int) (int, error) {
	lost := b.sight.lostMarks()
	for _, name := range b.nodes[:marked] {
		node, err := b.clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return 0, fmt.Errorf("read node %s: %w", name, err)
		}
		if markOf(node) != 2 {
			lost++
		}
	}
	return lost, nil
}

func markOf(node *corev1.Node) int {
	for _, taint := range node.Spec.Taints {
		if taint.Key == foreignKey {
			number, _ := strconv.Atoi(taint.Value) // the foreign tainter writes numbers
			return number
		}
	}
	return 0
}
