//go:build linux

package kubelet

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/e2e/node"
	"github.com/resourcestack/autohealer/internal/domain/weed"
)

// crasher is a pod one container of which exits again and again.
type crasher struct {
	app, container string
	spec           corev1.PodSpec
	// ends: the kubelet doesn't restart it.
	ends bool
	// neverStarts: there is nothing to run. No Service's recovery changes that, and the kubelet has reasons of its own for it.
	neverStarts bool
}

// crashers of every sort that a kubelet reports differently. Those that need the upstream at address recover with it.
func crashers(address string) []crasher {
	need := func(name string) corev1.Container { return container(name, "need", address) }
	quiet := container("quiet", "pause")
	of := func(containers ...corev1.Container) corev1.PodSpec { return corev1.PodSpec{Containers: containers} }
	withInit := func(c corev1.Container) corev1.PodSpec {
		return corev1.PodSpec{InitContainers: []corev1.Container{c}, Containers: []corev1.Container{quiet}}
	}
	withPolicy := func(p corev1.RestartPolicy) corev1.PodSpec {
		return corev1.PodSpec{RestartPolicy: p, Containers: []corev1.Container{need("main")}}
	}
	return []crasher{
		{app: "alone", container: "main", spec: of(need("main"))},
		{app: "beside-a-running-one", container: "main", spec: of(quiet, need("main"))},
		{app: "init-container", container: "init", spec: withInit(need("init"))},
		{app: "sidecar", container: "sidecar", spec: withInit(sidecar(need("sidecar")))},
		{app: "exits-with-0", container: "main", spec: of(container("main", "exit", "0"))},
		{app: "on-failure", container: "main", spec: withPolicy(corev1.RestartPolicyOnFailure)},
		{app: "never", container: "main", spec: withPolicy(corev1.RestartPolicyNever), ends: true},
		{app: "never-starts", container: "main", neverStarts: true, spec: of(corev1.Container{
			Name: "main", Image: node.Image, Command: []string{"/missing"},
		})},
		{app: "twin", container: "main", spec: of(need("main"))},
	}
}

// backingOff says from the container's history alone whether the kubelet makes it wait: it was restarted at least once,
// and doesn't run. The first restart is at once.
func (c crasher) backingOff(pod *corev1.Pod) bool {
	status := statusOf(pod, c.container)
	return !c.ends && status != nil && status.RestartCount >= 1 && status.State.Running == nil
}

// crashLoops says what weed should.
func (c crasher) crashLoops(pod *corev1.Pod) bool {
	if !c.neverStarts {
		return c.backingOff(pod)
	}
	status := statusOf(pod, c.container)
	return status != nil && status.State.Waiting != nil && status.State.Waiting.Reason == "CrashLoopBackOff"
}

var _ = Describe("Pods whose upstream isn't there", Ordered, func() {
	var (
		namespace string
		address   string
		reported  *recording
	)

	BeforeAll(func(ctx SpecContext) {
		namespace = newNamespace(ctx, "crash-loops")
		reported = record(ctx, namespace)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		address = listener.Addr().String()
		Expect(listener.Close()).To(Succeed())
		for _, c := range crashers(address) {
			run(ctx, namespace, c.app, c.spec)
		}
	})

	It("crash-loop by weed's definition at every moment of the kubelet's back-off, and at no other", func() {
		for _, c := range crashers(address) {
			if !c.ends {
				reported.await(c.app, "should exit a fourth time, after the back-offs of 10 and 20 s", func(r revision) bool {
					return c.backingOff(r.pod) && statusOf(r.pod, c.container).RestartCount >= 3
				})
			}
		}
		for _, c := range crashers(address) {
			revisions := reported.of(c.app)
			AddReportEntry(c.app, timeline(c, revisions), ReportEntryVisibilityFailureOrVerbose)
			for _, r := range revisions {
				loop, looping := weed.CrashLooping(r.pod, true)
				Expect(looping).To(Equal(c.crashLoops(r.pod)), "%s, version %s: %+v", c.app, r.pod.ResourceVersion, statusOf(r.pod, c.container))
				if looping {
					Expect(loop.Container).To(Equal(c.container))
				}
			}
		}
		updateTestdata(reported, crashers(address))
	})

	It("run seconds after the upstream does when they are deleted, and wait out the back-off when they aren't", func(ctx SpecContext) {
		ready := startUpstream(ctx, namespace, address)
		pods, err := core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=alone"})
		Expect(err).NotTo(HaveOccurred())
		Expect(pods.Items).To(HaveLen(1))
		victim := &pods.Items[0]
		Expect(core.CoreV1().Pods(namespace).Delete(ctx, victim.Name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(victim.UID)),
		})).To(Succeed())

		running := func(r revision) bool {
			status := statusOf(r.pod, "main")
			return r.at.After(ready) && r.pod.UID != victim.UID && status != nil && status.State.Running != nil
		}
		fast := reported.await("alone", "should run again, in another pod", running).at.Sub(ready)
		slow := reported.await("twin", "should run in the end", running).at.Sub(ready)
		AddReportEntry("Service ready → pod runs", fmt.Sprintf("deleted: %.1f s; left alone: %.1f s; saved: %.1f s, in the third back-off, of 40 s; the longest is 300 s",
			fast.Seconds(), slow.Seconds(), (slow-fast).Seconds()))
		Expect(fast).To(BeNumerically("<", slow))
	})
})

// startUpstream makes a Service with a pod that listens, and gives the moment at which its endpoint was seen to be ready.
func startUpstream(ctx context.Context, namespace, address string) time.Time {
	GinkgoHelper()
	endpoint, err := net.ResolveTCPAddr("tcp", address)
	Expect(err).NotTo(HaveOccurred())
	_, err = core.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "upstream"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "upstream"}, Ports: []corev1.ServicePort{{Port: int32(endpoint.Port)}},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	listening := container("main", "listen", address)
	listening.ReadinessProbe = &corev1.Probe{
		PeriodSeconds: 1,
		ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1", Port: intstr.FromInt(endpoint.Port)}},
	}
	run(ctx, namespace, "upstream", corev1.PodSpec{Containers: []corev1.Container{listening}})
	Eventually(func() (ready int, err error) {
		slices, err := core.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=upstream"})
		if err != nil {
			return 0, err
		}
		for _, slice := range slices.Items {
			for _, e := range slice.Endpoints {
				if ptr.Deref(e.Conditions.Ready, false) {
					ready++
				}
			}
		}
		return ready, nil
	}).WithPolling(20*time.Millisecond).Should(Equal(1), "the upstream should have a ready endpoint")
	return time.Now()
}

// timeline tells what the kubelet reported of a container and for how long.
func timeline(c crasher, revisions []revision) string {
	var lines []string
	for i, r := range revisions {
		status := statusOf(r.pod, c.container)
		if status == nil || i+1 == len(revisions) {
			continue
		}
		state := "running"
		switch {
		case status.State.Waiting != nil:
			state = "waiting: " + status.State.Waiting.Reason
		case status.State.Terminated != nil:
			state = fmt.Sprintf("terminated: exit code %d", status.State.Terminated.ExitCode)
		}
		lines = append(lines, fmt.Sprintf("at %5.1f s for %5.1f s, %d restarts, last state %-5t %s",
			r.at.Sub(revisions[0].at).Seconds(), revisions[i+1].at.Sub(r.at).Seconds(), status.RestartCount,
			status.LastTerminationState.Terminated != nil, state))
	}
	return "\n" + strings.Join(lines, "\n")
}
