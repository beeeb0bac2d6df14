package guardrails

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
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
		judgedAgain(ctx, 0, "a rule for another kind, and whatever a Guardrail's status says", func() {
			put(ctx, "others", `{rules: [{name: r, kinds: [GuardrailException], expression: "object.metadata.name != 'nobody'"}]}`)
			drop(ctx, "others")
		})
		judgedAgain(ctx, 0, "limits that no rule reads, and a pause", func() {
			put(ctx, "others", "{limits: {maxTaintedNodes: 5%}}")
			put(ctx, "others", "{paused: true, limits: {maxTaintedNodes: 5%}}")
			drop(ctx, "others")
		})
		judgedAgain(ctx, 0, "facts: nodes that come, match and go", func() {
			node := w.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: "unconcerned"})[0]
			w.Report(ctx, node, "UnconcernedBroken", corev1.ConditionTrue)
			Eventually(w.Effect(ctx, node, sets[0].Spec.TaintKey)).Should(BeEquivalentTo(repel))
			_, err := w.Kubectl(ctx, "delete", "node", node)
			Expect(err).NotTo(HaveOccurred())
		})
		judgedAgain(ctx, len(sets), "a rule for the kind", func() {
			put(ctx, "others", rule("r", "limits.maxTaintedNodes.percent != 7"))
		})
		judgedAgain(ctx, len(sets), "a limit that it reads", func() {
			put(ctx, "others", `{limits: {maxTaintedNodes: 5%}, rules: [{name: r, kinds: [ConditionSet], expression: "limits.maxTaintedNodes.percent != 7"}]}`)
		})
		judgedAgain(ctx, 1, "one set's label", func() {
			_, err := w.Kubectl(ctx, "label", "conditionset", sets[1].Name, "team=nodes")
			Expect(err).NotTo(HaveOccurred())
		})
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

// judgedAgain expects that a change has the rules asked so often about stored sets, and no more often.
func judgedAgain(ctx context.Context, times int, what string, change func()) {
	GinkgoHelper()
	var before int
	Eventually(func() bool {
		was := before
		before = judgements(ctx)
		return was == before
	}).WithPolling(1500*time.Millisecond).Should(BeTrue(), "nothing else should be judged any more")
	change()
	Eventually(judgements).WithArguments(ctx).Should(BeNumerically(">=", before+times), what)
	Consistently(judgements, "1500ms").WithArguments(ctx).Should(Equal(before+times), what)
}

// judgements are how often the manager asked the rules about stored sets.
func judgements(ctx context.Context) int {
	GinkgoHelper()
	text, err := w.Scrape(ctx, harness.Manager, token)
	Expect(err).NotTo(HaveOccurred())
	found := regexp.MustCompile(`\nautohealer_policy_evaluations_total\{kind="ConditionSet"\} ([0-9]+)\n`).FindStringSubmatch(text)
	Expect(found).NotTo(BeNil())
	n, err := strconv.Atoi(found[1])
	Expect(err).NotTo(HaveOccurred())
	return n
}
