package healthcheckregistration

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
	"github.com/resourcestack/autohealer/bench/testbed"
	"github.com/resourcestack/autohealer/internal/domain/health"
)

// bareLoop is the reference, with the manager's rights and while no manager runs: it sends the manager's patches, of which a target's new
// condition is known beforehand, and reads, decides, counts and reports nothing.
type bareLoop struct {
	*workers
	asManager dynamic.NamespaceableResourceInterface
}

func (b *Bench) measureBare(ctx context.Context, workers *workers, into *figures) error {
	config, err := b.ManagerConfig(ctx)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a bare client: %w", err)
	}
	loop := &bareLoop{workers, client.Resource(workersResource)}
	before, began := b.Usage(), time.Now()
	if err := testbed.Each(ctx, b.Workers, loop.first); err != nil {
		return err
	}
	last, err := workers.Await(ctx, health.True, b.Workers)
	if err != nil {
		return err
	}
	into.fill, into.filling = last.Sub(began), b.Usage().Since(before)
	stop, err := loop.follow(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(b.flip(ctx, workers, into), stop()); err != nil {
		return err
	}
	began = time.Now()
	if err := testbed.Each(ctx, b.Workers, loop.remove); err != nil {
		return err
	}
	last, err = workers.Await(ctx, "", b.Workers)
	into.removal = last.Sub(began)
	return err
}

// first claims a target's condition and writes it.
func (l *bareLoop) first(ctx context.Context, i int) error {
	claimed, err := l.patch(ctx, l.target(i), []map[string]any{
		{"op": "test", "path": "/metadata/annotations", "value": nil},
		{"op": "add", "path": "/metadata/annotations", "value": map[string]string{v1alpha1.AnnotationOwnedConditions: conditionType}},
	})
	if err != nil {
		return err
	}
	return l.write(ctx, claimed, true)
}

// remove takes a target's condition off, and then the claim.
func (l *bareLoop) remove(ctx context.Context, i int) error {
	target := l.target(i)
	patch, err := health.RemovalPatch(target, conditionType)
	if err != nil {
		return err
	}
	if _, err := l.send(ctx, target, patch, "status"); err != nil {
		return err
	}
	_, err = l.patch(ctx, target, []map[string]any{{"op": "remove", "path": "/metadata/annotations"}})
	return err
}

func (l *bareLoop) patch(ctx context.Context, target *unstructured.Unstructured, operations []map[string]any) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encode a patch: %w", err)
	}
	return l.send(ctx, target, patch)
}

func (l *bareLoop) write(ctx context.Context, target *unstructured.Unstructured, healthy bool) error {
	now := time.Now().UTC().Truncate(time.Second)
	c := health.Condition{Type: conditionType, Status: health.True, Reason: health.ReasonSuccessful, Message: "(3/3) Health checks successful", LastTransition: now, LastUpdate: now}
	if !healthy {
		c.Status, c.Reason = health.False, health.ReasonUnsuccessful
		c.Message = "(2/3) Health checks successful: 1) mcm: " + target.GetNamespace() + "/" + target.GetName() + ": condition Available of Deployment is False (MinimumReplicasUnavailable)"
	}
	patch, err := health.Patch(target, c, health.Gardener)
	if err != nil {
		return err
	}
	_, err = l.send(ctx, target, patch, "status")
	return err
}

func (l *bareLoop) send(ctx context.Context, target *unstructured.Unstructured, patch []byte, subresources ...string) (*unstructured.Unstructured, error) {
	after, err := l.asManager.Namespace(target.GetNamespace()).Patch(ctx, target.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: "autohealer"}, subresources...)
	if err != nil {
		return nil, fmt.Errorf("patch Worker %s: %w", target.GetName(), err)
	}
	return after, nil
}

// follow writes a target's condition whenever a bare watch shows its Deployment, until it is stopped.
func (l *bareLoop) follow(ctx context.Context) (stop func() error, err error) {
	deployments := l.bench.Clients.AppsV1().Deployments("")
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
				group.Go(func() error { return l.react(ctx, deployment) })
			}
		}
		ended <- group.Wait()
	}()
	return func() error { events.Stop(); return <-ended }, nil
}

func (l *bareLoop) react(ctx context.Context, deployment *appsv1.Deployment) error {
	i, err := strconv.Atoi(strings.TrimPrefix(deployment.Name, "worker-"))
	if err != nil {
		return fmt.Errorf("a watch shows Deployment %s: %w", deployment.Name, err)
	}
	healthy := true
	for _, c := range deployment.Status.Conditions {
		healthy = healthy && (c.Type != appsv1.DeploymentAvailable || c.Status == corev1.ConditionTrue)
	}
	return l.write(ctx, l.target(i), healthy)
}
