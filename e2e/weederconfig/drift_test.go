package weederconfig

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

var _ = Describe("A config that drifted into a violation", func() {
	enforce := func(wc *v1alpha1.WeederConfig) { wc.Spec.Mode = v1alpha1.Enforce }
	// enforcing asks, and does nothing, what would come of a config that enforces.
	enforcing := func(ctx context.Context, wc *v1alpha1.WeederConfig) error {
		return update(ctx, wc.DeepCopy(), enforce, dryRun)
	}

	It("for want of rights may be edited and turned to observation, does nothing, and doesn't get back", func(ctx SpecContext) {
		s := newShop(ctx)
		wc := s.weeder("drifted", "etcd", "api")
		wc.Spec.WatchDuration = "5m"
		create(ctx, wc)
		Expect(h.Client.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: named(s.namespace, "default")})).To(Succeed())
		Eventually(func() error { return h.Client.Create(ctx, s.weeder("new", "etcd", "api"), dryRun) }).Should(
			MatchError(ContainSubstring("weederconfig/account-may-not-delete")), "the API server has seen that the right is gone")

		edit(ctx, wc, func(wc *v1alpha1.WeederConfig) { wc.Spec.Cooldown = "20s" })
		Eventually(func() metav1.Condition { return condition(ctx, wc, "Accepted") }).Should(HaveField("Status", metav1.ConditionFalse), "what is stored is judged again")
		s.deploy(ctx, "api", 1, map[string]string{crash: "true"})
		before := s.uids(ctx, "api")
		s.recovered(ctx, "etcd")
		Eventually(skipped(ctx, wc, "Forbidden")).Should(BeEquivalentTo(1))

		By("turning it to observation")
		edit(ctx, wc, func(wc *v1alpha1.WeederConfig) { wc.Spec.Mode = v1alpha1.Observe })
		Eventually(func() metav1.Condition { return condition(ctx, wc, "Accepted") }).Should(HaveField("Status", metav1.ConditionTrue))
		Expect(enforcing(ctx, wc)).To(MatchError(ContainSubstring("weederconfig/account-may-not-delete")))
		withoutGates(ctx, func() {
			Eventually(update).WithContext(ctx).WithArguments(wc, enforce).Should(Succeed(), "once the API server knows that the gates are gone")
		})
		Eventually(func() metav1.Condition { return condition(ctx, wc, "Accepted") }).Should(HaveField("Status", metav1.ConditionFalse))
		Consistently(s.uids).WithContext(ctx).WithArguments("api").WithTimeout(moment).Should(Equal(before), "neither observing nor enforcing past the gates")
	})

	It("for which there are exceptions may observe, and enforces again only without it", func(ctx SpecContext) {
		s := newShop(ctx)
		s.upstream(ctx, "etcd", 1)
		moved := func(name string) *v1alpha1.WeederConfig {
			wc := s.weeder(name, "etcd", "api")
			wc.Spec.ServicesAndDependantSelectors["etcd"] = v1alpha1.DependantSelectors{PodSelectors: []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"moved": "true"}}}}
			return wc
		}
		wc := moved("drifted")
		create(ctx, wc)
		s.label(ctx, "etcd", "moved", true)
		Eventually(func() error { return h.Client.Create(ctx, moved("new"), dryRun) }).Should(
			MatchError(ContainSubstring("weederconfig/selects-own-pods")), "once the manager has seen the pods")

		cooling := func(wc *v1alpha1.WeederConfig) { wc.Spec.Cooldown = "20s" }
		Expect(update(ctx, wc.DeepCopy(), cooling, dryRun)).To(MatchError(ContainSubstring("weederconfig/selects-own-pods")), "an exception must end for who edits something else, too")
		edit(ctx, wc, func(wc *v1alpha1.WeederConfig) { wc.Spec.Mode = v1alpha1.Observe })
		edit(ctx, wc, func(wc *v1alpha1.WeederConfig) { wc.Spec.Cooldown = "30s" })
		Expect(enforcing(ctx, wc)).To(MatchError(ContainSubstring("weederconfig/selects-own-pods")))
		observing := moved("observing")
		observing.Spec.Mode = v1alpha1.Observe
		Expect(h.Client.Create(ctx, observing, dryRun)).To(Succeed())
	})
})
