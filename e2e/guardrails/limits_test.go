package guardrails

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

var _ = Describe("A Guardrail's limits", func() {
	It("hold as they are now: tightened no node comes on top, loosened the queue goes on at once", func(ctx SpecContext) {
		key := w.Key("limit")
		nodes := w.AddNodes(ctx, 6, cluster.NodeOptions{Prefix: "limit"})
		put(ctx, "limit", "{limits: {maxTaintedNodes: 2}}")
		w.Create(ctx, fixture.NewSet("limit", key, repel, "LimitBroken"))
		for _, node := range nodes {
			w.Report(ctx, node, "LimitBroken", corev1.ConditionTrue)
		}
		Eventually(tainted(ctx, nodes, key)).Should(HaveLen(2))
		Consistently(tainted(ctx, nodes, key), "1s").Should(HaveLen(2))
		Eventually(setSays(ctx, "limit", "LimitReached")).Should(And(HavePrefix("True TooManyTainted: 4 nodes held back"), ContainSubstring("maxTaintedNodes 2")))

		put(ctx, "limit", "{limits: {maxTaintedNodes: 4}}")
		Eventually(tainted(ctx, nodes, key), soon).Should(HaveLen(4))
		Consistently(tainted(ctx, nodes, key), "1s").Should(HaveLen(4))

		By("tightening it below what is in use, which undoes nothing")
		put(ctx, "limit", "{limits: {maxTaintedNodes: 3}}")
		now, err := tainted(ctx, nodes, key)()
		Expect(err).NotTo(HaveOccurred())
		Expect(now).To(HaveLen(4))
		for i, left := range []int{3, 3} { // the first recovery frees no room, the second frees one
			w.Report(ctx, now[i], "LimitBroken", corev1.ConditionFalse)
			Eventually(w.Effect(ctx, now[i], key)).Should(BeEmpty())
			Eventually(tainted(ctx, nodes, key)).Should(HaveLen(left))
		}
		Consistently(tainted(ctx, nodes, key), "1s").Should(HaveLen(3))

		By("taking it away: 10% of 106 nodes are allowed again")
		drop(ctx, "limit")
		Eventually(tainted(ctx, nodes, key), soon).Should(HaveLen(4))
		Eventually(setSays(ctx, "limit", "LimitReached")).Should(BeEmpty())
	})

	It("merge to the strictest of several, a number and a percentage too", func(ctx SpecContext) {
		key := w.Key("strictest")
		nodes := w.AddNodes(ctx, 5, cluster.NodeOptions{Prefix: "strictest"})
		put(ctx, "by-number", "{limits: {maxTaintedNodes: 3}}")
		put(ctx, "by-share", "{limits: {maxTaintedNodes: 2%}}") // 2 of 105
		w.Create(ctx, fixture.NewSet("strictest", key, repel, "StrictestBroken"))
		for _, node := range nodes {
			w.Report(ctx, node, "StrictestBroken", corev1.ConditionTrue)
		}
		Eventually(tainted(ctx, nodes, key)).Should(HaveLen(2))
		Consistently(tainted(ctx, nodes, key), "1s").Should(HaveLen(2))
		drop(ctx, "by-share")
		Eventually(tainted(ctx, nodes, key), soon).Should(HaveLen(3))
		Consistently(tainted(ctx, nodes, key), "1s").Should(HaveLen(3))
		drop(ctx, "by-number")
		Eventually(tainted(ctx, nodes, key), soon).Should(HaveLen(5))
	})
})

var _ = Describe("A Guardrail that pauses", func() {
	It("lets nothing new be done, while recovery is undone, and says so everywhere", func(ctx SpecContext) {
		key := w.Key("paused")
		nodes := w.AddNodes(ctx, 3, cluster.NodeOptions{Prefix: "paused"})
		w.Create(ctx, fixture.NewSet("paused", key, repel, "PausedBroken"))
		w.Create(ctx, fixture.NewSet("idle", w.Key("idle"), repel, "NeverBroken"))
		w.Report(ctx, nodes[0], "PausedBroken", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, nodes[0], key)).Should(BeEquivalentTo(repel))

		got := create(ctx, newRail("freeze", "{paused: true}"))
		DeferCleanup(drop, "freeze")
		Expect(got.refusal).To(BeEmpty())
		Expect(got.warnings).To(ContainElement(HavePrefix("guardrail/paused: ")))
		for _, set := range []string{"paused", "idle"} {
			Eventually(setSays(ctx, set, "Ready")).Should(HavePrefix("True Paused: Guardrail freeze pauses all new acts; undo goes on. "))
			Eventually(events(ctx, set)).Should(ContainElement(HavePrefix("Paused: Guardrail freeze ")))
		}
		Eventually(railSays(ctx, "freeze", "Ready")).Should(HavePrefix("True Paused: Nothing new is done in the whole cluster; undo goes on."))
		w.Report(ctx, nodes[1], "PausedBroken", corev1.ConditionTrue)
		w.Report(ctx, nodes[0], "PausedBroken", corev1.ConditionFalse)
		Eventually(w.Effect(ctx, nodes[0], key)).Should(BeEmpty())
		Consistently(w.Effect(ctx, nodes[1], key), "2s").Should(BeEmpty())

		By("staying paused while any other Guardrail pauses, also across a restart")
		put(ctx, "second", "{paused: true}")
		Eventually(setSays(ctx, "idle", "Ready")).Should(HavePrefix("True Paused: Guardrails freeze, second pause all new acts; "))
		drop(ctx, "freeze")
		Eventually(setSays(ctx, "idle", "Ready")).Should(HavePrefix("True Paused: Guardrail second pauses all new acts; "))
		w.KillManager()
		w.RestartManager(ctx)
		Consistently(w.Effect(ctx, nodes[1], key), "2s").Should(BeEmpty())
		Expect(setSays(ctx, "idle", "Ready")()).To(HavePrefix("True Paused: Guardrail second pauses all new acts; "))

		put(ctx, "second", "{paused: false}")
		Eventually(w.Effect(ctx, nodes[1], key), soon).Should(BeEquivalentTo(repel))
		for _, set := range []string{"paused", "idle"} {
			Eventually(setSays(ctx, set, "Ready")).Should(HavePrefix("True Operative: "))
			Eventually(events(ctx, set)).Should(ContainElement(HavePrefix("Resumed: ")))
		}
	})
})

