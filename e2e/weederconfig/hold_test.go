package weederconfig

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A Deployment that people ask to leave alone", func() {
	It("keeps its pods until the hold ends", func(ctx SpecContext) {
		s := newShop(ctx)
		s.recovered(ctx, "etcd")
		s.deploy(ctx, "api", 2, map[string]string{crash: "true"})
		s.deploy(ctx, "other", 1, map[string]string{crash: "true"})
		annotate := func(argument string) {
			GinkgoHelper()
			_, err := h.Kubectl(ctx, "-n", s.namespace, "annotate", "deployment", "api", "--overwrite", argument)
			Expect(err).NotTo(HaveOccurred())
		}
		const hold = "autohealer.resourcestack.com/hold-until"
		annotate(hold + "=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		held, other := s.uids(ctx, "api"), s.uids(ctx, "other")
		wc := s.weeder("held", "etcd", "api", "other")
		wc.Spec.WatchDuration = "5m"
		create(ctx, wc)
		Eventually(func() any { return s.uids(ctx, "other") }).ShouldNot(Equal(other), "they are at work")
		Eventually(skipped(ctx, wc, "HoldUntil")).Should(BeEquivalentTo(2))
		Expect(s.uids(ctx, "api")).To(Equal(held))

		annotate(hold + "-")
		Eventually(func() any { return s.uids(ctx, "api") }).ShouldNot(ContainElements(held))
	})
})
