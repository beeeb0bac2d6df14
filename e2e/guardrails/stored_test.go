package guardrails

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

// soon is how long a stored policy may take to follow a rule.
const soon = "1s"

var _ = Describe("A rule that comes later", func() {
	It("stops what it refuses within a second, and undo goes on", func(ctx SpecContext) {
		key := w.Key("tightened")
		nodes := w.AddNodes(ctx, 2, cluster.NodeOptions{Prefix: "tightened"})
		set := w.Create(ctx, fixture.NewSet("tightened", key, repel, "TightenedBroken"))
		w.Report(ctx, nodes[0], "TightenedBroken", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, nodes[0], key)).Should(BeEquivalentTo(repel))

		store(ctx, newRail("tight", rule("r", "object.metadata.name != 'tightened'")))
		began := time.Now()
		Eventually(setSays(ctx, set.Name, "Accepted"), soon).Should(HavePrefix("False RuleViolated: tight/r: "))
		AddReportEntry("Accepted followed after", time.Since(began).String())
		Expect(setSays(ctx, set.Name, "Ready")()).To(HavePrefix("False RuleViolated"))
		Expect(setSays(ctx, set.Name, "Stalled")()).To(HavePrefix("True RuleViolated: tight/r: "))
		Eventually(events(ctx, set.Name)).Should(ContainElement(HavePrefix("RuleViolated: tight/r: ")))
		Eventually(railSays(ctx, "tight", "Ready")).Should(And(HavePrefix("True Operative"), ContainSubstring("refuse 1 stored policy")))
		Eventually(func() (v1alpha1.GuardrailStatus, error) {
			rail, err := readRail(ctx, "tight")
			return rail.Status, err
		}).Should(And(HaveField("Rules", HaveValue(BeEquivalentTo(1))), HaveField("Rejects", HaveValue(BeEquivalentTo(1))), HaveField("RejectedPolicies", []string{"ConditionSet/tightened"})))

		By("doing nothing new, and undoing what stopped matching")
		w.Report(ctx, nodes[1], "TightenedBroken", corev1.ConditionTrue)
		w.Report(ctx, nodes[0], "TightenedBroken", corev1.ConditionFalse)
		Eventually(w.Effect(ctx, nodes[0], key)).Should(BeEmpty())
		Consistently(w.Effect(ctx, nodes[1], key), "2s").Should(BeEmpty())

		By("going on when the rule is gone")
		drop(ctx, "tight")
		Eventually(w.Effect(ctx, nodes[1], key), soon).Should(BeEquivalentTo(repel))
		Eventually(setSays(ctx, set.Name, "Accepted")).Should(HavePrefix("True Admitted"))
	})

	It("has only those judged again that it concerns", func(ctx SpecContext) {
		var sets []*v1alpha1.ConditionSet
		for i := range 3 {
			name := fmt.Sprintf("unconcerned-%d", i)
			sets = append(sets, w.Create(ctx, fixture.NewSet(name, w.Key("unconcerned"), repel, "UnconcernedBroken")))
		}
		before := settled(ctx, sets)
		put(ctx, "others", `{rules: [{name: r, kinds: [GuardrailException], expression: "object.metadata.name != 'nobody'"}]}`)
		Consistently(versions(ctx, sets), "2s").Should(Equal(before), "a rule for another kind, and whatever a Guardrail's status says, is no news for a set")
		drop(ctx, "others")
		Consistently(versions(ctx, sets), "2s").Should(Equal(before))
	})

	It("is refused by what reads labels as soon as these change", func(ctx SpecContext) {
		put(ctx, "labels", rule("r", "!has(object.metadata.labels) || !('bad' in object.metadata.labels)"))
		set := w.Create(ctx, fixture.NewSet("labelled", w.Key("labelled"), repel, "LabelledBroken"))
		_, err := w.Kubectl(ctx, "label", "conditionset", set.Name, "bad=yes")
		Expect(err).NotTo(HaveOccurred())
		Eventually(setSays(ctx, set.Name, "Accepted"), soon).Should(HavePrefix("False RuleViolated: labels/r"))
		_, err = w.Kubectl(ctx, "label", "conditionset", set.Name, "bad-")
		Expect(err).NotTo(HaveOccurred())
		Eventually(setSays(ctx, set.Name, "Accepted"), soon).Should(HavePrefix("True Admitted"))
	})
})

// settled gives the versions of sets of which no status is due any more.
func settled(ctx context.Context, sets []*v1alpha1.ConditionSet) []string {
	GinkgoHelper()
	var last []string
	Eventually(func() bool {
		was := last
		last = versions(ctx, sets)()
		return fmt.Sprint(was) == fmt.Sprint(last)
	}).WithPolling(1500 * time.Millisecond).Should(BeTrue())
	return last
}

func versions(ctx context.Context, sets []*v1alpha1.ConditionSet) func() []string {
	return func() []string {
		var all []string
		for _, set := range sets {
			stored := &v1alpha1.ConditionSet{}
			Expect(w.Client.Get(ctx, client.ObjectKeyFromObject(set), stored)).To(Succeed())
			all = append(all, stored.Name+"@"+stored.ResourceVersion)
		}
		return all
	}
}
