package outlierpolicy

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("What goes over the wire", func() {
	It("is one cluster for an edit of one policy, and nothing for an edit that says the same", func(ctx SpecContext) {
		edited, other := serve(ctx, "edited", 1), serve(ctx, "unedited", 1)
		edited.detect(ctx, "consecutiveServerErrors: 7, maxEjectionPercent: 50")
		other.detect(ctx, "consecutiveServerErrors: 7, maxEjectionPercent: 50")
		c := stream(ctx, edge)
		errors := func(s *service) func() uint32 {
			return func() uint32 { return c.Clusters()[s.cluster()].GetOutlierDetection().GetConsecutive_5Xx().GetValue() }
		}
		Eventually(errors(edited)).Should(BeEquivalentTo(7))
		Eventually(errors(other)).Should(BeEquivalentTo(7))
		Eventually(func() []string { return c.Hosts(edited.cluster()) }).Should(Equal(edited.addresses(0)))
		c.ResetWire()

		edited.detect(ctx, "consecutiveServerErrors: 7, maxEjectionPercent: 50, baseEjectionTime: 60s")
		Eventually(func() int64 {
			return c.Clusters()[edited.cluster()].GetOutlierDetection().GetBaseEjectionTime().GetSeconds()
		}).Should(BeEquivalentTo(60))
		edited.detect(ctx, "consecutiveServerErrors: 7, maxEjectionPercent: 50, baseEjectionTime: 1m") // in other words
		edited.detect(ctx, "consecutiveServerErrors: 8, maxEjectionPercent: 50, baseEjectionTime: 1m")
		Eventually(errors(edited)).Should(BeEquivalentTo(8))
		Expect(c.Wire().Clusters).To(Equal(map[string]int{edited.cluster(): 2}))
		Expect(c.Wire().Removed).To(BeEmpty())
	}, NodeTimeout(2*harness.Within))
})

var _ = Describe("A second policy for a target", func() {
	It("is refused, whoever was first", func(ctx SpecContext) {
		s := serve(ctx, "contended", 1)
		s.detect(ctx, "consecutiveServerErrors: 5, maxEjectionPercent: 50")
		Eventually(condition(ctx, s.namespace, "web", "Accepted")).Should(Equal("True Accepted"))
		_, err := h.Apply(ctx, `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: OutlierPolicy
metadata: {name: second, namespace: contended}
spec: {targetRefs: [{group: "", kind: Service, name: web}], disabled: true}
`, "--dry-run=server")
		Expect(err).To(MatchError(ContainSubstring("outlierpolicy/same-target")))
	}, NodeTimeout(2*harness.Within))
})
