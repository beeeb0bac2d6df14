package operations

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

const holdUntil = "autohealer.resourcestack.com/hold-until"

// annotate sets a node's annotation as people do; "" takes it off.
func annotate(ctx context.Context, node, key, value string) {
	GinkgoHelper()
	argument := key + "=" + value
	if value == "" {
		argument = key + "-"
	}
	_, err := w.Kubectl(ctx, "annotate", "node", node, "--overwrite", argument)
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("The annotation hold-until", func() {
	It("keeps new taints from a node until its time, and undo goes on", func(ctx SpecContext) {
		key := w.Key("hold")
		nodes := w.AddNodes(ctx, 2, cluster.NodeOptions{Prefix: "hold"})
		w.Create(ctx, fixture.NewSet("holding", key, repel, "HoldBroken"))
		until := time.Now().Add(10 * time.Minute).UTC().Truncate(time.Second).Format(time.RFC3339)
		annotate(ctx, nodes[0], holdUntil, until)
		for _, node := range nodes {
			w.Report(ctx, node, "HoldBroken", corev1.ConditionTrue)
		}
		Eventually(w.Effect(ctx, nodes[1], key)).Should(BeEquivalentTo(repel))
		Eventually(w.Condition(ctx, "holding", "Ready")).Should(HaveField("Message",
			ContainSubstring("1 node held back: the annotation "+holdUntil+" keeps Autohealer from it until "+until)))
		Expect(plugin(ctx, "status")).To(SatisfyAll(HaveField("Out", ContainSubstring("\nLeft alone: node/"+nodes[0]+" until "+until+"\n"))))
		Expect(plugin(ctx, "explain", "node/"+nodes[0]).Out).To(And(ContainSubstring("  Left alone: the annotation "+holdUntil+" keeps Autohealer from it until "+until),
			ContainSubstring(" (HoldUntil)")))

		By("what was done is undone under a hold")
		annotate(ctx, nodes[1], holdUntil, until)
		w.Report(ctx, nodes[1], "HoldBroken", corev1.ConditionFalse)
		Eventually(w.Effect(ctx, nodes[1], key)).Should(BeEmpty())

		By("the end of a hold, by its time and by hand")
		annotate(ctx, nodes[0], holdUntil, time.Now().Add(3*time.Second).UTC().Format(time.RFC3339))
		w.Report(ctx, nodes[1], "HoldBroken", corev1.ConditionTrue)
		Consistently(w.Effect(ctx, nodes[1], key), "500ms").Should(BeEmpty())
		Eventually(w.Effect(ctx, nodes[0], key)).Should(BeEquivalentTo(repel))
		annotate(ctx, nodes[1], holdUntil, "")
		Eventually(w.Effect(ctx, nodes[1], key)).Should(BeEquivalentTo(repel))
	})

	It("holds though it can't be read, and says so", func(ctx SpecContext) {
		key := w.Key("hold")
		node := w.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: "garbage"})[0]
		w.Create(ctx, fixture.NewSet("garbage", key, repel, "GarbageBroken"))
		annotate(ctx, node, holdUntil, "tomorrow")
		w.Report(ctx, node, "GarbageBroken", corev1.ConditionTrue)
		Eventually(w.Status(ctx, "garbage")).Should(HaveField("Nodes", HaveValue(HaveField("HeldBack", BeEquivalentTo(1)))))
		for text, fault := range map[string]string{
			"tomorrow":             `"tomorrow" is no time such as 2026-11-21T03:00:00Z; correct or remove it`,
			"2126-11-21T03:00:00Z": "that is more than 7 days ahead; correct it if it is a mistake",
		} {
			annotate(ctx, node, holdUntil, text)
			Eventually(func() said { return plugin(ctx, "status") }).Should(SatisfyAll(HaveField("Code", 1),
				HaveField("Out", ContainSubstring("\nLeft alone: node/"+node+" until "+text+": "+fault+"\n"))))
			Expect(w.Effect(ctx, node, key)()).To(BeEmpty())
		}
	})
})
