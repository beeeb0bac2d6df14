package weederconfig

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("When the manager may no longer list Guardrails", func() {
	It("no pod is deleted until it may again", func(ctx SpecContext) {
		s := newShop(ctx)
		wc := s.weeder("blind", "etcd", "api")
		wc.Spec.WatchDuration = "5m"
		create(ctx, wc)
		s.deploy(ctx, "api", 1, map[string]string{crash: "true"})
		before := s.uids(ctx, "api")

		role := &rbacv1.ClusterRole{}
		Expect(h.Client.Get(ctx, client.ObjectKey{Name: "autohealer-manager"}, role)).To(Succeed())
		had := role.DeepCopy()
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "guardrails") })
		Expect(h.Client.Update(ctx, role)).To(Succeed())
		restore := func(ctx context.Context) {
			GinkgoHelper()
			role.Rules = had.Rules
			Expect(h.Client.Update(ctx, role)).To(Succeed())
		}
		DeferCleanup(restore)
		ready := func() metav1.Condition { return condition(ctx, wc, "Ready") }
		// What was listed for others' deletions is believed for ten seconds. After that nobody asks until there is something to do.
		Consistently(s.uids).WithContext(ctx).WithArguments("api").WithTimeout(11 * time.Second).Should(Equal(before))
		s.recovered(ctx, "etcd")
		Eventually(ready).Should(And(
			HaveField("Status", metav1.ConditionUnknown), HaveField("Reason", "GuardrailsUnknown"), HaveField("Message", ContainSubstring("cannot list resource")),
		))
		Eventually(skipped(ctx, wc, "Paused")).Should(BeEquivalentTo(1))
		Consistently(s.uids).WithContext(ctx).WithArguments("api").WithTimeout(moment).Should(Equal(before))

		By("giving the right back")
		restore(ctx)
		Eventually(s.uids).WithContext(ctx).WithArguments("api").ShouldNot(Equal(before))
		Eventually(ready).Should(HaveField("Reason", "Operative"))
	})
})
