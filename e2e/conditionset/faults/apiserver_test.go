package faults

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("An API server that restarts", func() {
	It("in a storm costs the manager nothing but time", func(ctx SpecContext) {
		churn := startChurn(ctx, "Outage")
		acts := func() int { return len(w.Acts("churn-broken")) }
		Eventually(acts).Should(BeNumerically(">", 5))
		Expect(w.RestartAPIServer(ctx)).To(Succeed())
		churn.expectConvergence(ctx)
	})
})
