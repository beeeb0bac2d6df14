package conditionset

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

var _ = Describe("Before it evicts, a set", func() {
	It("repels for evictAfter", func(ctx SpecContext) {
		key := w.Key("evict-after")
		node := w.AddNodesInOwnZones(ctx, 1, "evict-after")[0]
		set := fixture.NewSet("evict-after", key, evict, "EvictAfterBroken")
		set.Spec.EvictAfter = "3s"
		w.Create(ctx, set)
		history := w.Remember(ctx)

		w.Report(ctx, node, "EvictAfterBroken", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, node, key)).Should(BeEquivalentTo(evict))
		Expect(history.Effects(ctx, node, key)).To(HaveExactElements(corev1.TaintEffect(none), corev1.TaintEffect(repel), corev1.TaintEffect(evict)))
		claim := fixture.ClaimOn(w.Node(ctx, node), key)
		Expect(claim.EvictSince.Sub(claim.Since.Time)).To(BeNumerically(">=", 3*time.Second), "both are whole seconds")
		Eventually(func() []fixture.Act { return w.Acts("evict-after") }).Should(ContainElement(SatisfyAll(HaveField("Verb", "Escalate"), HaveField("Reason", "EvictAfterElapsed"))))
	})

	It("no longer evicts a node that it taints for the third time within an hour", func(ctx SpecContext) {
		key := w.Key("flapping")
		node := w.AddNodesInOwnZones(ctx, 1, "flapping")[0]
		set := fixture.NewSet("flapping", key, evict, "FlappingBroken")
		set.Spec.EvictAfter = "1s"
		w.Create(ctx, set)
		for n := range 3 {
			w.Report(ctx, node, "FlappingBroken", corev1.ConditionTrue)
			Eventually(w.Effect(ctx, node, key)).ShouldNot(BeEmpty())
			Expect(fixture.ClaimOn(w.Node(ctx, node), key)).To(HaveField("Times", []int{0, 0, 3}[n]))
			if n < 2 {
				w.Report(ctx, node, "FlappingBroken", corev1.ConditionFalse)
				Eventually(w.Effect(ctx, node, key)).Should(BeEmpty())
			}
		}
		Consistently(w.Effect(ctx, node, key), "2s").Should(BeEquivalentTo(repel))
		Eventually(func() (string, error) {
			ready, err := w.Ready(ctx, "flapping")
			return ready.Message, err
		}).Should(MatchRegexp("the node was tainted 3 times within an hour, last at .*Z; the taint stays at NoSchedule"))
	})

	It("lets a taint stay that comes and goes, and says so", func(ctx SpecContext) {
		key := w.Key("flickering")
		node := w.AddNodesInOwnZones(ctx, 1, "flickering")[0]
		w.Create(ctx, fixture.NewSet("flickering", key, repel, "FlickeringBroken"))
		history := w.Remember(ctx)
		for n := range 30 {
			w.Report(ctx, node, "FlickeringBroken", []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[n%2])
			if n < 5 {
				Eventually(w.Effect(ctx, node, key)).Should(BeEquivalentTo([]string{repel, none}[n%2]))
			}
		}
		Eventually(func() (string, error) {
			ready, err := w.Ready(ctx, "flickering")
			return ready.Message, err
		}).Should(MatchRegexp("the node was tainted 3 times within an hour, last at .*Z; the taint goes once the conditions have been clear for 1m0s"))
		Expect(history.Effects(ctx, node, key)).To(HaveExactElements(corev1.TaintEffect(none), corev1.TaintEffect(repel), corev1.TaintEffect(none),
			corev1.TaintEffect(repel), corev1.TaintEffect(none), corev1.TaintEffect(repel)))
	})

	It("sees that what the node needs tolerates the key, and says what doesn't", func(ctx SpecContext) {
		key := w.Key("reporter")
		nodes := w.AddNodesInOwnZones(ctx, 2, "reporter")
		for node, tolerated := range map[string]string{nodes[0]: "", nodes[1]: key} {
			addReporter(ctx, node, tolerated)
			addPod(ctx, "app-"+node, node, "")
		}
		w.Create(ctx, fixture.NewSet("reporter", key, evict, "ReporterBroken"))
		history := w.Remember(ctx)
		for _, node := range nodes {
			w.Report(ctx, node, "ReporterBroken", corev1.ConditionTrue)
		}

		Eventually(w.Effect(ctx, nodes[1], key)).Should(BeEquivalentTo(evict))
		Eventually(w.Effect(ctx, nodes[0], key)).Should(BeEquivalentTo(repel))
		Eventually(func() (string, error) {
			ready, err := w.Ready(ctx, "reporter")
			return ready.Message, err
		}).Should(SatisfyAll(
			MatchRegexp(`default/node-problem-detector-`+nodes[0]+`-\w+ \(condition reporter\)`),
			ContainSubstring("doesn't tolerate "+key)))
		Expect(w.Status(ctx, "reporter")()).To(HaveField("Nodes.HeldBack", BeEquivalentTo(1)))
		Consistently(w.Effect(ctx, nodes[0], key), "1s").Should(BeEquivalentTo(repel))
		Expect(history.Effects(ctx, nodes[0], key)).NotTo(ContainElement(corev1.TaintEffect(evict)))
	})
})

// addReporter runs a DaemonSet like node-problem-detector's on one node.
func addReporter(ctx context.Context, node, tolerated string) {
	GinkgoHelper()
	labels := map[string]string{"app": "node-problem-detector", "node": node}
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "node-problem-detector-" + node, Namespace: "default"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{corev1.LabelHostname: node},
					Containers:   []corev1.Container{{Name: "npd", Image: "npd"}},
				},
			},
		},
	}
	if tolerated != "" {
		ds.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: tolerated, Operator: corev1.TolerationOpExists}}
	}
	Expect(w.Client.Create(ctx, ds)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(w.Client.Delete(ctx, ds, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Eventually(exists(ctx, ds)).Should(BeFalse())
	})
	Eventually(func() (int32, error) {
		err := w.Client.Get(ctx, client.ObjectKeyFromObject(ds), ds)
		return ds.Status.NumberReady, err
	}).Should(BeEquivalentTo(1))
}
