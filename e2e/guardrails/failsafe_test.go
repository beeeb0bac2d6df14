package guardrails

import (
	"context"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("A bad Guardrail that is stored past webhook and policy", func() {
	It("refuses all that its rule can't judge, loosens nothing, and says where it is wrong", func(ctx SpecContext) {
		key := w.Key("failsafe")
		nodes := w.AddNodes(ctx, 12, cluster.NodeOptions{Prefix: "failsafe"})
		put(ctx, "tight", "{limits: {maxTaintedNodes: 1}}")
		w.Create(ctx, fixture.NewSet("failsafe", key, repel, "FailsafeBroken"))
		withoutGates(ctx, func() {
			store(ctx, newRail("bad", `{limits: {maxTaintedNodes: 90%}, rules: [{name: typo, kinds: [ConditionSet], expression: "object.spec.efect != 'NoExecute'"}]}`))
			store(ctx, newRail("conditionset", `{limits: {maxTaintedNodes: 90%}}`)) // a reserved name
		})
		Eventually(setSays(ctx, "failsafe", "Accepted"), soon).Should(And(HavePrefix("False RulesNotEvaluated: bad/typo: not checked: "), ContainSubstring("efect")))
		Eventually(railSays(ctx, "bad", "Accepted")).Should(And(HavePrefix("False InvalidRule: rule typo, expression"), ContainSubstring("1:12: undefined field 'efect'")))
		Expect(railSays(ctx, "bad", "Ready")()).To(HavePrefix("False InvalidRule"))
		Expect(railSays(ctx, "bad", "Stalled")()).To(HavePrefix("True InvalidRule"))
		Eventually(events(ctx, "bad")).Should(ContainElement(HavePrefix("InvalidRule: ")))
		Eventually(railSays(ctx, "conditionset", "Accepted")).Should(HavePrefix("False RuleViolated: guardrail/reserved-name"))
		w.Report(ctx, nodes[0], "FailsafeBroken", corev1.ConditionTrue)
		Consistently(w.Effect(ctx, nodes[0], key), "2s").Should(BeEmpty())
		Expect(create(ctx, fixture.NewSet("another", w.Key("failsafe"), repel, "FailsafeToo")).refusal).To(ContainSubstring("bad/typo: not checked"))

		By("deleting the one with the rule: the other one loosens nothing")
		drop(ctx, "bad")
		for _, node := range nodes[1:3] {
			w.Report(ctx, node, "FailsafeBroken", corev1.ConditionTrue)
		}
		Eventually(tainted(ctx, nodes, key)).Should(HaveLen(1))
		drop(ctx, "tight")
		Eventually(tainted(ctx, nodes, key)).Should(HaveLen(3), "10% of 112 nodes, not 90%")
	})

	It("that pauses pauses", func(ctx SpecContext) {
		w.Create(ctx, fixture.NewSet("paused-badly", w.Key("paused-badly"), repel, "PausedBadly"))
		withoutGates(ctx, func() { store(ctx, newRail("guard", "{paused: true}")) }) // a reserved name
		Eventually(setSays(ctx, "paused-badly", "Ready")).Should(HavePrefix("True Paused: Guardrail guard pauses all new acts"))
		drop(ctx, "guard")
		Eventually(setSays(ctx, "paused-badly", "Ready")).Should(HavePrefix("True Operative"))
	})
})

var _ = Describe("Without the CRD of Guardrails", func() {
	It("a manager isn't ready and does nothing new, but undoes", func(ctx SpecContext) {
		key := w.Key("no-crd")
		nodes := w.AddNodes(ctx, 2, cluster.NodeOptions{Prefix: "no-crd"})
		set := w.Create(ctx, fixture.NewSet("no-crd", key, repel, "NoCRDBroken"))
		w.Report(ctx, nodes[0], "NoCRDBroken", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, nodes[0], key)).Should(BeEquivalentTo(repel))
		Expect(w.StopComponent(harness.Manager)).To(Succeed())
		_, err := w.Kubectl(ctx, "delete", "crd", "guardrails.autohealer.resourcestack.com")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			_, err := w.Kubectl(ctx, "apply", "--server-side", "-f", w.Root()+"/crds/autohealer.resourcestack.com_guardrails.yaml")
			Expect(err).NotTo(HaveOccurred())
		})
		starting, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { _ = w.StartComponent(starting, harness.Manager) }() // it doesn't get ready
		Eventually(func() error { return w.Kill(harness.Manager, syscall.Signal(0)) }).Should(Succeed())
		w.Report(ctx, nodes[1], "NoCRDBroken", corev1.ConditionTrue)
		w.Report(ctx, nodes[0], "NoCRDBroken", corev1.ConditionFalse)
		Eventually(w.Effect(ctx, nodes[0], key)).Should(BeEmpty(), "undo goes on")
		Consistently(w.Effect(ctx, nodes[1], key), "2s").Should(BeEmpty())
		Expect(w.Ready(ctx, set.Name)).To(HaveField("Reason", "Operative"), "as it was: what the rules say isn't known")

		By("installing it again, which needs no restart")
		_, err = w.Kubectl(ctx, "apply", "--server-side", "-f", w.Root()+"/crds/autohealer.resourcestack.com_guardrails.yaml")
		Expect(err).NotTo(HaveOccurred())
		Eventually(w.Effect(ctx, nodes[1], key)).Should(BeEquivalentTo(repel))
		Expect(w.Harness.Ready(ctx, harness.Manager)).To(Succeed())
	})
})

// withoutGates runs f while nothing but the CRD's schema judges what is stored, and puts the gates back.
func withoutGates(ctx context.Context, f func()) {
	GinkgoHelper()
	var removed []client.Object
	webhook := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	Expect(w.Client.Get(ctx, client.ObjectKey{Name: "autohealer"}, webhook)).To(Succeed())
	webhook.Webhooks[0].ClientConfig.CABundle = nil // as a fresh installation has it; the manager publishes it
	removed = append(removed, webhook)
	var bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
	Expect(w.Client.List(ctx, &bindings)).To(Succeed())
	for i := range bindings.Items {
		if bindings.Items[i].Spec.PolicyName != "autohealer-node-annotations" {
			removed = append(removed, &bindings.Items[i])
		}
	}
	for _, object := range removed {
		Expect(w.Client.Delete(ctx, object.DeepCopyObject().(client.Object))).To(Succeed())
	}
	probe := newRail("guard", "{}")
	refusal := func() string { return create(ctx, probe, client.DryRunAll).refusal }
	defer func() {
		GinkgoHelper()
		for _, object := range removed {
			object.SetResourceVersion("")
			object.SetUID("")
			Expect(w.Client.Create(ctx, object)).To(Succeed())
		}
		Eventually(refusal).Should(ContainSubstring("ValidatingAdmissionPolicy"), "the policy should be in force again")
		Eventually(func() []string {
			return create(ctx, newRail("probe", "{paused: true}"), client.DryRunAll).warnings
		}).Should(ContainElement(HavePrefix("guardrail/paused")), "the webhook should be in force again")
	}()
	Eventually(refusal).WithPolling(50*time.Millisecond).Should(BeEmpty(), "the gates should be gone")
	f()
}
