package conditionset

import (
	"math/rand/v2"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

var _ = Describe("Limits", func() {
	It("hold at every moment of a storm of flips", func(ctx SpecContext) {
		const nodes, zones, flips, sickAtOnce = 300, 60, 1200, 75 // of 400 nodes, 81 would open the breaker
		key, other := w.Key("storm"), w.Key("storm-other")
		names := w.AddNodes(ctx, nodes, cluster.NodeOptions{Prefix: "storm", Zones: zones})
		w.Create(ctx, fixture.NewSet("storm-repel", key, repel, "StormWorn"))
		w.Create(ctx, fixture.NewSet("storm-evict", key, evict, "StormBroken"))
		w.Create(ctx, fixture.NewSet("storm-other", other, repel, "StormBroken"))
		history := w.Remember(ctx)

		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0)) // Ginkgo prints the seed
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(16)
		for _, condition := range []corev1.NodeConditionType{"StormWorn", "StormBroken"} {
			var sick []string
			for range flips / 2 {
				name, status := names[random.IntN(nodes)], corev1.ConditionTrue
				if len(sick) == sickAtOnce {
					name = sick[random.IntN(len(sick))]
				}
				if i := slices.Index(sick, name); i >= 0 {
					sick, status = slices.Delete(sick, i, i+1), corev1.ConditionFalse
				} else {
					sick = append(sick, name)
				}
				group.Go(func() error {
					return w.SetCondition(groupCtx, name, condition, status, cluster.ConditionOptions{Transition: metav1.Now().Time})
				})
			}
		}
		Expect(group.Wait()).To(Succeed())

		By("counting at every event: 10% and 5% of 400 nodes, and one a zone of five")
		all := history.All(ctx)
		expectWithinLimits(all, 40, 20)
		byZone := map[string][]*corev1.Node{}
		for _, revision := range all {
			byZone[revision.Labels[corev1.LabelTopologyZone]] = append(byZone[revision.Labels[corev1.LabelTopologyZone]], revision)
		}
		delete(byZone, "")
		Expect(byZone).To(HaveLen(zones))
		for _, revisions := range byZone {
			expectWithinLimits(revisions, 1, 1)
		}
		Expect(len(w.Acts("storm-repel"))+len(w.Acts("storm-evict"))).To(BeNumerically(">", 60), "there should have been a storm")

		By("saying that nodes are held back")
		for _, set := range []string{"storm-repel", "storm-evict"} {
			Eventually(w.Condition(ctx, set, "LimitReached")).Should(HaveField("Status", metav1.ConditionTrue), set)
			Eventually(w.Status(ctx, set)).Should(HaveField("Nodes.HeldBack", BeNumerically(">", 0)), set)
			Expect(w.Condition(ctx, set, "BreakerOpen")()).To(BeZero(), "the storm should stay below the breaker")
		}
	})

	It("let held-back nodes move up in the order in which their time came", func(ctx SpecContext) {
		key := w.Key("queue")
		names := w.AddNodes(ctx, 14, cluster.NodeOptions{Prefix: "queue"})
		first, late := names[:11], []string{names[13], names[11], names[12]} // 10% of 114 nodes, and three more
		set := fixture.NewSet("queue", key, repel, "QueueBroken")
		set.Spec.For = "1s"
		w.Create(ctx, set)
		history := w.Remember(ctx)
		for _, name := range first {
			w.Report(ctx, name, "QueueBroken", corev1.ConditionTrue)
		}
		Eventually(func() int { return len(taintedBy(ctx, names, key)) }).Should(Equal(11))
		for _, name := range late {
			w.Report(ctx, name, "QueueBroken", corev1.ConditionTrue)
		}
		Eventually(w.Status(ctx, "queue")).Should(HaveField("Nodes", HaveValue(SatisfyAll(
			HaveField("Matching", BeEquivalentTo(14)), HaveField("Tainted", BeEquivalentTo(11)), HaveField("HeldBack", BeEquivalentTo(3))))))
		Eventually(w.Condition(ctx, "queue", "LimitReached")).Should(SatisfyAll(
			HaveField("Status", metav1.ConditionTrue), HaveField("Reason", "TooManyTainted"), HaveField("Message", ContainSubstring("11 of 114"))))
		Eventually(eventsAbout(ctx, "queue")).Should(ContainElement("TooManyTainted"))

		for i, next := range late {
			w.Report(ctx, first[i], "QueueBroken", corev1.ConditionFalse)
			Eventually(w.Effect(ctx, next, key)).Should(BeEquivalentTo(repel))
			Expect(taintedBy(ctx, late, key)).To(ConsistOf(late[:i+1]), "the one that waited longest should be next")
		}
		expectWithinLimits(history.All(ctx), 11, 5)
		Eventually(w.Condition(ctx, "queue", "LimitReached")).Should(BeZero())
	})
})
