package conditionset

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

var _ = Describe("What a set did", func() {
	var key string
	var node string
	var set *v1alpha1.ConditionSet
	var history *fixture.History

	BeforeEach(func(ctx SpecContext) {
		key = w.Key("undo")
		node = w.AddNodesInOwnZones(ctx, 1, "undo")[0]
		w.Change(ctx, node, func(n *corev1.Node) { n.Labels["undo"] = "selected" })
		set = fixture.NewSet("undo", key, repel, "UndoBroken")
		set.Spec.NodeSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"undo": "selected"}}
		w.Create(ctx, set)
		w.Report(ctx, node, "UndoBroken", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, node, key)).Should(BeEquivalentTo(repel))
		history = w.Remember(ctx)
	})

	edit := func(ctx SpecContext, modify func(*v1alpha1.ConditionSetSpec)) {
		GinkgoHelper()
		w.Edit(ctx, set.Name, func(set *v1alpha1.ConditionSet) { modify(&set.Spec) })
	}
	gone := func(ctx SpecContext) {
		GinkgoHelper()
		Eventually(w.Effect(ctx, node, key)).Should(BeEmpty())
		Expect(w.Node(ctx, node).Annotations).NotTo(HaveKey(fixture.RecordAnnotation))
		Expect(taintChanges(history.Of(ctx, node))).To(Equal(1), "it should be undone in one write")
	}

	It("goes with the set", func(ctx SpecContext) {
		w.Discard(ctx, set)
		gone(ctx)
	})

	It("goes when the set no longer selects the node", func(ctx SpecContext) {
		edit(ctx, func(spec *v1alpha1.ConditionSetSpec) {
			spec.NodeSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"undo": "another"}}
		})
		gone(ctx)
	})

	It("goes when the node gets other labels", func(ctx SpecContext) {
		w.Change(ctx, node, func(n *corev1.Node) { delete(n.Labels, "undo") })
		gone(ctx)
	})

	It("goes when the set only observes", func(ctx SpecContext) {
		edit(ctx, func(spec *v1alpha1.ConditionSetSpec) { spec.Mode = v1alpha1.Observe })
		gone(ctx)
		Expect(w.Ready(ctx, set.Name)).To(HaveField("Reason", "Observing"))
		Eventually(w.Status(ctx, set.Name)).Should(HaveField("Nodes", HaveValue(SatisfyAll(
			HaveField("Matching", BeEquivalentTo(1)), HaveField("Tainted", BeEquivalentTo(0))))))
	})

	It("goes when the set asks for another condition", func(ctx SpecContext) {
		edit(ctx, func(spec *v1alpha1.ConditionSetSpec) {
			spec.Conditions = map[string]v1alpha1.MemberCondition{"UndoOther": {Status: v1alpha1.RequiredStatus{JSON: `"True"`}}}
		})
		gone(ctx)
	})

	It("moves in one write to another key", func(ctx SpecContext) {
		other := w.Key("undo-other")
		edit(ctx, func(spec *v1alpha1.ConditionSetSpec) { spec.TaintKey = other })
		Eventually(w.Effect(ctx, node, other)).Should(BeEquivalentTo(repel))
		Expect(w.Effect(ctx, node, key)()).To(BeEmpty())
		Expect(taintChanges(history.Of(ctx, node))).To(Equal(1))
	})

	DescribeTable("changes in one write with the effect", func(ctx SpecContext, effect corev1.TaintEffect) {
		edit(ctx, func(spec *v1alpha1.ConditionSetSpec) { spec.Effect = effect })
		Eventually(w.Effect(ctx, node, key)).Should(Equal(effect))
		Expect(taintChanges(history.Of(ctx, node))).To(Equal(1))
		Expect(fixture.ClaimOn(w.Node(ctx, node), key)).To(HaveField("Generation", BeEquivalentTo(2)), "the record should name the generation that acted")
	},
		Entry("to PreferNoSchedule", corev1.TaintEffect(prefer)),
		Entry("to NoExecute", corev1.TaintEffect(evict)),
	)

	It("stays recoverAfter long after recovery", func(ctx SpecContext) {
		edit(ctx, func(spec *v1alpha1.ConditionSetSpec) { spec.RecoverAfter = "3s" })
		w.Report(ctx, node, "UndoBroken", corev1.ConditionFalse)
		Consistently(w.Effect(ctx, node, key), "2s").Should(BeEquivalentTo(repel))
		gone(ctx)
	})

	It("stays while its record can't be read, which is told, and goes with the set once that is mended", func(ctx SpecContext) {
		record := w.Node(ctx, node).Annotations[fixture.RecordAnnotation]
		w.Change(ctx, node, func(n *corev1.Node) { n.Annotations[fixture.RecordAnnotation] = "{" })
		Eventually(func() (told []string, err error) {
			var events eventsv1.EventList
			err = w.Client.List(ctx, &events)
			for _, e := range events.Items {
				if e.Regarding.Name == node && e.Reason == "RecordUnreadable" {
					told = append(told, e.Type+" "+e.Note)
				}
			}
			return told, err
		}).Should(HaveExactElements(And(HavePrefix("Warning "), HaveSuffix("kubectl taint node "+node+" "+key+":NoSchedule-; kubectl annotate node "+node+" autohealer.resourcestack.com/owned-taints-"))))

		Expect(w.Client.Delete(ctx, set.DeepCopy())).To(Succeed())
		Eventually(w.Condition(ctx, set.Name, "Ready")).Should(HaveField("Message", And(
			HavePrefix("The ConditionSet is deleted once its taints are off 1 node: "+node+"; "), ContainSubstring("can't read the record of "+node))))
		Consistently(w.Effect(ctx, node, key), "1s").Should(BeEquivalentTo(repel))

		w.Change(ctx, node, func(n *corev1.Node) { n.Annotations[fixture.RecordAnnotation] = record })
		w.Discard(ctx, set)
		Expect(w.Effect(ctx, node, key)()).To(BeEmpty())
	})

	It("isn't put back when somebody removes it after recovery, and is while the node is sick", func(ctx SpecContext) {
		remove := func(n *corev1.Node) { n.Spec.Taints = nil }
		w.Change(ctx, node, remove)
		Eventually(w.Effect(ctx, node, key)).Should(BeEquivalentTo(repel), "the node is sick: the taint should be put back")

		edit(ctx, func(spec *v1alpha1.ConditionSetSpec) { spec.RecoverAfter = "5m" })
		w.Report(ctx, node, "UndoBroken", corev1.ConditionFalse)
		w.Change(ctx, node, remove)
		Eventually(func() *fixture.Claim { return fixture.ClaimOn(w.Node(ctx, node), key) }).Should(BeNil(), "the record should not claim what is gone")
		Consistently(w.Effect(ctx, node, key), "1s").Should(BeEmpty())
	})

	It("leaves a second node that another set tainted with the same key alone", func(ctx SpecContext) {
		second := w.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: "undo-second"})[0]
		w.Create(ctx, fixture.NewSet("undo-neighbour", key, repel, "UndoNeighbour"))
		w.Report(ctx, second, "UndoNeighbour", corev1.ConditionTrue)
		w.Report(ctx, node, "UndoNeighbour", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, second, key)).Should(BeEquivalentTo(repel))
		Eventually(func() []string { return claimants(w.Node(ctx, node)) }).Should(ConsistOf("undo", "undo-neighbour"))
		w.Discard(ctx, set)
		Expect(claimants(w.Node(ctx, node))).To(ConsistOf("undo-neighbour"))
		for _, n := range []string{node, second} {
			Expect(w.Effect(ctx, n, key)()).To(BeEquivalentTo(repel))
		}
		Expect(history.Effects(ctx, node, key)).To(HaveExactElements(corev1.TaintEffect(repel)))
	})
})
