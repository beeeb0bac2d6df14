//go:build linux

package kubelet

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/e2e/node"
)

// container runs the image's one program; see e2e/node/testpod for what its args make it do.
func container(name string, args ...string) corev1.Container {
	return corev1.Container{Name: name, Image: node.Image, Args: args}
}

// sidecar is an init container that is restarted whatever it exits with.
func sidecar(c corev1.Container) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

// onRealNode puts a pod's spec on the real node; only the host's network is there.
func onRealNode(spec corev1.PodSpec) corev1.PodSpec {
	spec.HostNetwork = true
	spec.NodeSelector = map[string]string{corev1.LabelHostname: real.Name}
	return spec
}

// run creates a Deployment of one pod, or a bare pod where a Deployment can't have such pods. All carry the label app.
func run(ctx context.Context, namespace, app string, spec corev1.PodSpec) {
	GinkgoHelper()
	labels := map[string]string{"app": app}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: onRealNode(spec)}
	var err error
	if spec.RestartPolicy == "" || spec.RestartPolicy == corev1.RestartPolicyAlways {
		_, err = core.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: app},
			Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
		}, metav1.CreateOptions{})
	} else {
		_, err = core.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: app, Labels: labels}, Spec: template.Spec,
		}, metav1.CreateOptions{})
	}
	Expect(err).NotTo(HaveOccurred())
}

// statusOf a container of a pod, init containers included; nil while the kubelet has not reported it.
func statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return &statuses[i]
			}
		}
	}
	return nil
}