var _ = Describe("What Guardrails lay down for ConditionSets", func() {
	It("includes which condition types are healthy", func(ctx SpecContext) {
		set := fixture.NewSet("declared", w.Key("declared"), repel, "GPUHealthy")
		got := create(ctx, set, client.DryRunAll)
		Expect(got.refusal).To(BeEmpty(), "nobody knows what it means")
		put(ctx, "gpu", "{conditionTypes: [{type: GPUHealthy, healthyStatus: 'True'}]}")
		Expect(create(ctx, set, client.DryRunAll).refusal).To(ContainSubstring("conditionset/matches-healthy-nodes"))
		sick := set.DeepCopy()
		sick.Spec.Conditions["GPUHealthy"] = v1alpha1.MemberCondition{Status: v1alpha1.RequiredStatus{JSON: "false"}}
		Expect(create(ctx, sick, client.DryRunAll).refusal).To(BeEmpty())

		By("being told the opposite by another Guardrail, so that both statuses are healthy")
		got = create(ctx, newRail("other", "{conditionTypes: [{type: GPUHealthy, healthyStatus: 'False'}]}"))
		DeferCleanup(drop, "other")
		Expect(got.warnings).To(ContainElement(ContainSubstring("GPUHealthy (Guardrail gpu)")))
		inForce(ctx, "other")
		for _, either := range []client.Object{set, sick} {
			Expect(create(ctx, either, client.DryRunAll).refusal).To(ContainSubstring("Guardrails disagree on which status of GPUHealthy is healthy"))
		}

		By("declaring a type of Kubernetes anew, which nobody may")
		Expect(create(ctx, newRail("ready", "{conditionTypes: [{type: Ready, healthyStatus: 'False'}]}")).refusal).To(ContainSubstring("guardrail/built-in-condition-type"))
	})

	It("stops a stored set that is found to ask for healthy nodes", func(ctx SpecContext) {
		set := w.Create(ctx, fixture.NewSet("declared-later", w.Key("declared-later"), repel, "DiskFine"))
		put(ctx, "disks", "{conditionTypes: [{type: DiskFine, healthyStatus: 'True'}]}")
		Eventually(setSays(ctx, set.Name, "Accepted"), soon).Should(HavePrefix("False RuleViolated: conditionset/matches-healthy-nodes"))
		By("a rule that refuses the Guardrail, which must not let the set go on")
		put(ctx, "owned", `{rules: [{name: r, kinds: [Guardrail], expression: "object.metadata.name == 'owned'"}]}`)
		Eventually(railSays(ctx, "disks", "Accepted")).Should(HavePrefix("False RuleViolated: owned/r"))
		Consistently(setSays(ctx, set.Name, "Accepted"), "2s").Should(HavePrefix("False RuleViolated: conditionset/matches-healthy-nodes"))

		drop(ctx, "disks")
		Eventually(setSays(ctx, set.Name, "Accepted"), soon).Should(HavePrefix("True Admitted"))
	})

	It("includes among which sets of a node the highest effect wins", func(ctx SpecContext) {
		high, low := w.Key("high"), w.Key("low")
		node := w.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: "precedence"})[0]
		w.Create(ctx, fixture.NewSet("precedence-high", high, repel, "PrecedenceBroken"))
		w.Create(ctx, fixture.NewSet("precedence-low", low, prefer, "PrecedenceBroken"))
		w.Report(ctx, node, "PrecedenceBroken", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, node, high)).Should(BeEquivalentTo(repel))
		Eventually(w.Effect(ctx, node, low)).Should(BeEquivalentTo(prefer))

		put(ctx, "by-node", "{conditionSetPrecedence: Node}")
		Eventually(w.Effect(ctx, node, low), soon).Should(BeEquivalentTo(none), "only the highest effect of the node stays")
		Expect(w.Effect(ctx, node, high)()).To(BeEquivalentTo(repel))

		By("another Guardrail that says Key: where they disagree, Key holds")
		put(ctx, "by-key", "{conditionSetPrecedence: Key}")
		Eventually(w.Effect(ctx, node, low), soon).Should(BeEquivalentTo(prefer))
	})
})

// tainted gives those of the nodes that carry a key's taint.
func tainted(ctx context.Context, nodes []string, key string) func() ([]string, error) {
	return func() ([]string, error) {
		var found []string
		for _, node := range nodes {
			effect, err := w.Effect(ctx, node, key)()
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", node, err)
			}
			if effect != none {
				found = append(found, node)
			}
		}
		return found, nil
	}
}
