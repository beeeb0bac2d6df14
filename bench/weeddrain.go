package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// drained is how many pods crash-loop when the last Service recovers.
const drained = 2000

// weedWriters is how many deletions are asked of the API server at once, as many as the manager does.
const weedWriters = 32

// drain lets many pods crash-loop for one Service and measures how fast they go, against a bare loop over as many others.
func (b *bench) drain(ctx context.Context) error {
	b.say("weeder: %d crash-looping pods of one Service", drained)
	if err := b.fillDrain(ctx, "bare"); err != nil {
		return err
	}
	bare, bareUsage, err := b.drainBare(ctx)
	if err != nil {
		return err
	}
	if err := b.fillDrain(ctx, "ours"); err != nil {
		return err
	}
	end, err := b.quiet(ctx)
	if err != nil {
		return err
	}
	before, began := b.usage(), time.Now()
	if err := b.recover(ctx, drainService); err != nil {
		return err
	}
	deletions, err := b.awaitDeletions(ctx, end, drained)
	if err != nil {
		return err
	}
	spent := b.usage().since(before)
	var last time.Time
	for _, sent := range deletions {
		if sent.After(last) {
			last = sent
		}
	}
	ours, reference := series{drained / last.Sub(began).Seconds()}, series{drained / bare.Seconds()}
	b.report.ratio(row{what: fmt.Sprintf("drain: %d crash-looping pods after one recovery, deletions/s", drained), ours: ours.text("%.0f"), reference: reference.text("%.0f"),
		ratio: ours.over(reference), goal: "≥ 0.85", reached: ours.over(reference).median() >= .85})
	b.report.cost("a deletion in the drain, ours", spent, drained)
	b.report.cost("the same, bare loop", bareUsage, drained)
	return nil
}

func (b *bench) fillDrain(ctx context.Context, prefix string) error {
	return each(ctx, drained, func(ctx context.Context, i int) error {
		return b.addPod(ctx, fmt.Sprintf("%s-%d", prefix, i), drainService, true)
	})
}

// drainBare deletes the pods by a bare loop with the manager's rights, with nothing to decide, watch or tell.
func (b *bench) drainBare(ctx context.Context) (took time.Duration, spent usage, err error) {
	pods, err := b.clients.CoreV1().Pods(weedNamespace).List(ctx, metav1.ListOptions{LabelSelector: dependsOn + "=" + drainService})
	if err != nil {
		return 0, nil, fmt.Errorf("list pods: %w", err)
	}
	clients, err := b.asManager(ctx)
	if err != nil {
		return 0, nil, err
	}
	err = b.withoutManager(ctx, func() error {
		before, began := b.usage(), time.Now()
		err := eachOf(ctx, weedWriters, len(pods.Items), func(ctx context.Context, i int) error { return deleteBare(ctx, clients, &pods.Items[i]) })
		took, spent = time.Since(began), b.usage().since(before)
		return err
	})
	return took, spent, err
}

// asManager is a bare client with the manager's rights.
func (b *bench) asManager(ctx context.Context) (kubernetes.Interface, error) {
	kubeconfig, err := b.ServiceAccountKubeconfig(ctx, harness.Namespace, harness.ServiceAccount)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the manager's kubeconfig: %w", err)
	}
	config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a bare client: %w", err)
	}
	return clients, nil
}

// deleteBare deletes a pod under the same preconditions as the manager does.
func deleteBare(ctx context.Context, clients kubernetes.Interface, pod *corev1.Pod) error {
	same := &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
	if err := clients.CoreV1().Pods(weedNamespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: same}); err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return nil
}
