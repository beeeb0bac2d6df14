package weederconfig

import (
	"context"
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
		s.hold(ctx, "api", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		held, other := s.uids(ctx, "api"), s.uids(ctx, "other")
		wc := s.weeder("held", "etcd", "api", "other")
		wc.Spec.WatchDuration = "5m"
		create(ctx, wc)
		Eventually(func() any { return s.uids(ctx, "other") }).ShouldNot(Equal(other), "they are at work")
		Eventually(skipped(ctx, wc, "HoldUntil")).Should(BeEquivalentTo(2))
		Expect(s.uids(ctx, "api")).To(Equal(held))

		s.hold(ctx, "api", "")
		Eventually(func() any { return s.uids(ctx, "api") }).ShouldNot(ContainElements(held))
	})
})

// hold asks to leave a Deployment's pods alone until a time, "" no more.
func (s shop) hold(ctx context.Context, deployment, until string) {
	GinkgoHelper()
	argument := "autohealer.resourcestack.com/hold-until=" + until
	if until == "" {
		argument = "autohealer.resourcestack.com/hold-until-"
	}
	_, err := h.Kubectl(ctx, "-n", s.namespace, "annotate", "deployment", deployment, "--overwrite", argument)
	Expect(err).NotTo(HaveOccurred())
}
