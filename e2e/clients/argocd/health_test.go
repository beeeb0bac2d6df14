package argocd

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func health() {
	It("takes a policy for Progressing until the manager has looked at it, and waits", func(ctx SpecContext) {
		const waiting application = "waiting"
		lead := startStandby(ctx)
		waiting.commit(ctx, map[string]string{"first.yaml": setOf("first"), "second.yaml": wave("1", setOf("second"))})
		waiting.create(ctx)
		Eventually(ctx, waiting.health).WithArguments("ConditionSet").Should(Equal("Progressing: Autohealer has not looked at this generation yet"))
		Expect(waiting.state(ctx)).To(Equal("OutOfSync and Missing"), "the second wave waits")
		lead()
		Eventually(ctx, waiting.state).Should(Equal(inSync))
		Expect(waiting.health(ctx, "ConditionSet")).To(HavePrefix("Healthy: Operative: 0 of 4 selected nodes match"))
	}, NodeTimeout(specTime))

	It("takes one that a Guardrail refuses later for Degraded, in the rule's words, until it holds again", func(ctx SpecContext) {
		const drifted, rules application = "drifted", "rules"
		drifted.commit(ctx, map[string]string{"set.yaml": setOf("excepted-b")})
		drifted.create(ctx)
		Eventually(ctx, drifted.state).Should(Equal(inSync))
		rules.commit(ctx, map[string]string{"guardrail.yaml": onlyNamed})
		rules.create(ctx)
		Eventually(ctx, drifted.state).Should(Equal("Synced and Degraded"))
		Expect(drifted.health(ctx, "ConditionSet")).To(Equal("Degraded: RuleViolated: only/named: call it another name (Guardrail only)"))
		rules.delete(ctx)
		Eventually(ctx, drifted.state).Should(Equal(inSync))
	}, NodeTimeout(specTime))
}
