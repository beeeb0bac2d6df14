package guardrails

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

const justPause = `{"spec":{"paused":true}}`

var _ = Describe("In an emergency", func() {
	It("everything can be paused while nobody answers the webhook, and is", func(ctx SpecContext) {
		key := w.Key("emergency")
		node := w.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: "emergency"})[0]
		w.Create(ctx, fixture.NewSet("emergency", key, repel, "EmergencyBroken"))
		put(ctx, "emergency", "{limits: {maxTaintedNodes: 50%}}")
		unreachable(ctx)
		for _, more := range []string{`{"spec":{"paused":true,"limits":{"maxTaintedNodes":"90%"}}}`, `{"spec":{"paused":true,"limits":null}}`} {
			_, err := w.Kubectl(ctx, "patch", "guardrail", "emergency", "--type=merge", "-p", more)
			Expect(err).To(MatchError(ContainSubstring("failed calling webhook")), "more than a pause must be judged")
		}
		_, err := w.Kubectl(ctx, "patch", "guardrail", "emergency", "--type=merge", "-p", justPause)
		Expect(err).NotTo(HaveOccurred())
		Eventually(setSays(ctx, "emergency", "Ready")).Should(HavePrefix("True Paused: Guardrail emergency pauses all new acts"))
		w.Report(ctx, node, "EmergencyBroken", corev1.ConditionTrue)
		Consistently(w.Effect(ctx, node, key), "2s").Should(BeEmpty())

		By("seeing that only a pause is let through: going on must be judged")
		_, err = w.Kubectl(ctx, "patch", "guardrail", "emergency", "--type=merge", "-p", `{"spec":{"paused":false}}`)
		Expect(err).To(MatchError(ContainSubstring("failed calling webhook")))
		drop(ctx, "emergency") // a deletion needs nobody
		Eventually(w.Effect(ctx, node, key)).Should(BeEquivalentTo(repel))
	})

	It("no rule over Guardrails is in the way of a pause", func(ctx SpecContext) {
		put(ctx, "strict", `{rules: [{name: never, kinds: [Guardrail], expression: "!has(object.spec.paused) || has(object.spec.rules)"}]}`)
		put(ctx, "stop", "{}")
		_, err := w.Kubectl(ctx, "patch", "guardrail", "stop", "--type=merge", "-p", justPause)
		Expect(err).NotTo(HaveOccurred())
		drop(ctx, "stop")
		got := create(ctx, newRail("stop", "{paused: true}"), client.DryRunAll)
		Expect(got.refusal).To(BeEmpty())
		Expect(got.warnings).To(ContainElement(HavePrefix("strict/never: ")))
		Expect(create(ctx, newRail("stop", "{paused: true, limits: {maxTaintedNodes: 90%}}"), client.DryRunAll).refusal).To(ContainSubstring("strict/never"))
	})
})

// unreachable sends the API server's calls of the webhook where nobody listens, until the spec ends.
func unreachable(ctx context.Context) {
	GinkgoHelper()
	webhook := func() *admissionregistrationv1.ValidatingWebhookConfiguration {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{}
	}
	was := webhook()
	Expect(w.Client.Get(ctx, client.ObjectKey{Name: "autohealer"}, was)).To(Succeed())
	call := func(ctx context.Context, url *string) {
		GinkgoHelper()
		is := webhook()
		is.Name = was.Name
		patch := fmt.Sprintf(`[{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": %q}]`, ptr.Deref(url, ""))
		Expect(w.Client.Patch(ctx, is, client.RawPatch(types.JSONPatchType, []byte(patch)))).To(Succeed())
	}
	probe := func(ctx context.Context) func() string {
		return func() string { return create(ctx, newRail("reached", "{}"), client.DryRunAll).refusal }
	}
	call(ctx, ptr.To("https://"+cluster.Unserved()+"/validate"))
	DeferCleanup(func(ctx context.Context) {
		call(ctx, was.Webhooks[0].ClientConfig.URL)
		Eventually(probe(ctx)).Should(BeEmpty(), "the webhook should answer again")
	})
	Eventually(probe(ctx)).WithPolling(50 * time.Millisecond).Should(ContainSubstring("failed calling webhook"))
}
