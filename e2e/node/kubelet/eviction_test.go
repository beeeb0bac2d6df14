//go:build linux

package kubelet

import (
	"context"
	"fmt"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

const (
	taintKey = "e2e.example.com/disk-broken"
	broken   = corev1.NodeConditionType("DiskBroken")
)

var _ = Describe("A ConditionSet with NoExecute", func() {
	It("has the kubelet end the pods of a sick node, and lets new ones in on recovery", func(ctx SpecContext) {
		underOath(ctx)
		namespace := newNamespace(ctx, "eviction")
		reported := record(ctx, namespace)
		run(ctx, namespace, "intolerant", corev1.PodSpec{Containers: []corev1.Container{container("main", "pause")}})
		run(ctx, namespace, "tolerant", corev1.PodSpec{
			Containers:  []corev1.Container{container("main", "pause")},
			Tolerations: []corev1.Toleration{{Key: taintKey, Operator: corev1.TolerationOpExists}},
		})
		for _, app := range []string{"intolerant", "tolerant"} {
			reported.await(app, "should be ready", ready)
		}
		createSet(ctx, fixture.NewSet("disk-broken", taintKey, corev1.TaintEffectNoExecute, broken))

		began := time.Now()
		report(ctx, corev1.ConditionTrue)
		Eventually(effect(ctx)).WithPolling(10*time.Millisecond).ShouldNot(BeZero(), "the node should be tainted")
		tainted := time.Since(began)
		told := reported.await("intolerant", "should be told to go", func(r revision) bool { return r.pod.DeletionTimestamp != nil })
		// The kubelet takes a pod out of the API only after its containers have ended.
		ended := reported.await("intolerant", "should go", func(r revision) bool { return r.kind == watch.Deleted })
		AddReportEntry("condition → eviction", fmt.Sprintf("tainted after %d ms, pod told to go after %d ms, its containers ended and it left the API after %d ms",
			tainted.Milliseconds(), told.at.Sub(began).Milliseconds(), ended.at.Sub(began).Milliseconds()))
		Expect(statusOf(ended.pod, "main").State.Terminated).NotTo(BeNil(), "its container should have ended")

		By("keeping the reporter's condition, and so the taint, when the kubelet is killed and writes its status anew")
		Expect(h.Kill(real.Kubelet, syscall.SIGKILL)).To(Succeed())
		Expect(h.StopComponent(real.Kubelet)).To(Succeed())
		before := heartbeat(ctx)
		Expect(h.StartComponent(ctx, real.Kubelet)).To(Succeed())
		Eventually(func() bool { return heartbeat(ctx).After(before) }).Should(BeTrue(), "the new kubelet should report")
		Expect(realNode(ctx).Status.Conditions).To(ContainElement(SatisfyAll(HaveField("Type", broken), HaveField("Status", corev1.ConditionTrue))))
		Expect(fixture.EffectOn(realNode(ctx), taintKey)).To(Equal(corev1.TaintEffectNoExecute))

		began = time.Now()
		report(ctx, corev1.ConditionFalse)
		replaced := reported.await("intolerant", "should run again once the node has recovered", func(r revision) bool {
			return ready(r) && r.pod.UID != ended.pod.UID
		})
		AddReportEntry("recovery → replacement ready", fmt.Sprintf("%.1f s", replaced.at.Sub(began).Seconds()))
		for _, r := range reported.of("tolerant") {
			Expect(r.pod.DeletionTimestamp).To(BeNil(), "a pod that tolerates the taint should stay")
		}
	})
})

func ready(r revision) bool {
	for _, c := range r.pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && r.pod.DeletionTimestamp == nil
		}
	}
	return false
}

// report writes the condition as node-problem-detector does.
func report(ctx context.Context, status corev1.ConditionStatus) {
	GinkgoHelper()
	Expect(h.SetCondition(ctx, real.Name, broken, status, cluster.ConditionOptions{Reason: "E2E"})).To(Succeed())
}

// createSet stores a set and waits until it is in force; it goes with the spec.
func createSet(ctx context.Context, set *v1alpha1.ConditionSet) {
	GinkgoHelper()
	Expect(h.Client.Create(ctx, set)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(h.Client.Delete(ctx, set)).To(Succeed())
		Eventually(func() error {
			return client.IgnoreNotFound(h.Client.Get(ctx, client.ObjectKeyFromObject(set), set))
		}).Should(Succeed())
	})
	Eventually(func() (v1alpha1.ConditionSetStatus, error) {
		err := h.Client.Get(ctx, client.ObjectKeyFromObject(set), set)
		return set.Status, err
	}).Should(SatisfyAll(
		HaveField("ObservedGeneration", set.Generation),
		HaveField("Conditions", ContainElement(SatisfyAll(HaveField("Type", "Ready"), HaveField("Status", metav1.ConditionTrue)))),
	), "the set should be in force")
}

func realNode(ctx context.Context) *corev1.Node {
	GinkgoHelper()
	var node corev1.Node
	Expect(h.Client.Get(ctx, types.NamespacedName{Name: real.Name}, &node)).To(Succeed())
	return &node
}

func effect(ctx context.Context) func() corev1.TaintEffect {
	return func() corev1.TaintEffect { return fixture.EffectOn(realNode(ctx), taintKey) }
}

// heartbeat is when the kubelet last reported.
func heartbeat(ctx context.Context) time.Time {
	GinkgoHelper()
	for _, c := range realNode(ctx).Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastHeartbeatTime.Time
		}
	}
	return time.Time{}
}
