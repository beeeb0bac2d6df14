//go:build linux

package kubelet

import (
	"context"
	"fmt"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/node"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
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

// crashers of every sort that a kubelet reports differently. Nothing is at address.
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
		ready     *readiness
		ending    = outages()
		wc        *v1alpha1.WeederConfig
	)

	BeforeAll(func(ctx SpecContext) {
		namespace, address = newNamespace(ctx, "crash-loops"), newUpstream().address
		reported, ready = record(ctx, namespace), watchReadiness(ctx, namespace)
		wc = tenantWeeder(ctx, namespace, ending)
		for _, o := range ending {
			o.prepare(ctx, namespace)
		}
		for _, c := range crashers(address) {
			run(ctx, namespace, c.app, c.spec)
		}
		// First of all that is cleaned up: when their upstreams close, pods crash-loop anew, and other specs' oracle would see them
		// deleted.
		DeferCleanup(func(ctx context.Context) { Expect(h.Client.Delete(ctx, wc)).To(Succeed()) })
	})

	It("run seconds after the upstream does when a WeederConfig selects them, and wait out the back-off when none does", func(ctx SpecContext) {
		restarts := make([]restart, len(ending))
		var following sync.WaitGroup
		for i, o := range ending {
			following.Go(func() {
				defer GinkgoRecover()
				restarts[i] = o.follow(ctx, namespace, reported, ready)
			})
		}
		following.Wait()
		expectRestarts(ctx, wc, restarts)
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
				loop := weeder.ReadPod(r.pod).Loop(true)
				looping := loop.Container != ""
				Expect(looping).To(Equal(c.crashLoops(r.pod)), "%s, version %s: %+v", c.app, r.pod.ResourceVersion, statusOf(r.pod, c.container))
				if looping {
					Expect(loop.Container).To(Equal(c.container))
				}
			}
		}
		updateTestdata(reported, crashers(address))
	})
})

// timeline tells what the kubelet reported of a container and for how long.
func timeline(c crasher, revisions []revision) string {
	var lines []string
	for i, r := range revisions {
		status := statusOf(r.pod, c.container)
		if status == nil || i+1 == len(revisions) {
			continue
		}
		lines = append(lines, fmt.Sprintf("at %5.1f s for %5.1f s, %d restarts, last state %-5t %s",
			r.at.Sub(revisions[0].at).Seconds(), revisions[i+1].at.Sub(r.at).Seconds(), status.RestartCount,
			status.LastTerminationState.Terminated != nil, stateOf(status)))
	}
	return "\n" + strings.Join(lines, "\n")
}

// stateOf is what the kubelet reports of a container, in words.
func stateOf(status *corev1.ContainerStatus) string {
	switch {
	case status.State.Waiting != nil:
		return "waiting: " + status.State.Waiting.Reason
	case status.State.Terminated != nil:
		return fmt.Sprintf("terminated: exit code %d", status.State.Terminated.ExitCode)
	}
	return "running"
}
