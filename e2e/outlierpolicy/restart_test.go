package outlierpolicy

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("A restart of the manager", Serial, func() {
	It("drops no request, touches no cluster and ends no ejection", func(ctx SpecContext) {
		s := serve(ctx, "restarting", 3)
		s.detect(ctx, "consecutiveServerErrors: 3, maxEjectionPercent: 50, interval: 200ms, baseEjectionTime: 10m, maxEjectionTime: 10m")
		e := proxy(ctx, edge, clients, s.cluster())
		Eventually(func() []envoy.Host { return e.Hosts(s.cluster()) }).Should(HaveLen(3))
		s.backends[0].Answer(500)
		Eventually(func() []string { e.Statuses(s.cluster(), 3); return e.Ejected(s.cluster()) }).Should(Equal(s.addresses(0)))
		Eventually(func() map[int]int { return e.Statuses(s.cluster(), 6) }).Should(Equal(map[int]int{200: 6}), "Envoy's worker knows of the ejection")
		connected := func() int64 { return e.Stat("control_plane.connected_state") }
		Eventually(connected).Should(BeEquivalentTo(1))
		before := e.Churn()

		stop := e.Load(s.cluster())
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		Eventually(connected).Should(BeZero())
		Expect(h.StartManager(ctx)).To(Succeed())
		Eventually(connected).Should(BeEquivalentTo(1))
		Eventually(condition(ctx, s.namespace, "web", "Programmed")).Should(Equal("True Programmed"))
		sent, failed := stop()

		Expect(failed).To(BeZero(), "of %d requests", sent)
		Expect(sent).To(BeNumerically(">", 100))
		Expect(e.Churn()).To(Equal(before))
		Expect(e.Ejected(s.cluster())).To(Equal(s.addresses(0)))
	}, NodeTimeout(4*harness.Within))

	It("keeps a cluster whose policy was deleted, for Envoys that come later too", func(ctx SpecContext) {
		s := serve(ctx, "orphaned", 1)
		s.detect(ctx, "consecutiveServerErrors: 33, maxEjectionPercent: 50")
		e := proxy(ctx, edge, clients, s.cluster())
		Eventually(e.Threshold).WithArguments(s.cluster()).Should(Equal(33))
		deletePolicy(ctx, s.namespace, "web")
		Eventually(e.Threshold).WithArguments(s.cluster()).ShouldNot(Equal(33))
		Eventually(func() []envoy.Host { return e.Hosts(s.cluster()) }).Should(HaveLen(1))
		before := e.Churn()

		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		given := updates(e)
		Expect(h.StartManager(ctx)).To(Succeed())
		Eventually(updates).WithArguments(e).Should(BeNumerically(">", given), "none is accepted before")
		late := stream(ctx, edge) // it knows of nothing
		Eventually(func() []string { return late.Hosts(s.cluster()) }).Should(Equal(s.addresses(0)))
		Expect(e.Churn()).To(Equal(before))
	}, NodeTimeout(4*harness.Within))
})
