package conditionset

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

var _ = Describe("Two sets with one key", func() {
	It("escalate and de-escalate in one write each, without a gap", func(ctx SpecContext) {
		key := w.Key("precedence")
		node := w.AddNodesInOwnZones(ctx, 1, "precedence")[0]
		w.Create(ctx, fixture.NewSet("gentle", key, repel, "PrecedenceWorn"))
		w.Create(ctx, fixture.NewSet("firm", key, evict, "PrecedenceBroken"))
		history := w.Remember(ctx)

		for _, step := range []struct {
			condition corev1.NodeConditionType
			status    corev1.ConditionStatus
			effect    corev1.TaintEffect
			sets      []string
		}{
			{"PrecedenceWorn", corev1.ConditionTrue, repel, []string{"gentle"}},
			{"PrecedenceBroken", corev1.ConditionTrue, evict, []string{"gentle", "firm"}},
			{"PrecedenceBroken", corev1.ConditionFalse, repel, []string{"gentle"}},
			{"PrecedenceWorn", corev1.ConditionFalse, none, nil},
		} {
			w.Report(ctx, node, step.condition, step.status)
			Eventually(w.Effect(ctx, node, key)).Should(Equal(step.effect), "%s is %s", step.condition, step.status)
			Expect(claimants(w.Node(ctx, node))).To(ConsistOf(step.sets))
		}

		Expect(history.Effects(ctx, node, key)).To(HaveExactElements(
			corev1.TaintEffect(none), corev1.TaintEffect(repel), corev1.TaintEffect(evict), corev1.TaintEffect(repel), corev1.TaintEffect(none)))
		Expect(taintChanges(history.Of(ctx, node))).To(Equal(4), "each step should be one write")
	})

	It("keep the higher effect when the lower one's set matches later and goes first", func(ctx SpecContext) {
		key := w.Key("precedence")
		node := w.AddNodesInOwnZones(ctx, 1, "precedence-late")[0]
		w.Create(ctx, fixture.NewSet("gentle-late", key, repel, "PrecedenceWorn"))
		w.Create(ctx, fixture.NewSet("firm-early", key, evict, "PrecedenceBroken"))
		history := w.Remember(ctx)

		w.Report(ctx, node, "PrecedenceBroken", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, node, key)).Should(BeEquivalentTo(evict))
		w.Report(ctx, node, "PrecedenceWorn", corev1.ConditionTrue)
		Eventually(func() []string { return claimants(w.Node(ctx, node)) }).Should(ConsistOf("gentle-late", "firm-early"))
		w.Report(ctx, node, "PrecedenceWorn", corev1.ConditionFalse)
		Eventually(func() []string { return claimants(w.Node(ctx, node)) }).Should(ConsistOf("firm-early"))

		Expect(history.Effects(ctx, node, key)).To(HaveExactElements(corev1.TaintEffect(none), corev1.TaintEffect(evict)))
	})
})

func claimants(node *corev1.Node) []string {
	GinkgoHelper()
	record, _, err := fixture.RecordOn(node)
	Expect(err).NotTo(HaveOccurred())
	var sets []string
	for _, claim := range record.Taints {
		sets = append(sets, claim.Name)
	}
	return sets
}

// taintChanges counts the writes that changed taints or record.
func taintChanges(revisions []*corev1.Node) int {
	GinkgoHelper()
	changes := 0
	for i := range revisions[1:] {
		before, after := revisions[i], revisions[i+1]
		sameTaints, err := Equal(before.Spec.Taints).Match(after.Spec.Taints)
		if len(before.Spec.Taints)+len(after.Spec.Taints) == 0 {
			sameTaints, err = true, nil // Equal refuses to compare nil with nil
		}
		Expect(err).NotTo(HaveOccurred())
		if !sameTaints || before.Annotations[fixture.RecordAnnotation] != after.Annotations[fixture.RecordAnnotation] {
			changes++
		}
	}
	return changes
}
