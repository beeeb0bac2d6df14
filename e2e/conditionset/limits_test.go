package conditionset

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

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
		const nodes, zones = 300, 60 // beside the ballast of 100
		key, other := w.Key("storm"), w.Key("storm-other")
		names := w.AddNodes(ctx, nodes, cluster.NodeOptions{Prefix: "storm", Zones: zones})
		w.Create(ctx, fixture.NewSet("storm-repel", key, repel, "StormWorn"))
		w.Create(ctx, fixture.NewSet("storm-evict", key, evict, "StormBroken"))
		w.Create(ctx, fixture.NewSet("storm-other", other, repel, "StormBroken"))
		history := w.Remember(ctx)
		storm(ctx, names, "StormWorn", "StormBroken")

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

	It("count the nodes that are there only", func(ctx SpecContext) {
		key := w.Key("last")
		names := w.AddNodes(ctx, 3, cluster.NodeOptions{Prefix: "last"})
		others := append(names[1:], w.Ballast...)
		cordon := func(ctx context.Context, is bool) {
			GinkgoHelper()
			for _, name := range others {
				w.Change(ctx, name, func(n *corev1.Node) { n.Spec.Unschedulable = is })
			}
		}
		DeferCleanup(func(ctx context.Context) {
			Eventually(func(g Gomega) {
				for _, name := range w.Ballast {
					g.Expect(w.Node(ctx, name).Spec.Taints).To(BeEmpty(), "kube-controller-manager should have taken off what it had set")
				}
			}).Should(Succeed())
		})
		DeferCleanup(cordon, false)
		cordon(ctx, true)
		w.Create(ctx, fixture.NewSet("last", key, repel, "LastBroken"))
		w.Report(ctx, names[0], "LastBroken", corev1.ConditionTrue)
		Eventually(w.Condition(ctx, "last", "LimitReached")).Should(And(HaveField("Status", metav1.ConditionTrue),
			HaveField("Message", ContainSubstring("maxTaintedNodes 10% allows 0 of 1 nodes, and 0 are tainted; 102 more are cordoned, not Ready or tainted as leaving and don't count"))))
		Expect(w.Effect(ctx, names[0], key)()).To(BeEmpty(), "it is the last one")

		cordon(ctx, false)
		Eventually(w.Effect(ctx, names[0], key)).Should(BeEquivalentTo(repel))
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
		for i, name := range late { // they broke one second after the other, which reporters tell in whole seconds
			broke := w.Node(ctx, name).CreationTimestamp.Add(time.Duration(i+1) * time.Second)
			Eventually(time.Now).Should(BeTemporally(">", broke))
			Expect(w.SetCondition(ctx, name, "QueueBroken", corev1.ConditionTrue, cluster.ConditionOptions{Transition: broke})).To(Succeed())
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

// storm flips conditions of nodes in gusts. At a gust's end at most 65 nodes are sick, and so never more than 75: the
// breaker opens at 81 of 400.
func storm(ctx context.Context, names []string, conditions ...corev1.NodeConditionType) {
	GinkgoHelper()
	const gusts, flips, mostSick = 120, 10, 65
	random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0)) // Ginkgo prints the seed
	sick := map[corev1.NodeConditionType][]string{}
	for range gusts {
		group, ctx := errgroup.WithContext(ctx)
		for _, condition := range conditions {
			for _, n := range random.Perm(len(names))[:flips] {
				name, status := names[n], corev1.ConditionTrue
				i := slices.Index(sick[condition], name)
				switch {
				case i >= 0:
					sick[condition], status = slices.Delete(sick[condition], i, i+1), corev1.ConditionFalse
				case len(sick[condition]) < mostSick:
					sick[condition] = append(sick[condition], name)
				default:
					continue
				}
				group.Go(func() error {
					return w.SetCondition(ctx, name, condition, status, cluster.ConditionOptions{Transition: metav1.Now().Time})
				})
			}
		}
		Expect(group.Wait()).To(Succeed())
	}
}
