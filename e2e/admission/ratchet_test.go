package admission

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A stored set that breaks a rule", func() {
	const stored = `{type: Ratchet, effect: NoSchedule, taintKey: example.com/ratchet, mode: Observe, maxNodes: 0, conditions: {KernelDeadlock: {status: false}}}`
	const (
		emptyCap = "conditionset/empty-cap: "
		healthy  = "conditionset/matches-healthy-nodes: "
		asBefore = "; it was so before, and this update doesn't touch it"
	)
	patch := func(ctx SpecContext, spec string) (string, error) {
		return kubectl(ctx, "patch", "conditionset", "ratchet", "--type=merge", "-p", `{"spec":`+spec+`}`)
	}
	BeforeEach(func(ctx SpecContext) {
		withoutGates(ctx, func() { create(ctx, "ratchet", stored) })
		Eventually(ctx, conditionOf("ratchet", "Accepted")).Should(HavePrefix("False RuleViolated"))
	}, NodeTimeout(specTime))

	It("may change in what the rule doesn't read, with a warning", func(ctx SpecContext) {
		output, err := patch(ctx, `{"staleAfter":"20m"}`)
		Expect(err).NotTo(HaveOccurred(), output)
		Expect(warnings(output)).To(ConsistOf(
			And(HavePrefix("Warning: "+emptyCap+"maxNodes: 0 "), HaveSuffix(asBefore)),
			And(HavePrefix("Warning: "+healthy+"every condition "), HaveSuffix(asBefore)),
		))
		set, err := get(ctx, "ratchet")
		Expect(err).NotTo(HaveOccurred())
		Expect(set.Object["spec"]).To(HaveKeyWithValue("staleAfter", "20m"))
	}, NodeTimeout(specTime))

	It("may not change in what the rule reads, unless for the better", func(ctx SpecContext) {
		output, err := patch(ctx, `{"maxNodes":"0%"}`)
		Expect(err).To(HaveOccurred(), output)
		Expect(output).To(ContainSubstring(emptyCap + "maxNodes: 0% lets the set taint no node"))

		output, err = patch(ctx, `{"conditions":{"KernelDeadlock":{"status":"false"}}}`)
		Expect(err).To(HaveOccurred(), output)
		Expect(output).To(ContainSubstring(healthy))

		output, err = patch(ctx, `{"maxNodes":1}`)
		Expect(err).NotTo(HaveOccurred(), output)
		Expect(warnings(output)).To(ConsistOf(ContainSubstring(healthy)))
	}, NodeTimeout(specTime))

	It("is judged anew by every rule when it begins to enforce", func(ctx SpecContext) {
		enforced := func() []string {
			GinkgoHelper()
			var said []string
			for _, mode := range []string{`{"mode":"Enforce"}`, `{"mode":null}`} { // Enforce is the default
				output, err := patch(ctx, mode)
				Expect(err).To(HaveOccurred(), output)
				said = append(said, verdict(output)...)
			}
			return said
		}
		byPolicy := enforced()
		Expect(byPolicy).To(ConsistOf(HavePrefix(emptyCap), HavePrefix(healthy), HavePrefix(emptyCap), HavePrefix(healthy)))
		withoutPolicy(ctx, func() { Expect(enforced()).To(Equal(byPolicy), "the webhook says the same") })

		output, err := patch(ctx, `{"mode":"Enforce","maxNodes":1,"conditions":{"KernelDeadlock":{"status":true}}}`)
		Expect(err).NotTo(HaveOccurred(), output)
		Eventually(ctx, conditionOf("ratchet", "Ready")).Should(HavePrefix("True Operative"))
	}, NodeTimeout(specTime))
})
