package outlierpolicy

import (
	"bytes"
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("Certificates that are replaced", Serial, func() {
	It("of clients and of the server, CAs and all, end no stream and cost Envoy nothing that it has", func(ctx SpecContext) {
		s := serve(ctx, "rotated", 1)
		s.detect(ctx, "consecutiveServerErrors: 5, maxEjectionPercent: 50")
		restart := func(ctx context.Context, args ...string) {
			GinkgoHelper()
			Expect(h.StopComponent(harness.Manager)).To(Succeed())
			Expect(h.StartManager(ctx, args...)).To(Succeed())
		}
		restart(ctx, "--cert-settle=1s")
		DeferCleanup(func(ctx context.Context) { trust(clients); restart(ctx) })
		dir := GinkgoT().TempDir()
		clients.Write(dir, edge, servers(ctx))
		e := envoy.Start(GinkgoTB(), envoy.Options{Bootstrap: bootstrap(dir), Change: impatient, Listeners: []envoy.Listener{{Name: "web", Cluster: s.cluster()}}})
		Eventually(e.Threshold).WithArguments(s.cluster()).Should(Equal(5))
		Eventually(func() []envoy.Host { return e.Hosts(s.cluster()) }).Should(HaveLen(1))
		connections := func() int64 { return e.Stat("cluster.autohealer_xds.upstream_cx_total") }
		once, before := connections(), e.Churn()
		stop := e.Load("web")

		By("the clients' CA: both are trusted, Envoy gets a new certificate, the old CA goes")
		next := envoy.NewAuthority(GinkgoTB())
		trust(clients, next)
		next.Write(dir, edge, servers(ctx)) // shown with the next connection
		trust(next)
		refused := proxy(ctx, edge, clients, s.cluster())
		// The alert that says why may be lost: by then Envoy has sent more, which a closed connection answers with a reset.
		Eventually(func() int64 {
			return refused.Stat("cluster.autohealer_xds.ssl.connection_error") + refused.Stat("cluster.autohealer_xds.upstream_cx_destroy_remote")
		}).Should(BeNumerically(">", 0), "by the old CA there is no new stream")
		Expect(updates(refused)).To(BeZero())
		refused.Stop()
		Expect(connections()).To(Equal(once), "the stream goes on")

		By("the server's: the Secret is deleted, and its CA is new")
		old := servers(ctx)
		_, err := h.Kubectl(ctx, "-n", harness.Namespace, "delete", "secret", "autohealer-webhook-cert")
		Expect(err).NotTo(HaveOccurred())
		given := updates(e)
		restart(ctx, "--cert-settle=1s")
		Eventually(func() bool { return bytes.Equal(servers(ctx), old) }, 2*harness.Within).Should(BeFalse())
		next.Write(dir, edge, servers(ctx))
		Eventually(updates, 2*harness.Within).WithArguments(e).Should(BeNumerically(">", given), "under the new certificates of both")
		Expect(connections()).To(BeNumerically(">", once))
		Expect(e.Churn()).To(Equal(before))
		sent, failed := stop()
		Expect(failed).To(BeZero(), "of %d requests", sent)

		s.detect(ctx, "consecutiveServerErrors: 6, maxEjectionPercent: 50")
		Eventually(e.Threshold).WithArguments(s.cluster()).Should(Equal(6))
		Expect(e.Churn().Removed).To(Equal(before.Removed))
	}, NodeTimeout(8*harness.Within))
})
