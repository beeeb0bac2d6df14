package admission

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A spec that fits the schema and can't be read", func() {
	const (
		value = `{type: Unreadable, effect: NoSchedule, taintKey: example.com/unreadable, nodeSelector: {matchLabels: {zone: "a b"}}, conditions: {KernelDeadlock: {status: true}}}`
		key   = `{type: Unreadable, effect: NoSchedule, taintKey: example.com/unreadable, nodeSelector: {matchExpressions: [{key: "a b", operator: Exists}]}, conditions: {KernelDeadlock: {status: true}}}`
		rule  = "conditionset/unreadable-spec: spec.nodeSelector: "
	)

	DescribeTable("is refused, with what can't be read", func(ctx SpecContext, spec, want string) {
		removedAfterwards("unreadable")
		path := file(manifest("unreadable", spec))
		message := refused(ctx, "apply", "-f", path)
		Expect(message).To(And(ContainSubstring(rule), ContainSubstring(want)))
		Expect(refused(ctx, "apply", "-f", path, "--dry-run=server")).To(Equal(message))
	},
		Entry("a label's value", value, `"a b"`),
		Entry("a label's key", key, `"a b"`),
	)

	It("says so in its status when it was stored all the same, and can be mended and deleted", func(ctx SpecContext) {
		withoutGates(ctx, func() { create(ctx, "unreadable", value) })
		Eventually(ctx, conditionOf("unreadable", "Accepted")).Should(And(HavePrefix("False InvalidSpec: spec.nodeSelector: "), ContainSubstring(`"a b"`)))
		Expect(kstatusOf(ctx, "unreadable")).To(HavePrefix("Failed"))
		Expect(conditionsOf(ctx, "unreadable")).To(Equal(map[string]string{"Accepted": "False InvalidSpec", "Ready": "False InvalidSpec", "Stalled": "True InvalidSpec"}))
		Eventually(ctx, eventsOn("unreadable")).Should(ContainElement(HavePrefix("Warning InvalidSpec: ")))

		accepted(ctx, "label", "conditionset", "unreadable", "team=nodes")
		accepted(ctx, "patch", "conditionset", "unreadable", "--type=merge", "-p", `{"spec":{"nodeSelector":{"matchLabels":{"zone":"a"}}}}`)
		Eventually(ctx, conditionOf("unreadable", "Ready")).Should(HavePrefix("True Operative"))
		deleteAndWait(ctx, "unreadable")
	}, NodeTimeout(specTime))

	It("can be deleted as it is", func(ctx SpecContext) {
		withoutGates(ctx, func() { create(ctx, "unreadable", key) })
		Eventually(ctx, conditionOf("unreadable", "Accepted")).Should(HavePrefix("False InvalidSpec"))
		deleteAndWait(ctx, "unreadable")
	}, NodeTimeout(specTime))
})
