package main

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
)

// recoverBare is the reference, while no manager runs: for each Service of which a watch tells that it is Ready again, one of
// the manager's own writes of a status is sent again, as the audit log has it but for the state that it was to replace, and then
// as many DELETEs at once as the manager sent. Nothing is decided, and nobody is asked whether it may be done.
func (b *bench) recoverBare(ctx context.Context, ours *deletionLog) (*trips, error) {
	clients, err := b.asManager(ctx)
	if err != nil {
		return nil, err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	loop := &bareLoop{clients: clients, fail: fail, notes: map[string]note{}, pods: map[string][]corev1.Pod{}}
	if err := each(ctx, weedServices, func(ctx context.Context, i int) error { return b.turn(ctx, serviceName(i), false) }); err != nil {
		return nil, err
	}
	for i := range weedServices {
		written := ours.notesOf(configOf(i))
		if len(written) == 0 {
			return nil, fmt.Errorf("the audit log has no write of the status of WeederConfig %s", configOf(i))
		}
		loop.notes[serviceName(i)] = written[i%len(written)]
	}
	if err := loop.fill(ctx, b); err != nil {
		return nil, err
	}
	bare, err := b.recoverAll(ctx, "bare", func(service string) { loop.act(ctx, service) })
	return bare, errors.Join(err, context.Cause(ctx))
}

// bareLoop does what it was given to do for each Service.
type bareLoop struct {
	clients kubernetes.Interface
	notes   map[string]note
	pods    map[string][]corev1.Pod
	fail    context.CancelCauseFunc
}

// fill makes as many pods crash-loop as there were.
func (l *bareLoop) fill(ctx context.Context, b *bench) error {
	if err := each(ctx, weedServices*loopsPerService, func(ctx context.Context, i int) error {
		return b.addPod(ctx, fmt.Sprintf("bare-%d", i), "bare-"+serviceName(i%weedServices), true)
	}); err != nil {
		return err
	}
	for service := range l.notes {
		pods, err := b.clients.CoreV1().Pods(weedNamespace).List(ctx, metav1.ListOptions{LabelSelector: dependsOn + "=bare-" + service})
		if err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		l.pods[service] = pods.Items
	}
	return nil
}

func (l *bareLoop) act(ctx context.Context, service string) {
	if err := l.delete(ctx, service); err != nil {
		l.fail(err)
	}
}

func (l *bareLoop) delete(ctx context.Context, service string) error {
	n := l.notes[service]
	err := l.clients.CoreV1().RESTClient().Patch(types.MergePatchType).
		AbsPath("/apis", v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "namespaces", weedNamespace, "weederconfigs", n.config, "status").
		SetHeader("Accept", "application/json").Body(n.body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write the status of WeederConfig %s: %w", n.config, err)
	}
	var group errgroup.Group
	for i := range l.pods[service] {
		group.Go(func() error { return deleteBare(ctx, l.clients, &l.pods[service][i]) })
	}
	return group.Wait()
}
