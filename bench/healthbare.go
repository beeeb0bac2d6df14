package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
)

// bareHealth is the reference, with the manager's rights and while no manager runs: it sends the manager's patches, of which a
// target's new condition is known beforehand, and reads, decides, counts and tells nothing.
type bareHealth struct {
	fleet   *healthFleet
	workers dynamic.NamespaceableResourceInterface
}

func (b *bench) healthBare(ctx context.Context, fleet *healthFleet, run *healthRun) error {
	workers, err := b.workersAsManager(ctx)
	if err != nil {
		return err
	}
	bare := &bareHealth{fleet, workers}
	before, began := b.usage(), time.Now()
	if err := each(ctx, b.size.workers, bare.first); err != nil {
		return err
	}
	last, err := fleet.await(ctx, health.True, b.size.workers)
	if err != nil {
		return err
	}
	run.fill, run.filling = last.Sub(began), b.usage().since(before)
	stop, err := bare.follow(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(b.flipHealth(ctx, fleet, run), stop()); err != nil {
		return err
	}
	began = time.Now()
	if err := each(ctx, b.size.workers, bare.remove); err != nil {
		return err
	}
	last, err = fleet.await(ctx, "", b.size.workers)
	run.removal = last.Sub(began)
	return err
}

func (b *bench) workersAsManager(ctx context.Context) (dynamic.NamespaceableResourceInterface, error) {
	config, err := b.managerConfig(ctx)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a bare client: %w", err)
	}
	return client.Resource(workersResource), nil
}

// first claims a target's condition and writes it.
func (h *bareHealth) first(ctx context.Context, i int) error {
	claimed, err := h.patch(ctx, h.fleet.target(i), []map[string]any{
		{"op": "test", "path": "/metadata/annotations", "value": nil},
		{"op": "add", "path": "/metadata/annotations", "value": map[string]string{v1alpha1.AnnotationOwnedConditions: healthCondition}},
	})
	if err != nil {
		return err
	}
	return h.write(ctx, claimed, true)
}

// remove takes a target's condition off, and then the claim.
func (h *bareHealth) remove(ctx context.Context, i int) error {
	target := h.fleet.target(i)
	patch, err := health.Removal(target, healthCondition)
	if err != nil {
		return err
	}
	if err := h.send(ctx, target, patch, "status"); err != nil {
		return err
	}
	_, err = h.patch(ctx, target, []map[string]any{{"op": "remove", "path": "/metadata/annotations"}})
	return err
}

func (h *bareHealth) patch(ctx context.Context, target *unstructured.Unstructured, operations []map[string]any) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encode a patch: %w", err)
	}
	after, err := h.workers.Namespace(target.GetNamespace()).Patch(ctx, target.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: "autohealer"})
	if err != nil {
		return nil, fmt.Errorf("patch Worker %s: %w", target.GetName(), err)
	}
	return after, nil
}

func (h *bareHealth) write(ctx context.Context, target *unstructured.Unstructured, healthy bool) error {
	now := time.Now().UTC().Truncate(time.Second)
	c := health.Condition{Type: healthCondition, Status: health.True, Reason: health.ReasonSuccessful, Message: "(3/3) Health checks successful", LastTransition: now, LastUpdate: now}
	if !healthy {
		c.Status, c.Reason = health.False, health.ReasonUnsuccessful
		c.Message = "(2/3) Health checks successful: 1) mcm: " + target.GetNamespace() + "/" + target.GetName() + ": condition Available of Deployment is False (MinimumReplicasUnavailable)"
	}
	patch, err := health.Patch(target, c, health.Gardener)
	if err != nil {
		return err
	}
	return h.send(ctx, target, patch, "status")
}

func (h *bareHealth) send(ctx context.Context, target *unstructured.Unstructured, patch []byte, subresource string) error {
	if _, err := h.workers.Namespace(target.GetNamespace()).Patch(ctx, target.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: "autohealer"}, subresource); err != nil {
		return fmt.Errorf("patch the %s of Worker %s: %w", subresource, target.GetName(), err)
	}
	return nil
}

// follow writes a target's condition whenever a bare watch tells of its Deployment, until it is stopped.
func (h *bareHealth) follow(ctx context.Context) (stop func() error, err error) {
	deployments := h.fleet.bench.clients.AppsV1().Deployments("")
	list, err := deployments.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("list Deployments: %w", err)
	}
	events, err := deployments.Watch(ctx, metav1.ListOptions{LabelSelector: "app=bench", ResourceVersion: list.ResourceVersion})
	if err != nil {
		return nil, fmt.Errorf("watch Deployments: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		var group errgroup.Group
		for event := range events.ResultChan() {
			if deployment, ok := event.Object.(*appsv1.Deployment); ok {
				group.Go(func() error { return h.react(ctx, deployment) })
			}
		}
		ended <- group.Wait()
	}()
	return func() error { events.Stop(); return <-ended }, nil
}

func (h *bareHealth) react(ctx context.Context, deployment *appsv1.Deployment) error {
	i, err := strconv.Atoi(strings.TrimPrefix(deployment.Name, "worker-"))
	if err != nil {
		return fmt.Errorf("a watch tells of Deployment %s: %w", deployment.Name, err)
	}
	healthy := true
	for _, c := range deployment.Status.Conditions {
		healthy = healthy && (c.Type != appsv1.DeploymentAvailable || c.Status == corev1.ConditionTrue)
	}
	return h.write(ctx, h.fleet.target(i), healthy)
}
