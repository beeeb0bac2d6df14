package outlierpolicy

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

var _ = Describe("An Envoy", func() {
	It("gets what its certificate allows, and without one of a known name nothing", func(ctx SpecContext) {
		shop, bank := serve(ctx, "shop", 1), serve(ctx, "bank", 1)
		shop.detect(ctx, "consecutiveServerErrors: 5, maxEjectionPercent: 50")
		bank.detect(ctx, "consecutiveServerErrors: 5, maxEjectionPercent: 50")
		for _, c := range []struct {
			who        string
			identity   string
			signer     *envoy.Authority
			shop, bank int
		}{
			{"all namespaces", edge, clients, 1, 1},
			{"one namespace", tenant, clients, 1, 0},
			{"an unknown name", nobody, clients, 0, 0},
			{"another CA's certificate", edge, envoy.NewAuthority(GinkgoTB()), 0, 0},
		} {
			By(c.who)
			e := proxy(ctx, c.identity, c.signer, shop.cluster())
			Eventually(func() []envoy.Host { return e.Hosts(shop.cluster()) }).Should(HaveLen(c.shop), c.who)
			if c.shop > 0 {
				// The first answer names all that the certificate allows; a cluster whose endpoints aren't here yet is warming.
				Eventually(func() []envoy.Host { return e.Hosts(bank.cluster()) }).Should(HaveLen(c.bank), c.who)
				Eventually(func() int64 { return e.Stat("cluster_manager.warming_clusters") }).Should(BeZero(), c.who)
			} else {
				Eventually(func() int64 {
					return e.Stat("cluster_manager.cds.update_failure") + e.Stat("cluster.autohealer_xds.ssl.connection_error")
				}).Should(BeNumerically(">", 0), "it was refused")
				Expect(e.Stat("cluster_manager.cds.update_success")).To(BeZero(), c.who)
			}
			Expect(e.Hosts(bank.cluster())).To(HaveLen(c.bank), c.who)
			e.Stop()
		}
		By("without a certificate")
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(conn.Close)
		_, err = xdsclient.Connect(ctx, conn, xdsclient.Options{})
		Expect(status.Code(err)).To(Equal(codes.Unavailable), "%v", err)
	}, NodeTimeout(4*harness.Within))
})
