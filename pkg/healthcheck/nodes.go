package healthcheck

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

var worker = schema.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "Worker"}

// SufficientNodesAvailable checks for a Worker of Gardener's that at least as many nodes of the shoot as its pools' minimums
// together are Ready, and not cordoned. Too few that have registered are Progressing for ProgressingThreshold.
func SufficientNodesAvailable() func() HealthCheck {
	return func() HealthCheck { return &sufficientNodes{} }
}

type sufficientNodes struct{ seed, shoot client.Client }

// InjectSeedClient takes the client that the Worker is read with.
func (s *sufficientNodes) InjectSeedClient(c client.Client) { s.seed = c }

// InjectShootClient takes the client that nodes are listed with.
func (s *sufficientNodes) InjectShootClient(c client.Client) { s.shoot = c }

// Check compares the Worker's pools with the shoot's nodes.
func (s *sufficientNodes) Check(ctx context.Context, target types.NamespacedName) (*SingleCheckResult, error) {
	w := untyped(worker)
	if err := s.seed.Get(ctx, target, w); err != nil {
		return nil, fmt.Errorf("read the Worker: %w", err)
	}
	least, err := leastNodes(w)
	if err != nil {
		return nil, err
	}
	var list corev1.NodeList
	// From the API server's memory: nodes of a moment ago do, and the list may be long.
	if err := s.shoot.List(ctx, &list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return nil, fmt.Errorf("list the shoot's nodes: %w", err)
	}
	nodes := make([]*corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	r := health.Nodes(nodes, least)
	if r.Status == health.Progressing {
		r.Timeout = ProgressingThreshold
	}
	return resultOf(r), nil
}

// leastNodes is the sum of the pools' minimums.
func leastNodes(w *unstructured.Unstructured) (int, error) {
	pools, _, err := unstructured.NestedSlice(w.Object, "spec", "pools")
	if err != nil {
		return 0, fmt.Errorf("read the Worker's pools: %w", err)
	}
	var sum int64
	for _, p := range pools {
		pool, ok := p.(map[string]any)
		if !ok {
			return 0, fmt.Errorf("read the Worker's pools: one is a %T", p)
		}
		minimum, _, err := unstructured.NestedInt64(pool, "minimum")
		if err != nil {
			return 0, fmt.Errorf("read a pool's minimum: %w", err)
		}
		sum += minimum
	}
	return int(sum), nil
}
