package conditionset

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("An eviction", func() {
	// evictOne has the first of a zone's nodes evicted, and gives the nodes.
	evictOne := func(ctx context.Context, name, key string, condition corev1.NodeConditionType) []string {
		GinkgoHelper()
		nodes := w.AddNodes(ctx, 3, cluster.NodeOptions{Prefix: name, Labels: map[string]string{corev1.LabelTopologyZone: name}})
		w.Report(ctx, nodes[0], condition, corev1.ConditionTrue)
		Eventually(w.Effect(ctx, nodes[0], key)).Should(BeEquivalentTo(evict))
		return nodes
	}
	paced := func(held string) types.GomegaMatcher {
		return SatisfyAll(HaveField("Reason", "TooManyEvicting"), HaveField("Message", HavePrefix(held+" held back: one node of zone")))
	}

	It("paces others though its node was deleted, and though all managers restart", func(ctx SpecContext) {
		key := w.Key("outlived")
		set := w.Create(ctx, fixture.NewSet("outlived", key, evict, "OutlivedBroken"))
		nodes := evictOne(ctx, "outlived", key, "OutlivedBroken")
		evicted := w.Node(ctx, nodes[0])
		Expect(w.Client.Delete(ctx, evicted)).To(Succeed())

		w.Report(ctx, nodes[1], "OutlivedBroken", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, nodes[1], key)).Should(BeEquivalentTo(repel))
		Eventually(w.Condition(ctx, set.Name, "LimitReached")).Should(paced("1 node"))

		w.KillManager()
		w.RestartManager(ctx)
		w.Report(ctx, nodes[2], "OutlivedBroken", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, nodes[2], key)).Should(BeEquivalentTo(repel))
		Eventually(w.Condition(ctx, set.Name, "LimitReached")).Should(paced("2 nodes"))

		By("recording it where it outlives the node")
		var record corev1.ConfigMap
		Expect(w.Client.Get(ctx, client.ObjectKey{Namespace: harness.Namespace, Name: "autohealer-evictions"}, &record)).To(Succeed())
		Expect(record.Data).To(HaveKeyWithValue(string(evicted.UID), ContainSubstring(`{"name":"`+evicted.Name+`","zone":"outlived","began":"`)))
	})

	It("paces the next one though its set only observed meanwhile, and is the last but one within an hour though the set is made anew", func(ctx SpecContext) {
		key := w.Key("toggled")
		set := w.Create(ctx, fixture.NewSet("toggled", key, evict, "ToggledBroken"))
		node := evictOne(ctx, "toggled", key, "ToggledBroken")[0]
		mode := func(mode v1alpha1.Mode) {
			w.Edit(ctx, set.Name, func(cs *v1alpha1.ConditionSet) { cs.Spec.Mode = mode })
		}
		mode(v1alpha1.Observe)
		Eventually(w.Effect(ctx, node, key)).Should(BeEmpty())
		mode(v1alpha1.Enforce)
		Eventually(w.Effect(ctx, node, key)).Should(BeEquivalentTo(repel))
		Eventually(w.Condition(ctx, set.Name, "LimitReached")).Should(paced("1 node"))

		w.Discard(ctx, set)
		w.Create(ctx, fixture.NewSet("toggled", key, evict, "ToggledBroken"))
		Eventually(w.Effect(ctx, node, key)).Should(BeEquivalentTo(repel))
		Expect(fixture.ClaimOn(w.Node(ctx, node), key)).To(HaveField("Times", 3), "it is the third taint of this node by a set of this name")
	})
})

var _ = Describe("A breaker", func() {
	It("counts nodes that were deleted while they matched, and stays open though its set is made anew", func(ctx SpecContext) {
		key := w.Key("departed")
		nodes := w.AddNodes(ctx, 12, cluster.NodeOptions{Prefix: "departed", Labels: map[string]string{"fleet": "departed"}})
		set := fixture.NewSet("departed", key, prefer, "DepartedBroken")
		set.Spec.NodeSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"fleet": "departed"}}
		w.Create(ctx, set)
		open := SatisfyAll(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", "TooManyMatchAtOnce"))
		sickAndHeld := func(node string) {
			GinkgoHelper()
			w.Report(ctx, node, "DepartedBroken", corev1.ConditionTrue)
			Eventually(w.Condition(ctx, set.Name, "BreakerOpen")).Should(open)
			Eventually(w.Status(ctx, set.Name)).Should(HaveField("Nodes.HeldBack", BeEquivalentTo(1)))
			Expect(w.Effect(ctx, node, key)()).To(BeEmpty())
		}
		for _, node := range nodes[:2] { // as an autoscaler does, or a repair controller
			w.Report(ctx, node, "DepartedBroken", corev1.ConditionTrue)
			Eventually(w.Effect(ctx, node, key)).Should(BeEquivalentTo(prefer))
			Expect(w.Client.Delete(ctx, w.Node(ctx, node))).To(Succeed())
		}
		sickAndHeld(nodes[2])
		w.Report(ctx, nodes[2], "DepartedBroken", corev1.ConditionFalse)
		Eventually(w.Status(ctx, set.Name)).Should(HaveField("Nodes.HeldBack", BeEquivalentTo(0)))

		w.Discard(ctx, set)
		again := fixture.NewSet(set.Name, key, prefer, "DepartedBroken")
		again.Spec.NodeSelector = set.Spec.NodeSelector
		w.Create(ctx, again)
		sickAndHeld(nodes[3])

		By("acting again once somebody looked")
		status, err := w.Status(ctx, set.Name)()
		Expect(err).NotTo(HaveOccurred())
		w.Edit(ctx, set.Name, func(cs *v1alpha1.ConditionSet) {
			cs.Annotations = map[string]string{v1alpha1.AnnotationResetBreaker: status.Breaker.ID}
		})
		Eventually(w.Effect(ctx, nodes[3], key)).Should(BeEquivalentTo(prefer))
	})
})
