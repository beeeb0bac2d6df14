package probeconfig

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// update changes a stored config.
func update(ctx context.Context, pc *v1alpha1.ProbeConfig, change func(*v1alpha1.ProbeConfigSpec), options ...client.UpdateOption) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var now v1alpha1.ProbeConfig
		if err := h.Client.Get(ctx, client.ObjectKeyFromObject(pc), &now); err != nil {
			return err
		}
		change(&now.Spec)
		return h.Client.Update(ctx, &now, options...)
	})
}

func mode(mode v1alpha1.Mode) func(*v1alpha1.ProbeConfigSpec) {
	return func(spec *v1alpha1.ProbeConfigSpec) { spec.Mode = mode }
}

var _ = Describe("a ProbeConfig that drifted into a violation", func() {
	It("may be edited and turned to observation, and doesn't get back", func(ctx SpecContext) {
		s := newShoot(ctx)
		s.deploy(ctx, "kcm", 1)
		pc := s.prober("prober", dependent("kcm", 0, 0))
		Expect(h.Client.Create(ctx, pc)).To(Succeed())
		s.put(ctx, "external", kubeconfigOf(s.internal.Addr()))
		fresh := s.prober("fresh", dependent("kcm", 0, 0))
		Eventually(func(ctx context.Context) error { return h.Client.Create(ctx, fresh.DeepCopy(), client.DryRunAll) }).WithContext(ctx).Should(MatchError(And(
			ContainSubstring("probeconfig/same-server"), ContainSubstring("probeconfig/shared-dependent"))), "once the manager has seen the first")

		Expect(update(ctx, pc, func(spec *v1alpha1.ProbeConfigSpec) { spec.InitialDelay = "2s" })).To(Succeed())
		Expect(update(ctx, pc, mode(v1alpha1.Observe))).To(Succeed())
		Expect(update(ctx, pc, func(spec *v1alpha1.ProbeConfigSpec) { spec.InitialDelay = "3s" })).To(Succeed())
		Expect(update(ctx, pc, mode(v1alpha1.Enforce))).To(MatchError(ContainSubstring("probeconfig/same-server")))
		fresh = s.prober("fresh", dependent("kcm", 0, 0))
		fresh.Spec.Mode = v1alpha1.Observe
		Expect(h.Client.Create(ctx, fresh, client.DryRunAll)).To(Succeed(), "what only observes scales nothing")
	}, SpecTimeout(specTime))

	It("for want of rights may be edited too, and what it probes isn't scaled", func(ctx SpecContext) {
		s := newShoot(ctx)
		s.deploy(ctx, "kcm", 1)
		pc := s.prober("prober", dependent("kcm", 0, 0))
		Expect(h.Client.Create(ctx, pc)).To(Succeed())
		Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionExternalHealthy).Should(Equal(metav1.ConditionTrue))
		Expect(h.Client.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: named(s.namespace, "prober")})).To(Succeed())
		fresh := s.prober("fresh", dependent("other", 0, 0))
		Eventually(func(ctx context.Context) error { return h.Client.Create(ctx, fresh.DeepCopy(), client.DryRunAll) }).WithContext(ctx).Should(
			MatchError(And(ContainSubstring("probeconfig/account-may-not-read"), ContainSubstring("probeconfig/account-may-not-scale"))), "the API server has seen that the right is gone")

		Expect(update(ctx, pc, func(spec *v1alpha1.ProbeConfigSpec) { spec.InitialDelay = "2s" })).To(Succeed())
		Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionAccepted).Should(Equal(metav1.ConditionFalse))
		cut(s.external)
		Expect(update(ctx, pc, mode(v1alpha1.Observe))).To(Succeed())
		Expect(update(ctx, pc, mode(v1alpha1.Enforce), client.DryRunAll)).To(MatchError(ContainSubstring("probeconfig/account-may-not-scale")))
		fresh.Spec.Mode = v1alpha1.Observe
		Expect(h.Client.Create(ctx, fresh, client.DryRunAll)).To(MatchError(And(
			ContainSubstring("probeconfig/account-may-not-read"), Not(ContainSubstring("probeconfig/account-may-not-scale:")))), "observing reads the Secrets, too")
		Consistently(s.scalings).WithContext(ctx).WithTimeout(time.Second).Should(BeEmpty())
	}, SpecTimeout(specTime))
})

var _ = Describe("a tenant's ProbeConfig", func() {
	It("that is stored while the webhook is away gets no act that its account may not do", func(ctx SpecContext) {
		s := newShoot(ctx)
		s.deploy(ctx, "kcm", 1)
		Expect(h.Client.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: named(s.namespace, "prober")})).To(Succeed())
		pc := s.prober("prober", dependent("kcm", 0, 0))
		Eventually(func(ctx context.Context) error { return h.Client.Create(ctx, pc.DeepCopy(), client.DryRunAll) }).WithContext(ctx).Should(
			MatchError(ContainSubstring("probeconfig/account-may-not-read")))
		withoutWebhook(ctx, func() {
			Eventually(func(ctx context.Context) error { return h.Client.Create(ctx, pc.DeepCopy()) }).WithContext(ctx).Should(Succeed(), "once the API server knows that the webhook is gone")
		})

		Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionAccepted).Should(Equal(metav1.ConditionFalse))
		cut(s.external)
		Consistently(s.scalings).WithContext(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())
		Expect(s.condition(ctx, v1alpha1.ConditionExternalHealthy)).NotTo(Equal(metav1.ConditionTrue), "nor are its Secrets used")

		By("giving the account the right")
		mend(s.external)
		s.bind(ctx)
		Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionExternalHealthy).Should(Equal(metav1.ConditionTrue))
		cut(s.external)
		Eventually(s.replicas).WithContext(ctx).Should(Equal(map[string]int32{"kcm": 0}), "so nothing else held it back")
	}, SpecTimeout(specTime))
})

// withoutWebhook does something while the webhook isn't there; the policies are.
func withoutWebhook(ctx context.Context, do func()) {
	GinkgoHelper()
	webhook := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "autohealer"}}
	Expect(h.Client.Get(ctx, client.ObjectKeyFromObject(webhook), webhook)).To(Succeed())
	Expect(h.Client.Delete(ctx, webhook.DeepCopy())).To(Succeed())
	do()
	webhook.SetResourceVersion("")
	webhook.SetUID("")
	Expect(h.Client.Create(ctx, webhook)).To(Succeed())
}
