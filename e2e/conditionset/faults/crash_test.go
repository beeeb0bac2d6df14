package faults

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("A manager that is killed", func() {
	It("between any two writes leaves no orphan, and does nothing twice", func(ctx SpecContext) {
		churn := startChurn(ctx, "Crash")
		for n := range 12 {
			w.KillManager()
			if n%2 == 0 { // while it starts
				crashWhileStarting(ctx, time.Duration(churn.random.IntN(1200))*time.Millisecond)
			}
			w.RestartManager(ctx)
			pause(ctx, time.Duration(churn.random.IntN(500))*time.Millisecond)
		}
		acts := len(w.Acts("churn-worn")) + len(w.Acts("churn-broken")) + len(w.Acts("churn-dead"))
		GinkgoWriter.Printf("%d acts\n", acts)
		Expect(acts).To(BeNumerically(">", 30), "there should have been something to interrupt")
		churn.expectConvergence(ctx)
	})

	It("while a set goes finishes that when it comes back", func(ctx SpecContext) {
		random := seeded()
		nodes := w.AddNodes(ctx, 8, cluster.NodeOptions{Prefix: "crash-delete"})
		for _, node := range nodes {
			w.Report(ctx, node, "CrashDelete", corev1.ConditionTrue)
		}
		for range 4 {
			key := w.Key("crash-delete")
			set := w.Create(ctx, fixture.NewSet("crash-delete", key, repel, "CrashDelete"))
			Eventually(func() int { return countTainted(ctx, nodes, key) }).Should(Equal(8))
			Expect(w.Client.Delete(ctx, set.DeepCopy())).To(Succeed())
			pause(ctx, time.Duration(random.IntN(40))*time.Millisecond)
			w.KillManager()
			w.RestartManager(ctx)
			w.Discard(ctx, set)
			Expect(countTainted(ctx, nodes, key)).To(BeZero())
		}
	})
})

// crashWhileStarting starts the manager and kills it after some time, ready or not.
func crashWhileStarting(ctx context.Context, after time.Duration) {
	GinkgoHelper()
	var starting sync.WaitGroup
	starting.Go(func() { _ = w.StartComponent(ctx, harness.Manager) }) // it may not get ready any more
	pause(ctx, after)
	Eventually(func() error { return w.Kill(harness.Manager, sigKill) }).Should(Succeed(), "it should run by now")
	Expect(w.StopComponent(harness.Manager)).To(Succeed())
	starting.Wait()
}

func countTainted(ctx context.Context, nodes []string, key string) int {
	GinkgoHelper()
	n := 0
	for _, name := range nodes {
		if fixture.EffectOn(w.Node(ctx, name), key) != none {
			n++
		}
	}
	return n
}
