package weederconfig

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/timings"
)

// The specs here take long. Rights are taken away before the first, and looked at in the last: the minute within which that
// counts passes meanwhile.
var _ = Describe("As time goes by", Ordered, func() {
	var (
		revoked shop
		config  *v1alpha1.WeederConfig
	)

	BeforeAll(func(ctx SpecContext) {
		revoked = newShop(ctx)
		revoked.upstream(ctx, "etcd", 1)
		config = revoked.weeder("revoked", "etcd", "api")
		config.Spec.WatchDuration = "10m"
		create(ctx, config)
		Expect(h.Client.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: named(revoked.namespace, "default")})).To(Succeed())
	})

	It("replacements are deleted after the cooldown, and not before", func(ctx SpecContext) {
		s := newShop(ctx)
		s.recovered(ctx, "etcd")
		s.deploy(ctx, "api", 1, map[string]string{crash: "true"})
		wc := s.weeder("cooling", "etcd", "api")
		wc.Spec.WatchDuration, wc.Spec.Cooldown = "5m", "15s"
		create(ctx, wc)
		Eventually(s.acts).WithTimeout(4 * time.Minute).Should(HaveLen(3))
		acts := s.acts()
		for i := range 2 {
			Expect(acts[i+1].At.Sub(acts[i].At)).To(BeNumerically(">=", 15*time.Second), "a cooldown after the one before was done")
		}
		Expect(skipped(ctx, wc, "Cooldown")()).To(BeNumerically(">=", 2))
	})

	It("what silent watches told isn't believed: who stands behind the Service, and whom to leave alone, is read before a deletion", func(ctx SpecContext) {
		s := newShop(ctx)
		s.upstream(ctx, "etcd", 1)
		for _, app := range []string{"api", "held", "other"} {
			s.deploy(ctx, app, 1, nil)
		}
		wc := s.weeder("silent", "etcd", "api", "held", "other")
		wc.Spec.WatchDuration = "5m"
		create(ctx, wc)
		s.down(ctx, "etcd")
		s.up(ctx, "etcd")
		Eventually(activeWindows(ctx, wc)).Should(BeEquivalentTo(1))
		for _, resource := range []string{"endpointslices", "deployments"} {
			DeferCleanup(proxy.stall(resource))
		}
		silent := time.Now()
		s.write(ctx, "etcd", "by-hand", false, s.pods(ctx, "api")...)
		s.hold(ctx, "held", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		Eventually(time.Since).WithArguments(silent).Should(BeNumerically(">", timings.OfSuites().MaxWatchSilence()), "so long they are believed")
		before, held, other := s.uids(ctx, "api"), s.uids(ctx, "held"), s.uids(ctx, "other")
		s.fail(ctx, "api")
		Eventually(skipped(ctx, wc, "PodOfTheService")).Should(BeEquivalentTo(1))
		s.fail(ctx, "held")
		Eventually(skipped(ctx, wc, "HoldUntil")).Should(BeEquivalentTo(1))
		s.label(ctx, "other", crash, true)
		Eventually(s.uids).WithContext(ctx).WithArguments("other").ShouldNot(Equal(other), "who neither stands there nor is held is deleted")
		Expect(s.uids(ctx, "api")).To(Equal(before))
		Expect(s.uids(ctx, "held")).To(Equal(held))
	})

	It("a tenant's config loses with its account's rights what it could do", func(ctx SpecContext) {
		Eventually(func() metav1.Condition { return condition(ctx, config, "Accepted") }).WithTimeout(time.Minute).Should(
			HaveField("Status", metav1.ConditionFalse), "nobody acts for longer with a right that was taken away")
		revoked.down(ctx, "etcd")
		revoked.up(ctx, "etcd")
		Eventually(activeWindows(ctx, config)).Should(BeEquivalentTo(1))
		revoked.deploy(ctx, "api", 1, map[string]string{crash: "true"})
		Eventually(skipped(ctx, config, "Forbidden")).Should(BeEquivalentTo(1))
		Consistently(revoked.acts).WithTimeout(moment).Should(BeEmpty())
	})
})
