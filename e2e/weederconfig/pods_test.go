package weederconfig

import (
	"context"
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func podTemplate(app string, labels map[string]string) corev1.PodTemplateSpec {
	all := map[string]string{"app": app}
	maps.Copy(all, labels)
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: all},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "example.com/none", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
			// Autohealer's own namespace takes no others.
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			TerminationGracePeriodSeconds: new(int64),
		},
	}
}

// bare is a pod of its own that crash-loops on a node.
func (s shop) bare(ctx context.Context, name string, change func(*corev1.Pod)) *corev1.Pod {
	GinkgoHelper()
	template := podTemplate(name, map[string]string{crash: "true"})
	pod := &corev1.Pod{ObjectMeta: named(s.namespace, name), Spec: template.Spec}
	pod.Labels, pod.Spec.NodeName = template.Labels, "node-0"
	change(pod)
	Expect(h.Client.Create(ctx, pod)).To(Succeed())
	return pod
}

// unplayed is a pod of its own that no node plays: it does nothing by itself, and nobody but the spec and the manager deletes
// it. Kwok may delete what has the name of a pod that is gone.
func (s shop) unplayed(ctx context.Context, name string, change func(*corev1.Pod)) *corev1.Pod {
	GinkgoHelper()
	return s.bare(ctx, name, func(p *corev1.Pod) {
		change(p)
		delete(p.Labels, crash)
		p.Spec.NodeName = ""
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "e2e.example.com/never"}}
	})
}

// crash makes an unplayed pod crash-loop.
func (s shop) crash(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", Image: "example.com/none", RestartCount: 3,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
	}}
	Expect(h.Client.Status().Update(ctx, pod)).To(Succeed())
}

// owned gives pods an owner that isn't there for them: a ReplicaSet would let go of those that it doesn't select.
func (s shop) owned(ctx context.Context) func(*corev1.Pod) {
	GinkgoHelper()
	owner := &corev1.ConfigMap{ObjectMeta: named(s.namespace, "owner")}
	Expect(h.Client.Create(ctx, owner)).To(Succeed())
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	}
}
