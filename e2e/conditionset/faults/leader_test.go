package faults

import (
	"context"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

const (
	sigKill = syscall.SIGKILL
	standby = cluster.Component("standby")
)

var _ = Describe("Two managers", func() {
	It("act as one, when the leader stands still and when it dies", func(ctx SpecContext) {
		Expect(w.StopComponent(harness.Manager)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(w.StopComponent(standby)).To(Succeed())
			Expect(w.StopComponent(harness.Manager)).To(Succeed())
			Expect(w.StartManager(ctx)).To(Succeed())
		})
		Expect(w.StartManager(ctx, "--leader-elect")).To(Succeed())
		Eventually(leader(ctx)).ShouldNot(BeEmpty())
		first, err := leader(ctx)()
		Expect(err).NotTo(HaveOccurred())
		Expect(w.StartReplica(ctx, standby, "--leader-elect")).To(Succeed())
		churn := startChurn(ctx, "Race")

		By("stopping the leader's clock, as a starved machine does, and letting it go on as if nothing had happened")
		Expect(w.Kill(harness.Manager, syscall.SIGSTOP)).To(Succeed())
		Eventually(leader(ctx)).ShouldNot(BeElementOf(first, ""), "the other should take over")
		second, err := leader(ctx)()
		Expect(err).NotTo(HaveOccurred())
		Expect(w.Kill(harness.Manager, syscall.SIGCONT)).To(Succeed())
		Eventually(func() error { return w.Kill(harness.Manager, 0) }).ShouldNot(Succeed(), "a leader without its lease should end")
		Expect(w.StopComponent(harness.Manager)).To(Succeed()) // waits until it is gone for good

		By("killing the new leader")
		Expect(w.StartComponent(ctx, harness.Manager)).To(Succeed())
		Expect(w.Kill(standby, sigKill)).To(Succeed())
		Eventually(leader(ctx)).ShouldNot(BeElementOf(first, second, ""), "the other should take over again")
		churn.expectConvergence(ctx)
	})
})

// leader holds the managers' lease.
func leader(ctx context.Context) func() (string, error) {
	return func() (string, error) {
		var lease coordinationv1.Lease
		err := w.Client.Get(ctx, types.NamespacedName{Namespace: harness.Namespace, Name: "autohealer-manager"}, &lease)
		return ptr.Deref(lease.Spec.HolderIdentity, ""), err
	}
}
