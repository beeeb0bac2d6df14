package conditionset

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

var _ = Describe("A condition whose reporter is silent", func() {
	It("neither taints nor untaints, until the reporter speaks again", func(ctx SpecContext) {
		key := w.Key("stale")
		nodes := w.AddNodes(ctx, 2, cluster.NodeOptions{Prefix: "stale"})
		healthy, sick := nodes[0], nodes[1]
		set := fixture.NewSet("stale", key, repel, "StaleBroken")
		set.Spec.For, set.Spec.RecoverAfter, set.Spec.StaleAfter = "4s", "4s", "3s"
		w.Create(ctx, set)

		reporter := startReporter(ctx, sick, "StaleBroken", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, sick, key)).Should(BeEquivalentTo(repel))
		reporter.stop()
		w.Report(ctx, sick, "StaleBroken", corev1.ConditionFalse)
		w.Report(ctx, healthy, "StaleBroken", corev1.ConditionTrue)
		Eventually(w.Status(ctx, "stale")).Should(HaveField("Nodes.Doubtful", BeEquivalentTo(2)))
		Consistently(func(g Gomega) {
			g.Expect(w.Effect(ctx, sick, key)()).To(BeEquivalentTo(repel), "what was last heard is too old to undo by")
			g.Expect(w.Effect(ctx, healthy, key)()).To(BeEmpty(), "what was last heard is too old to act by")
		}, "3s").Should(Succeed())

		startReporter(ctx, sick, "StaleBroken", corev1.ConditionFalse)
		startReporter(ctx, healthy, "StaleBroken", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, sick, key)).Should(BeEmpty())
		Eventually(w.Effect(ctx, healthy, key)).Should(BeEquivalentTo(repel))
	})

	It("is unproven to a manager that just started, until its first heartbeat", func(ctx SpecContext) {
		key := w.Key("unproven")
		nodes := w.AddNodes(ctx, 3, cluster.NodeOptions{Prefix: "unproven"})
		tainted, clean, proven := nodes[0], nodes[1], nodes[2]
		w.Create(ctx, fixture.NewSet("unproven", key, repel, "UnprovenBroken"))
		w.Report(ctx, tainted, "UnprovenBroken", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, tainted, key)).Should(BeEquivalentTo(repel))

		w.KillManager()
		old := cluster.ConditionOptions{Heartbeat: time.Now().Add(-time.Hour), Transition: time.Now().Add(-time.Hour)}
		Expect(w.SetCondition(ctx, tainted, "UnprovenBroken", corev1.ConditionFalse, old)).To(Succeed())
		Expect(w.SetCondition(ctx, clean, "UnprovenBroken", corev1.ConditionTrue, old)).To(Succeed())
		w.Report(ctx, proven, "UnprovenBroken", corev1.ConditionTrue)
		w.RestartManager(ctx)
		Eventually(w.Effect(ctx, proven, key)).Should(BeEquivalentTo(repel), "a fresh heartbeat by the API server's clock is proof")
		Consistently(func(g Gomega) {
			g.Expect(w.Effect(ctx, tainted, key)()).To(BeEquivalentTo(repel))
			g.Expect(w.Effect(ctx, clean, key)()).To(BeEmpty())
		}, "2s").Should(Succeed())
		Eventually(w.Status(ctx, "unproven")).Should(HaveField("Nodes.Doubtful", BeEquivalentTo(2)))

		for node, status := range map[string]corev1.ConditionStatus{tainted: corev1.ConditionFalse, clean: corev1.ConditionTrue} {
			beat := cluster.ConditionOptions{Transition: old.Transition, Heartbeat: old.Heartbeat.Add(time.Minute)} // by whatever clock
			Expect(w.SetCondition(ctx, node, "UnprovenBroken", status, beat)).To(Succeed())
		}
		Eventually(w.Effect(ctx, tainted, key)).Should(BeEmpty())
		Eventually(w.Effect(ctx, clean, key)).Should(BeEquivalentTo(repel))
	})
})

var _ = Describe("A condition that says neither True nor False", func() {
	It("is doubt, and no recovery", func(ctx SpecContext) {
		key := w.Key("doubt")
		node := w.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: "doubt"})[0]
		w.Create(ctx, fixture.NewSet("doubt", key, repel, "DoubtBroken"))
		w.Report(ctx, node, "DoubtBroken", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, node, key)).Should(BeEquivalentTo(repel))
		for _, says := range []corev1.ConditionStatus{corev1.ConditionUnknown, "", "yes", "true"} {
			w.Report(ctx, node, "DoubtBroken", says)
			Eventually(w.Status(ctx, "doubt")).Should(HaveField("Nodes", HaveValue(And(HaveField("Matching", BeZero()), HaveField("Doubtful", BeEquivalentTo(1))))))
			Consistently(w.Effect(ctx, node, key), "1s").Should(BeEquivalentTo(repel), "%q says nothing of the node", says)
		}
		Expect(w.Ready(ctx, "doubt")).To(HaveField("Message", ContainSubstring("conditions of 1 node are Unknown, missing or stale: nothing is done and nothing undone there")))

		By("forgetting the condition altogether")
		forget := client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":{"conditions":[{"$patch":"delete","type":"DoubtBroken"}]}}`))
		Expect(w.Client.Status().Patch(ctx, w.Node(ctx, node), forget)).To(Succeed())
		Consistently(w.Effect(ctx, node, key), "1s").Should(BeEquivalentTo(repel))
		Expect(w.Status(ctx, "doubt")()).To(HaveField("Nodes.Doubtful", BeEquivalentTo(1)))

		w.Report(ctx, node, "DoubtBroken", corev1.ConditionFalse)
		Eventually(w.Effect(ctx, node, key)).Should(BeEmpty())
		Eventually(w.Status(ctx, "doubt")).Should(HaveField("Nodes.Doubtful", BeZero()))
	})
})

type reporter struct {
	end     context.CancelFunc
	running sync.WaitGroup
}

// startReporter reports one condition of a node every second, until stopped or until the spec ends.
func startReporter(ctx context.Context, node string, condition corev1.NodeConditionType, status corev1.ConditionStatus) *reporter {
	GinkgoHelper()
	reporting, end := context.WithCancel(context.WithoutCancel(ctx))
	r := &reporter{end: end}
	w.Report(ctx, node, condition, status)
	r.running.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-reporting.Done():
				return
			case <-tick.C:
				_ = w.SetCondition(reporting, node, condition, status, cluster.ConditionOptions{}) // the next heartbeat makes up for it
			}
		}
	})
	DeferCleanup(r.stop)
	return r
}

func (r *reporter) stop() {
	r.end()
	r.running.Wait()
}
