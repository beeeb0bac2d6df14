//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

// startWithPod starts a control plane and a node with a pod that runs.
func startWithPod(ctx context.Context) (*cluster.Cluster, *Node, error) {
	c, err := cluster.Start(ctx, cluster.Options{ControllerManager: true, Out: os.Stderr})
	if err != nil {
		return nil, nil, err
	}
	n, err := Start(ctx, c, Options{Out: os.Stderr})
	if err != nil {
		return nil, nil, errors.Join(err, c.Stop())
	}
	if err := runPod(ctx, c, n.Name); err != nil {
		return nil, nil, errors.Join(err, n.Stop(), c.Stop())
	}
	return c, n, nil
}

func runPod(ctx context.Context, c *cluster.Cluster, node string) error {
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return err
	}
	pods := client.CoreV1().Pods("default")
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "waiting"},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true,
			Containers: []corev1.Container{{Name: "main", Image: Image, Args: []string{"pause"}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		pod, err = pods.Get(ctx, pod.Name, metav1.GetOptions{})
		return err == nil && len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].State.Running != nil, err
	})
	if err != nil {
		return fmt.Errorf("wait for the pod to run: %w: %v", err, pod.Status)
	}
	return nil
}

func TestNothingIsLeftOfAStoppedNode(t *testing.T) {
	if why := Unavailable(); why != "" {
		t.Skip(why)
	}
	t.Setenv("TMPDIR", t.TempDir())
	before := machine(t)
	c, n, err := startWithPod(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.Stop(), c.Stop()); err != nil {
		t.Error(err)
	}
	expectNothingLeft(t, before, n.sandbox.name)
}
