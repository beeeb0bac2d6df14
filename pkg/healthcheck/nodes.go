package healthcheck

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/shoots"
)

var (
	worker            = schema.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "Worker"}
	machineDeployment = schema.GroupVersionKind{Group: "machine.sapcloud.io", Version: "v1alpha1", Kind: "MachineDeployment"}
)

// SufficientNodesAvailable checks for a Worker of Gardener's that every node of the shoot is Ready, and that as many can be scheduled on
// as the MachineDeployments beside the Worker want. One that was Ready and isn't is unhealthy, however many others are. Too few, of which
// some haven't registered, start, are cordoned or are being removed, are Progressing for ProgressingThreshold, and so are pools without a
// MachineDeployment. Nodes that the machine-controller-manager doesn't manage aren't looked at, and none are where none is wanted: a shoot
// that is hibernated has no API server.
func SufficientNodesAvailable() func() HealthCheck {
	return func() HealthCheck { return &sufficientNodes{} }
}

type sufficientNodes struct{ seed, shoot client.Client }

// InjectSeedClient takes the client that the Worker and its MachineDeployments are read with.
func (s *sufficientNodes) InjectSeedClient(c client.Client) { s.seed = c }

// InjectShootClient takes the client that nodes are listed with.
func (s *sufficientNodes) InjectShootClient(c client.Client) { s.shoot = c }

// Check compares the Worker's pools and their MachineDeployments with the shoot's nodes.
func (s *sufficientNodes) Check(ctx context.Context, target types.NamespacedName) (*SingleCheckResult, error) {
	w := untyped(worker)
	if err := s.seed.Get(ctx, target, w); err != nil {
		return nil, fmt.Errorf("read the Worker: %w", err)
	}
	pools, _, err := unstructured.NestedSlice(w.Object, "spec", "pools")
	if err != nil {
		return nil, fmt.Errorf("read the Worker's pools: %w", err)
	}
	deployments := &unstructured.UnstructuredList{}
	deployments.SetGroupVersionKind(machineDeployment.GroupVersion().WithKind(machineDeployment.Kind + "List"))
	if err := s.seed.List(ctx, deployments, client.InNamespace(target.Namespace)); err != nil {
		return nil, fmt.Errorf("list the MachineDeployments: %w", err)
	}
	staying := slices.DeleteFunc(deployments.Items, func(d unstructured.Unstructured) bool { return d.GetDeletionTimestamp() != nil })
	if len(pools) > 0 && len(staying) == 0 {
		return resultOf(health.NothingFound(health.MissingProgresses, "there is no MachineDeployment beside the Worker that stays", ProgressingThreshold)), nil
	}
	desired, err := desiredNodes(staying)
	if err != nil {
		return nil, err
	}
	if desired == 0 {
		return resultOf(health.Result{Status: health.True}), nil
	}
	nodes, err := shoots.Nodes(ctx, s.shoot)
	if err != nil {
		return nil, err
	}
	r := health.Nodes(nodes, int(desired))
	if r.Status == health.Progressing {
		r.Timeout = ProgressingThreshold
	}
	return resultOf(r), nil
}

// desiredNodes is what MachineDeployments want together. One without replicas wants none: MachineDeployments that are stored
// leave a zero out.
func desiredNodes(deployments []unstructured.Unstructured) (desired int64, err error) {
	for i := range deployments {
		d := &deployments[i]
		replicas, _, err := unstructured.NestedInt64(d.Object, "spec", "replicas")
		if err != nil {
			return 0, fmt.Errorf("read the replicas of MachineDeployment %s: %w", d.GetName(), err)
		}
		desired += replicas
	}
	return desired, nil
}
