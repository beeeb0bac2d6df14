package runbooks

import (
	"context"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/harness"
)

const status, check = "kubectl autohealer status", "kubectl autohealer check"

// series expects one of the manager's with this value.
func series(ctx context.Context, line string) {
	GinkgoHelper()
	Eventually(scrape).WithContext(ctx).Should(ContainSubstring("\n" + line + "\n"))
}

var _ = Describe("docs/runbooks", Ordered, ContinueOnFailure, func() {
	AfterEach(func(ctx SpecContext) {
		sick(ctx, 0)
		series(ctx, `autohealer_conditionset_nodes{policy="kernel-deadlock",state="tainted"} 0`)
	})

	It("no-leader.md", func(ctx SpecContext) {
		series(ctx, `leader_election_master_status{name="autohealer-manager"} 1`)
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		expectPage(ctx, "no-leader.md", check)
		Expect(h.StartComponent(ctx, harness.Manager)).To(Succeed())
		series(ctx, `leader_election_master_status{name="autohealer-manager"} 1`)
	})

	It("webhook-failing.md", func(ctx SpecContext) {
		url, err := h.Kubectl(ctx, "get", "validatingwebhookconfiguration", "autohealer", "-o", "jsonpath={.webhooks[0].clientConfig.url}")
		Expect(err).NotTo(HaveOccurred())
		call := func(url string) {
			_, err := h.Kubectl(ctx, "patch", "validatingwebhookconfiguration", "autohealer", "--type=json", "-p", `[{"op":"replace","path":"/webhooks/0/clientConfig/url","value":"`+url+`"}]`)
			Expect(err).NotTo(HaveOccurred())
		}
		call("https://127.0.0.1:1/validate")
		expectPage(ctx, "webhook-failing.md", check)
		text, err := scrapeServer(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(slices.Collect(strings.Lines(text))).To(ContainElement(SatisfyAll(
			HavePrefix("apiserver_admission_webhook_rejection_count{"), ContainSubstring(`error_type="calling_webhook_error"`), ContainSubstring(`name="policies.autohealer.resourcestack.com"`))))
		call(url)
		Eventually(func() string { return run(ctx, check) }).Should(ContainSubstring("The installation is sound."))
	})

	It("breaker-open.md", func(ctx SpecContext) {
		sick(ctx, 6)
		series(ctx, `autohealer_conditionset_breaker_open{policy="kernel-deadlock"} 1`)
		commands, _ := shown("breaker-open.md")
		for _, command := range commands {
			expectPage(ctx, "breaker-open.md", command)
		}
		series(ctx, `autohealer_conditionset_breaker_open{policy="kernel-deadlock"} 0`)
	})

	It("limit-reached.md", func(ctx SpecContext) {
		sick(ctx, 2)
		series(ctx, `autohealer_conditionset_limit_reached{policy="kernel-deadlock"} 1`)
		expectPage(ctx, "limit-reached.md", status)
		sick(ctx, 1)
		series(ctx, `autohealer_conditionset_limit_reached{policy="kernel-deadlock"} 0`)
	})

	It("frozen.md", func(ctx SpecContext) {
		Expect(run(ctx, "kubectl autohealer freeze --reason=INC-4711")).To(ContainSubstring("The manager confirms"))
		series(ctx, "autohealer_guardrail_frozen 1")
		commands, _ := shown("frozen.md")
		for _, command := range commands {
			expectPage(ctx, "frozen.md", command)
		}
		series(ctx, "autohealer_guardrail_frozen 0")
	})
})
