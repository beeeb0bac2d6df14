package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// job is the one before an uninstall.
const job = "autohealer-uninstall-check"

// playJob runs what the Job's Pod would, as its account: until it has run one, or ctx ends. The channel has what the program said.
func (h *helmClient) playJob(ctx context.Context) <-chan string {
	said := make(chan string, 1)
	go func() {
		defer GinkgoRecover()
		defer close(said)
		var pod *corev1.Pod
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			var pods corev1.PodList
			if err := admin.List(ctx, &pods, client.InNamespace(h.namespace), client.MatchingLabels{"job-name": job}); err != nil {
				return false, err
			}
			for i := range pods.Items {
				if pods.Items[i].Status.Phase == corev1.PodRunning { // so says kwok
					pod = &pods.Items[i]
				}
			}
			return pod != nil, nil
		})
		if err != nil {
			return // there was none
		}
		text, code, err := h.runContainer(ctx, pod)
		if err == nil {
			said <- text
			err = finish(ctx, pod, code)
		}
		if err != nil && ctx.Err() == nil {
			Fail(err.Error())
		}
	}()
	return said
}

// runContainer runs the Pod's program with its arguments, and as its account.
func (h *helmClient) runContainer(ctx context.Context, pod *corev1.Pod) (said string, code int, err error) {
	kubeconfig, err := c.ServiceAccountKubeconfig(ctx, pod.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return "", 0, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(c.BinDir, "manager"), append(pod.Spec.Containers[0].Args, "--kubeconfig="+kubeconfig)...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err = cmd.Run()
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		return output.String(), exit.ExitCode(), nil
	}
	return output.String(), 0, err
}

// finish says how the Pod ended. It stays Ready, or kwok would have it run again.
func finish(ctx context.Context, pod *corev1.Pod, code int) error {
	ended := pod.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		ended.Status.Phase = corev1.PodFailed
	}
	ended.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name:  pod.Spec.Containers[0].Name,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(code), FinishedAt: metav1.Now()}},
	}}
	if err := admin.Status().Patch(ctx, ended, client.MergeFrom(pod)); err != nil {
		return fmt.Errorf("end pod %s: %w", pod.Name, err)
	}
	return nil
}
