package weederconfig

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/bench/testbed"
)

// bareLoop is the reference, while no manager runs: for each Service that a watch shows to be Ready again, one of the manager's own
// writes of a status is sent again, as the audit log has it but for the state that it was to replace, and then as many DELETEs at once
// as the manager sent. Nothing is decided, and nobody is asked whether it may be done.
type bareLoop struct {
	clients  kubernetes.Interface
	statuses map[string]testbed.Write // by Service
	pods     map[string][]corev1.Pod  // by Service
}

func (b *Bench) recoverBare(ctx context.Context, ours *deletionLog) (*latencies, error) {
	clients, err := b.AsManager(ctx)
	if err != nil {
		return nil, err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	loop := &bareLoop{clients: clients, statuses: map[string]testbed.Write{}, pods: map[string][]corev1.Pod{}}
	if err := testbed.Each(ctx, services, func(ctx context.Context, i int) error { return b.setReady(ctx, ServiceName(i), false) }); err != nil {
		return nil, err
	}
	for i := range services {
		written := ours.statusesOf(configOf(i))
		if len(written) == 0 {
			return nil, fmt.Errorf("the audit log has no write of the status of WeederConfig %s", configOf(i))
		}
		loop.statuses[ServiceName(i)] = written[i%len(written)]
	}
	// As many pods crash-loop as there were.
	if err := testbed.Each(ctx, services*loopsPerService, func(ctx context.Context, i int) error {
		return b.addPod(ctx, fmt.Sprintf("bare-%d", i), "bare-"+ServiceName(i%services), true)
	}); err != nil {
		return nil, err
	}
	for i := range services {
		if loop.pods[ServiceName(i)], err = b.dependents(ctx, "bare-"+ServiceName(i)); err != nil {
			return nil, err
		}
	}
	bare, err := b.recoverAll(ctx, "bare", func(service string) {
		if err := loop.act(ctx, service); err != nil {
			fail(err)
		}
	})
	return bare, errors.Join(err, context.Cause(ctx))
}

func (l *bareLoop) act(ctx context.Context, service string) error {
	status := l.statuses[service]
	err := l.clients.CoreV1().RESTClient().Patch(types.MergePatchType).
		AbsPath("/apis", v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "namespaces", Namespace, "weederconfigs", status.Name, "status").
		SetHeader("Accept", "application/json").Body(status.Body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write the status of WeederConfig %s: %w", status.Name, err)
	}
	var group errgroup.Group
	for i := range l.pods[service] {
		group.Go(func() error { return deleteBare(ctx, l.clients, &l.pods[service][i]) })
	}
	return group.Wait()
}

// deleteBare deletes a pod under the same preconditions as the manager does.
func deleteBare(ctx context.Context, clients kubernetes.Interface, pod *corev1.Pod) error {
	same := &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
	if err := clients.CoreV1().Pods(Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: same}); err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return nil
}

// dependents are the pods that depend on a Service.
func (b *Bench) dependents(ctx context.Context, service string) ([]corev1.Pod, error) {
	pods, err := b.Clients.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: DependsOn + "=" + service})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return pods.Items, nil
}
