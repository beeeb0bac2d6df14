package guardrails

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

var _ = Describe("When the CRD of Guardrails goes while the manager runs", func() {
	It("nothing new is done, not even by what a Guardrail that went with it had paused; undo goes on", func(ctx SpecContext) {
		key := w.Key("lost-crd")
		nodes := w.AddNodes(ctx, 2, cluster.NodeOptions{Prefix: "lost-crd"})
		w.Create(ctx, fixture.NewSet("lost-crd", key, repel, "LostCRD"))
		history := w.Remember(ctx)
		w.Report(ctx, nodes[0], "LostCRD", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, nodes[0], key)).Should(BeEquivalentTo(repel))
		put(ctx, "freeze", "{paused: true}")
		w.Report(ctx, nodes[1], "LostCRD", corev1.ConditionTrue)
		Eventually(setSays(ctx, "lost-crd", "Ready")).Should(ContainSubstring("2 of 102 selected nodes match"))

		_, err := w.Kubectl(ctx, "delete", "crd", "guardrails.autohealer.resourcestack.com")
		Expect(err).NotTo(HaveOccurred())
		install := func(ctx context.Context) {
			GinkgoHelper()
			_, err := w.Kubectl(ctx, "apply", "--server-side", "-f", w.Root()+"/crds/autohealer.resourcestack.com_guardrails.yaml")
			Expect(err).NotTo(HaveOccurred())
			_, err = w.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "guardrails.autohealer.resourcestack.com")
			Expect(err).NotTo(HaveOccurred())
		}
		DeferCleanup(install)
		Eventually(setSays(ctx, "lost-crd", "Ready")).Should(HavePrefix("Unknown GuardrailsUnknown: What Guardrails forbid isn't known, which pauses all new acts: list every Guardrail before acting: customresourcedefinitions.apiextensions.k8s.io \"guardrails.autohealer.resourcestack.com\" not found; undo goes on. 2 of 102 selected nodes match, 1 is tainted"))
		Eventually(events(ctx, "lost-crd")).Should(ContainElement(HavePrefix("GuardrailsUnknown: ")))
		w.Report(ctx, nodes[0], "LostCRD", corev1.ConditionFalse)
		Eventually(w.Effect(ctx, nodes[0], key)).Should(BeEmpty(), "undo goes on")
		Expect(w.Effect(ctx, nodes[1], key)()).To(BeEmpty())
		Expect(history.Effects(ctx, nodes[1], key)).To(HaveExactElements(corev1.TaintEffect(none)), "it was never tainted")

		By("installing it again, empty: nothing pauses any more")
		install(ctx)
		Eventually(w.Effect(ctx, nodes[1], key)).Should(BeEquivalentTo(repel))
		Eventually(setSays(ctx, "lost-crd", "Ready")).Should(HavePrefix("True Operative"))
		Eventually(events(ctx, "lost-crd")).Should(ContainElement(HavePrefix("Resumed: ")))
		put(ctx, "freeze", "{paused: true}")
		Eventually(setSays(ctx, "lost-crd", "Ready")).Should(HavePrefix("True Paused: Guardrail freeze pauses all new acts"), "it is followed as before")
	})
})
