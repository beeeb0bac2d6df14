// Package playground is the cluster of `make run`, on which the pages of the documentation can be followed.
package playground

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

const (
	// Workers are its nodes.
	Workers   = 40
	zones     = 4
	heartbeat = time.Minute
)

// reported are the conditions that the playground reports in node-problem-detector's place: kwok's nodes run none.
var reported = []corev1.NodeConditionType{"KernelDeadlock", "ReadonlyFilesystem", "KubeletUnhealthy", "ContainerRuntimeUnhealthy"}

// Prepare adds nodes, healthy by every reporter, and workloads; it gives the nodes' names.
func Prepare(ctx context.Context, h *harness.Harness) ([]string, error) {
	nodes, err := h.AddNodes(ctx, Workers, cluster.NodeOptions{Zones: zones})
	if err != nil {
		return nil, err
	}
	for _, name := range nodes {
		for _, condition := range reported {
			if err := h.SetCondition(ctx, name, condition, corev1.ConditionFalse, cluster.ConditionOptions{Reason: "NoProblem"}); err != nil {
				return nil, err
			}
		}
	}
	for _, args := range [][]string{
		{"create", "deployment", "web", "--image=web", "--replicas=60"},
		// What config/samples/tenant is about: a Service, and what depends on it.
		{"create", "deployment", "database", "--image=database"},
		{"expose", "deployment", "database", "--port=5432"},
		{"create", "deployment", "shop", "--image=shop", "--replicas=3"},
		{"wait", "--for=condition=Available", "--timeout=90s", "deployment", "--all"},
	} {
		if _, err := h.Kubectl(ctx, args...); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// Report renews the nodes' heartbeats as a living reporter does, and leaves every status as it is, until the context ends.
func Report(ctx context.Context, h *harness.Harness, nodes []string) {
	for tick := time.Tick(heartbeat); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		for _, name := range nodes {
			var node corev1.Node
			if h.Client.Get(ctx, types.NamespacedName{Name: name}, &node) != nil {
				continue // the node is gone, or we stop
			}
			for _, c := range node.Status.Conditions {
				if slices.Contains(reported, c.Type) {
					_ = h.SetCondition(ctx, name, c.Type, c.Status, cluster.ConditionOptions{Reason: c.Reason, Transition: c.LastTransitionTime.Time}) // the next heartbeat makes up for it
				}
			}
		}
	}
}
