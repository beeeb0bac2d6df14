package conditionset

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/resourcestack/autohealer/bench/testbed"
)

const foreignKey = "foreign.example.com/mark"

// Foreign lets somebody else write a taint of their own to each node at the very moment at which ours is due there, by
// reading and updating the whole node as most controllers do. Its number grows, so that a taint that vanished or went
// back is seen on the watch.
func (b *Bench) Foreign(ctx context.Context) error {
	n := min(b.ForeignWrites/2, b.Nodes)
	b.Say("foreign tainter: two writes to each of %d nodes, racing with ours", n)
	for number, problem := range []bool{true, false} {
		err := testbed.Each(ctx, n, func(ctx context.Context, i int) error {
			if err := b.flip(ctx, i, problem); err != nil {
				return err
			}
			return b.mark(ctx, nodeName(i), number+1)
		})
		if err != nil {
			return err
		}
		if _, err := b.awaitTainted(ctx, n, problem); err != nil {
			return err
		}
	}
	lost, err := b.lostMarks(ctx, n)
	b.Report.Checked(fmt.Sprintf("foreign tainter: %d of its writes racing with %d of ours, lost", 2*n, 2*n), fmt.Sprint(lost), "0", err == nil && lost == 0)
	return err
}

// mark writes the foreign taint's number.
func (b *Bench) mark(ctx context.Context, name string, number int) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := b.Clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		taints := slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == foreignKey })
		node.Spec.Taints = append(taints, corev1.Taint{Key: foreignKey, Value: strconv.Itoa(number), Effect: corev1.TaintEffectPreferNoSchedule})
		_, err = b.Clients.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("write a foreign taint to node %s: %w", name, err)
	}
	return nil
}

// lostMarks counts foreign taints that went missing on the way or aren't there in the end.
func (b *Bench) lostMarks(ctx context.Context, marked int) (int, error) {
	lost := int(b.lost.Load())
	for i := range marked {
		node, err := b.Clients.CoreV1().Nodes().Get(ctx, nodeName(i), metav1.GetOptions{})
		if err != nil {
			return 0, fmt.Errorf("read node %s: %w", nodeName(i), err)
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
