package weederconfig

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

var _ = Describe("Budgets", func() {
	It("cap the deletions of one window, also across kill -9", func(ctx SpecContext) {
		s := newShop(ctx)
		s.recovered(ctx, "etcd")
		wc := s.weeder("capped", "etcd", "api")
		wc.Spec.WatchDuration, wc.Spec.MaxDeletionsPerWatch = "5m", ptr.To[int32](2)
		create(ctx, wc)
		s.deploy(ctx, "api", 5, map[string]string{crash: "true"})
		Eventually(s.acts).Should(HaveLen(2))
		killManager()
		startManager(ctx)
		Eventually(skipped(ctx, wc, "MaxDeletionsPerWatch")).Should(BeNumerically(">=", 3))
		Consistently(s.acts).WithTimeout(moment).Should(HaveLen(2), "the window goes on, and its budget is spent")
		Expect(condition(ctx, wc, "LimitReached")).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", "BudgetSpent")))
		Expect(activeWindows(ctx, wc)()).To(BeEquivalentTo(1))
	})

	It("help every pod of a workload at each recovery, and a bad one no more often for that", func(ctx SpecContext) {
		const replicas, cooldown = 6, 10 * time.Second
		s := newShop(ctx)
		s.upstream(ctx, "etcd", 1)
		s.deploy(ctx, "api", replicas, nil)
		wc := s.weeder("replicas", "etcd", "api")
		wc.Spec.Cooldown, wc.Spec.MaxRepeatsPerOwner = "10s", ptr.To[int32](2)
		create(ctx, wc)
		outage := func(acts int) []act {
			GinkgoHelper()
			s.down(ctx, "etcd")
			s.fail(ctx, "api")
			s.up(ctx, "etcd")
			Eventually(s.acts).Should(HaveLen(acts))
			all := s.acts()
			of := all[len(all)-replicas:]
			Expect(of[replicas-1].At.Sub(of[0].At)).To(BeNumerically("<", cooldown), "none waits for another")
			Eventually(s.ready).WithContext(ctx).WithArguments("api").Should(Equal(replicas))
			return of
		}

		By("the first outage")
		Expect(outage(replicas)).To(HaveEach(HaveField("Repeats", 0)))
		By("the second")
		Expect(outage(2 * replicas)).To(HaveEach(HaveField("Repeats", 1)))

		By("one that goes on to fail")
		s.failLast(ctx, "api")
		Eventually(s.acts).Should(HaveLen(2*replicas + 1))
		Eventually(s.ready).WithContext(ctx).WithArguments("api").Should(Equal(replicas))
		s.failLast(ctx, "api")
		Eventually(skipped(ctx, wc, "MaxRepeatsPerOwner")).Should(BeEquivalentTo(1))
		Consistently(s.acts).WithTimeout(moment).Should(HaveLen(2*replicas + 1))
		By("which holds back no other")
		s.label(ctx, "api", crash, true)
		Eventually(s.acts).Should(HaveLen(3 * replicas))
		Expect(s.acts()[2*replicas:]).To(HaveEach(HaveField("Repeats", 2)))
	})

	It("cap the repeats of a pod in an hour, also across kill -9", func(ctx SpecContext) {
		s := newShop(ctx)
		s.recovered(ctx, "etcd")
		wc := s.weeder("repeats", "etcd", "api")
		wc.Spec.WatchDuration, wc.Spec.Cooldown, wc.Spec.MaxRepeatsPerOwner = "2m", "1s", ptr.To[int32](2)
		create(ctx, wc)
		s.deploy(ctx, "api", 1, map[string]string{crash: "true"})
		Eventually(s.acts).Should(HaveLen(3), "the first, and two that replaced it")
		killManager()
		startManager(ctx)
		s.eventuallyCrashes(ctx, "api", 1)
		Eventually(skipped(ctx, wc, "MaxRepeatsPerOwner")).Should(BeNumerically(">=", 1))
		acts := s.acts()
		Expect(acts).To(HaveLen(3))
		Expect([]int{acts[0].Repeats, acts[1].Repeats, acts[2].Repeats}).To(Equal([]int{0, 1, 2}))
		Expect([]string{acts[0].ID, acts[1].ID, acts[2].ID}).To(ConsistOf(HaveLen(16), HaveLen(16), HaveLen(16)))
	})

	It("let PodDisruptionBudgets hold back evictions", func(ctx SpecContext) {
		s := newShop(ctx)
		s.allow(ctx, "evictor",
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"delete"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}})
		s.recovered(ctx, "etcd")
		s.deploy(ctx, "api", 1, map[string]string{crash: "true"})
		none := intstr.FromInt32(0)
		pdb := &policyv1.PodDisruptionBudget{ObjectMeta: named(s.namespace, "api"), Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &none, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}},
		}}
		Expect(h.Client.Create(ctx, pdb)).To(Succeed())
		wc := s.weeder("evicting", "etcd", "api")
		wc.Spec.Deletion, wc.Spec.ServiceAccountName = v1alpha1.Evict, "evictor"
		Expect(h.Client.Create(ctx, wc)).To(Succeed())
		before := s.uids(ctx, "api")
		Eventually(skipped(ctx, wc, "PodDisruptionBudget")).Should(BeEquivalentTo(1))
		Expect(s.uids(ctx, "api")).To(Equal(before))
		Expect(h.Client.Delete(ctx, pdb)).To(Succeed())
		Eventually(s.uids).WithContext(ctx).WithArguments("api").ShouldNot(Equal(before))
		Eventually(s.acts).Should(ContainElement(HaveField("Verb", "Evict")))
	})

	It("cap the deletions of a minute over all configs, as the limit is now", func(ctx SpecContext) {
		setLimit(ctx, 3)
		DeferCleanup(func(ctx context.Context) { setLimit(ctx, 10000) })
		s := newShop(ctx)
		s.recovered(ctx, "etcd")
		s.deploy(ctx, "api", 6, map[string]string{crash: "true"})
		wc := s.weeder("minute", "etcd", "api")
		Expect(h.Client.Create(ctx, wc)).To(Succeed())
		Eventually(skipped(ctx, wc, "MaxPodDeletionsPerMinute")).Should(BeNumerically(">=", 3))
		acts := func() int { return len(s.acts()) }
		Consistently(acts).WithTimeout(moment).Should(BeNumerically("<=", 3))
		setLimit(ctx, 10000)
		Eventually(acts).Should(BeNumerically(">=", 6), "those that were held back go on at once, in the manager that runs")
	})
})

func setLimit(ctx context.Context, most int32) {
	GinkgoHelper()
	changeGuardrail(ctx, func(g *v1alpha1.Guardrail) { g.Spec.Limits.MaxPodDeletionsPerMinute = &most })
}

func changeGuardrail(ctx context.Context, change func(*v1alpha1.Guardrail)) {
	GinkgoHelper()
	var g v1alpha1.Guardrail
	Eventually(func() error {
		if err := h.Client.Get(ctx, clientKey("", "lifted"), &g); err != nil {
			return err
		}
		change(&g)
		return h.Client.Update(ctx, &g)
	}).Should(Succeed())
	Eventually(func(g2 Gomega) {
		var now v1alpha1.Guardrail
		g2.Expect(h.Client.Get(ctx, clientKey("", "lifted"), &now)).To(Succeed())
		g2.Expect(now.Status.ObservedGeneration).To(Equal(g.Generation))
	}).Should(Succeed())
}
