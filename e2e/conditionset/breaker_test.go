package conditionset

import (
	"context"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

var _ = Describe("A reporter that marks the whole fleet", func() {
	It("opens the breaker, which holds across restarts until it is reset by its id, and undo goes on meanwhile", func(ctx SpecContext) {
		key := w.Key("breaker")
		fleet := w.AddNodes(ctx, 20, cluster.NodeOptions{Prefix: "breaker", Labels: map[string]string{"fleet": "breaker"}})
		set := fixture.NewSet("breaker", key, repel, "BreakerBroken")
		set.Spec.NodeSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"fleet": "breaker"}}
		w.Create(ctx, set)
		history := w.Remember(ctx)
		for _, node := range fleet[:2] {
			w.Report(ctx, node, "BreakerBroken", corev1.ConditionTrue)
			Eventually(w.Effect(ctx, node, key)).Should(BeEquivalentTo(repel))
		}

		for _, node := range fleet[2:] {
			w.Report(ctx, node, "BreakerBroken", corev1.ConditionTrue)
		}
		Eventually(w.Condition(ctx, set.Name, "BreakerOpen")).Should(SatisfyAll(
			HaveField("Status", metav1.ConditionTrue), HaveField("Reason", "TooManyMatchAtOnce"), HaveField("Message", ContainSubstring("20 of 20"))))
		Expect(w.Ready(ctx, set.Name)).To(HaveField("Status", metav1.ConditionTrue), "the set itself works")
		Eventually(eventsAbout(ctx, set.Name)).Should(ContainElement("TooManyMatchAtOnce"))
		tainted := len(taintedBy(ctx, fleet, key))
		Expect(tainted).To(BeNumerically("<=", 4), "the fifth of twenty opens the breaker, so four at most were tainted before")

		By("holding while it is open, and while a restarted manager finds it open")
		Eventually(w.Status(ctx, set.Name)).Should(HaveField("Nodes.HeldBack", BeEquivalentTo(20-tainted)))
		w.KillManager()
		w.RestartManager(ctx)
		Eventually(w.Status(ctx, set.Name)).Should(HaveField("Nodes.HeldBack", BeEquivalentTo(20-tainted)))
		Consistently(func() int { return len(taintedBy(ctx, fleet, key)) }, "2s").Should(Equal(tainted))

		By("undoing while it is open")
		w.Report(ctx, fleet[0], "BreakerBroken", corev1.ConditionFalse)
		Eventually(w.Effect(ctx, fleet[0], key)).Should(BeEmpty())

		By("not taking another id for a reset")
		w.Edit(ctx, set.Name, func(set *v1alpha1.ConditionSet) {
			set.Annotations = map[string]string{v1alpha1.AnnotationResetBreaker: "19700101t000000z"}
		})
		Consistently(func() int { return len(taintedBy(ctx, fleet, key)) }, "1s").Should(Equal(tainted - 1))

		By("acting within the limits after the reset that its message asks for")
		condition, err := w.Condition(ctx, set.Name, "BreakerOpen")()
		Expect(err).NotTo(HaveOccurred())
		command := regexp.MustCompile(`kubectl annotate conditionset breaker (\S+) --overwrite`).FindStringSubmatch(condition.Message)
		Expect(command).To(HaveLen(2), condition.Message)
		_, err = w.Kubectl(ctx, "annotate", "conditionset", "breaker", command[1], "--overwrite")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() int { return len(taintedBy(ctx, fleet, key)) }).Should(Equal(12), "10% of 120 nodes")
		Eventually(w.Condition(ctx, set.Name, "BreakerOpen")).Should(BeZero())
		Eventually(w.Status(ctx, set.Name)).Should(SatisfyAll(
			HaveField("Breaker.Reset", BeTrue()), HaveField("Nodes.HeldBack", BeEquivalentTo(7))))
		expectWithinLimits(history.All(ctx), 12, 6)

		By("forgetting it when the wave is over")
		for _, node := range fleet[:17] {
			w.Report(ctx, node, "BreakerBroken", corev1.ConditionFalse)
		}
		Eventually(w.Status(ctx, set.Name)).Should(HaveField("Breaker", BeNil()))
	})
})

func taintedBy(ctx context.Context, nodes []string, key string) []string {
	GinkgoHelper()
	var list corev1.NodeList
	Expect(w.Client.List(ctx, &list)).To(Succeed())
	effects := map[string]corev1.TaintEffect{}
	for i := range list.Items {
		effects[list.Items[i].Name] = fixture.EffectOn(&list.Items[i], key)
	}
	var tainted []string
	for _, node := range nodes {
		if effects[node] != none {
			tainted = append(tainted, node)
		}
	}
	return tainted
}

// expectWithinLimits counts, at every revision, how many nodes taints of ours keep pods away from, and evict from.
func expectWithinLimits(revisions []*corev1.Node, mayRepel, mayEvict int) {
	GinkgoHelper()
	repelling, evicting := map[string]bool{}, map[string]bool{}
	for _, revision := range revisions {
		record, _, err := fixture.RecordOn(revision)
		Expect(err).NotTo(HaveOccurred())
		delete(repelling, revision.Name)
		delete(evicting, revision.Name)
		for _, claim := range record.Taints {
			effect := fixture.EffectOn(revision, claim.Key)
			if effect == repel || effect == evict {
				repelling[revision.Name] = true
			}
			if effect == evict {
				evicting[revision.Name] = true
			}
		}
		Expect(len(repelling)).To(BeNumerically("<=", mayRepel), "nodes that repel pods at version %s", revision.ResourceVersion)
		Expect(len(evicting)).To(BeNumerically("<=", mayEvict), "nodes that evict pods at version %s", revision.ResourceVersion)
	}
}
