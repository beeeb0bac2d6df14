package faults

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/internal/guard"
)

const (
	guardrailsPath = "/apis/autohealer.resourcestack.com/v1alpha1/guardrails"
	exceptionsPath = "/apis/autohealer.resourcestack.com/v1alpha1/guardrailexceptions"
)

var _ = Describe("A watch of what rules that died without a word", func() {
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

	It("lets nothing be done that a Guardrail forbids meanwhile, and undo goes on", func(ctx SpecContext) {
		key := w.Key("silent-rails")
		nodes := w.AddNodes(ctx, 2, cluster.NodeOptions{Prefix: "silent-rails"})
		set := w.Create(ctx, fixture.NewSet("silent-rails", key, repel, "SilentRails"))
		history := w.Remember(ctx)
		w.Report(ctx, nodes[0], "SilentRails", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, nodes[0], key)).Should(BeEquivalentTo(repel))

		proxied.silence(guardrailsPath)
		rail := &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "unheard"}, Spec: v1alpha1.GuardrailSpec{Paused: true}}
		Expect(w.Client.Create(ctx, rail)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(w.Client.Delete(ctx, rail))).To(Succeed()) })
		// The list that let the first node be tainted is believed for ten seconds.
		Consistently(w.Effect(ctx, nodes[1], key), "11s").Should(BeEmpty())
		w.Report(ctx, nodes[1], "SilentRails", corev1.ConditionTrue)
		w.Report(ctx, nodes[0], "SilentRails", corev1.ConditionFalse)
		Eventually(w.Effect(ctx, nodes[0], key)).Should(BeEmpty(), "undo goes on")
		Consistently(w.Effect(ctx, nodes[1], key), "8s").Should(BeEmpty())
		Eventually(func() (metav1.Condition, error) { return w.Ready(ctx, set.Name) }).Should(SatisfyAll(HaveField("Reason", "GuardrailsUnknown"), HaveField("Message", ContainSubstring("its watch reports no change"))),
			"a watch that stays silent is trouble that one must hear of")

		By("taking the pause back, which the watch doesn't tell either: what is in force is what is stored again")
		Expect(w.Client.Delete(ctx, rail)).To(Succeed())
		Eventually(w.Effect(ctx, nodes[1], key)).Should(BeEquivalentTo(repel))
		proxied.speak(guardrailsPath)
		Expect(history.Effects(ctx, nodes[1], key)).To(HaveExactElements(corev1.TaintEffect(none), corev1.TaintEffect(repel)))
	})

	It("lets nothing be done that an exception allowed which was taken back meanwhile", func(ctx SpecContext) {
		key := w.Key("silent-exceptions")
		node := w.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: "silent-exceptions"})[0]
		set := w.Create(ctx, fixture.NewSet("silent-exceptions", key, repel, "SilentExceptions"))
		hash, err := guard.SpecHash(set)
		Expect(err).NotTo(HaveOccurred())
		exception := &v1alpha1.GuardrailException{ObjectMeta: metav1.ObjectMeta{Name: "unheard"}, Spec: v1alpha1.GuardrailExceptionSpec{
			RuleIDs: []string{"unheard/r"}, TargetRef: v1alpha1.ExceptionTarget{Kind: "ConditionSet", Name: set.Name}, SpecHash: hash,
			Reason: "end-to-end test", ExpiresAt: v1alpha1.Timestamp(time.Now().Add(time.Hour).UTC().Format(time.RFC3339)),
		}}
		rail := &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "unheard"}, Spec: v1alpha1.GuardrailSpec{Rules: []v1alpha1.GuardrailRule{{
			Name: "r", Kinds: []string{"ConditionSet"}, Exceptable: true, Expression: "object.metadata.name != 'silent-exceptions'",
		}}}}
		Expect(w.Client.Create(ctx, rail)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(w.Client.Delete(ctx, rail))).To(Succeed()) })
		Eventually(w.Condition(ctx, set.Name, "Accepted")).Should(HaveField("Status", metav1.ConditionFalse))
		Expect(w.Client.Create(ctx, exception)).To(Succeed())
		Eventually(w.Condition(ctx, set.Name, "Accepted")).Should(HaveField("Status", metav1.ConditionTrue))

		proxied.silence(exceptionsPath)
		Expect(w.Client.Delete(ctx, exception)).To(Succeed())
		// What the manager that has just started listed is believed for ten seconds.
		Consistently(w.Effect(ctx, node, key), "11s").Should(BeEmpty())
		w.Report(ctx, node, "SilentExceptions", corev1.ConditionTrue)
		Consistently(w.Effect(ctx, node, key), "3s").Should(BeEmpty())
		proxied.speak(exceptionsPath)
		Eventually(w.Condition(ctx, set.Name, "Accepted")).Should(HaveField("Status", metav1.ConditionFalse))
		Consistently(w.Effect(ctx, node, key), "1s").Should(BeEmpty())
	})
})
