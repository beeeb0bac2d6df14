package faults

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/timings"
)

const (
	nodesPath = "/api/v1/nodes"
	setsPath  = "/apis/autohealer.resourcestack.com/v1alpha1/conditionsets"
)

var _ = Describe("A watch that died without a word", func() {
	var proxied *proxy

	BeforeEach(func(ctx SpecContext) {
		proxied = startProxy()
		Expect(w.StopComponent(harness.Manager)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(w.StopComponent(harness.Manager)).To(Succeed())
			Expect(w.StartManager(ctx)).To(Succeed())
		})
		Expect(w.StartManager(ctx, "--kubeconfig="+proxied.kubeconfig(ctx))).To(Succeed())
	})

	It("of nodes lets no node be tainted that recovered meanwhile", func(ctx SpecContext) {
		key := w.Key("silent-nodes")
		nodes := w.AddNodes(ctx, 2, cluster.NodeOptions{Prefix: "silent-nodes"})
		set := fixture.NewSet("silent-nodes", key, repel, "SilentBroken")
		set.Spec.For = v1alpha1.Duration((timings.OfSuites().MaxWatchSilence() + 5*time.Second).Round(time.Second).String()) // longer than a silent watch is believed
		w.Create(ctx, set)
		for _, node := range nodes {
			w.Report(ctx, node, "SilentBroken", corev1.ConditionTrue)
		}
		Eventually(w.Status(ctx, set.Name)).Should(HaveField("Nodes.Matching", BeEquivalentTo(2)))
		proxied.silence(nodesPath)
		recovered, sick := nodes[0], nodes[1]
		w.Report(ctx, recovered, "SilentBroken", corev1.ConditionFalse)
		history := w.Remember(ctx)

		Eventually(w.Effect(ctx, sick, key), "40s").Should(BeEquivalentTo(repel), "its time comes, and a live read shows that it is sick")
		Consistently(w.Effect(ctx, recovered, key), "2s").Should(BeEmpty(), "its time came as well, but a live read shows that it isn't")
		Expect(w.Status(ctx, set.Name)()).To(HaveField("Nodes.Matching", BeNumerically(">", 0)))
		Expect(history.Effects(ctx, recovered, key)).To(HaveExactElements(corev1.TaintEffect(none)))
		proxied.speak(nodesPath)
		Eventually(w.Status(ctx, set.Name)).Should(HaveField("Nodes.Matching", BeEquivalentTo(1)))
	})

	It("of sets lets nothing be done for a set as it no longer is", func(ctx SpecContext) {
		key, other := w.Key("silent-sets"), w.Key("silent-sets-other")
		node := w.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: "silent-sets"})[0]
		changed := w.Create(ctx, fixture.NewSet("silent-changed", key, repel, "SilentChanged"))
		deleted := w.Create(ctx, fixture.NewSet("silent-deleted", other, repel, "SilentDeleted"))
		history := w.Remember(ctx)

		proxied.silence(setsPath)
		Expect(w.Client.Get(ctx, client.ObjectKeyFromObject(changed), changed)).To(Succeed())
		changed.Spec.TaintKey = w.Key("silent-sets-moved")
		Expect(w.Client.Update(ctx, changed)).To(Succeed())
		Expect(w.Client.Delete(ctx, deleted.DeepCopy())).To(Succeed())
		w.Report(ctx, node, "SilentChanged", corev1.ConditionTrue)
		w.Report(ctx, node, "SilentDeleted", corev1.ConditionTrue)
		Consistently(func() []corev1.Taint { return w.Node(ctx, node).Spec.Taints }, "3s").Should(BeEmpty())

		proxied.speak(setsPath)
		Eventually(w.Effect(ctx, node, changed.Spec.TaintKey)).Should(BeEquivalentTo(repel))
		w.Discard(ctx, deleted)
		for _, never := range []string{key, other} {
			Expect(history.Effects(ctx, node, never)).To(HaveExactElements(corev1.TaintEffect(none)))
		}
	})
})
