package weederconfig

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

var _ = Describe("Budgets", func() {
	It("cap the deletions of one window, also across kill -9", func(ctx SpecContext) {
		s := newShop(ctx)
		s.upstream(ctx, "etcd")
		wc := s.weeder("capped", "etcd", "api")
		wc.Spec.MaxDeletionsPerWatch = ptr.To[int32](2)
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

	It("cap the repeats of a workload in an hour, also across kill -9", func(ctx SpecContext) {
		s := newShop(ctx)
		s.upstream(ctx, "etcd")
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
		Expect(acts[0].Repeat).To(BeFalse())
		Expect(acts[1].Repeat && acts[2].Repeat).To(BeTrue())
		Expect([]string{acts[0].ID, acts[1].ID, acts[2].ID}).To(ConsistOf(HaveLen(16), HaveLen(16), HaveLen(16)))
	})

	It("let PodDisruptionBudgets hold back evictions", func(ctx SpecContext) {
		s := newShop(ctx)
		s.allow(ctx, "evictor",
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"delete"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}})
		s.upstream(ctx, "etcd")
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

	It("cap the deletions of a minute over all configs", func(ctx SpecContext) {
		setLimit(ctx, 3)
		DeferCleanup(func(ctx context.Context) { setLimit(ctx, 10000) })
		s := newShop(ctx)
		s.upstream(ctx, "etcd")
		s.deploy(ctx, "api", 6, map[string]string{crash: "true"})
		wc := s.weeder("minute", "etcd", "api")
		Expect(h.Client.Create(ctx, wc)).To(Succeed())
		Eventually(skipped(ctx, wc, "MaxPodDeletionsPerMinute")).Should(BeNumerically(">=", 3))
		Consistently(func() int { return len(s.acts()) }).WithTimeout(moment).Should(BeNumerically("<=", 3))
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

var _ = Describe("Never deleted", func() {
	It("are the Service's own pods, ownerless, mirror and terminating ones, and Autohealer's", func(ctx SpecContext) {
		s := newShop(ctx)
		s.upstream(ctx, "etcd")
		// One label for all of them; each has another reason.
		selected := map[string]string{"weed": "true", crash: "true"}
		bare := func(name string, change func(*corev1.Pod)) *corev1.Pod {
			template := podTemplate(name, selected)
			pod := &corev1.Pod{ObjectMeta: named(s.namespace, name), Spec: template.Spec}
			pod.Labels, pod.Spec.NodeName = template.Labels, "node-0"
			if change != nil {
				change(pod)
			}
			Expect(h.Client.Create(ctx, pod)).To(Succeed())
			return pod
		}
		bare("ownerless", nil)
		bare("mirror", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} })
		// A ReplicaSet would let go of pods that it doesn't select.
		owner := &corev1.ConfigMap{ObjectMeta: named(s.namespace, "owner")}
		Expect(h.Client.Create(ctx, owner)).To(Succeed())
		owned := func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
		}
		bare("own", func(p *corev1.Pod) { owned(p); p.Labels["app"] = "etcd" })
		terminating := bare("terminating", func(p *corev1.Pod) { owned(p); p.Finalizers = []string{"e2e.example.com/hold"} })
		DeferCleanup(func(ctx context.Context) {
			_, err := h.Kubectl(ctx, "-n", s.namespace, "patch", "pod", "terminating", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
			Expect(err).NotTo(HaveOccurred())
		})
		Expect(h.Client.Delete(ctx, terminating)).To(Succeed())
		control := bare("control", owned)
		for _, name := range []string{"ownerless", "mirror", "own"} {
			app := name
			if name == "own" {
				app = "etcd"
			}
			s.eventuallyCrashes(ctx, app, 1)
		}

		wc := s.weeder("never", "etcd", "x")
		wc.Spec.ServicesAndDependantSelectors["etcd"].PodSelectors[0].MatchLabels = map[string]string{"weed": "true"}
		// The rules refuse a config that selects a Service's own pods, so the stored one came before the pod did.
		Expect(h.Client.Delete(ctx, &corev1.Pod{ObjectMeta: named(s.namespace, "own")})).To(Succeed())
		Eventually(func() error { return h.Client.Get(ctx, clientKey(s.namespace, "own"), &corev1.Pod{}) }).Should(Satisfy(apierrors.IsNotFound))
		Expect(h.Client.Create(ctx, wc)).To(Succeed())
		bare("own", func(p *corev1.Pod) { owned(p); p.Labels["app"] = "etcd" })

		Eventually(func() error { return h.Client.Get(ctx, clientKey(s.namespace, "control"), &corev1.Pod{}) }).Should(Satisfy(apierrors.IsNotFound), "%s is deleted", control.Name)
		for _, reason := range []string{"NoController", "MirrorPod", "PodOfTheService"} {
			Eventually(skipped(ctx, wc, reason)).Should(BeEquivalentTo(1), reason)
		}
		for _, name := range []string{"ownerless", "mirror", "own", "terminating"} {
			Expect(h.Client.Get(ctx, clientKey(s.namespace, name), &corev1.Pod{})).To(Succeed(), name)
		}
		Expect(s.acts()).To(HaveLen(1))
	})

	It("is anything in Observe mode, while paused, or under an object that the rules refuse", func(ctx SpecContext) {
		s := newShop(ctx)
		s.upstream(ctx, "etcd")
		s.deploy(ctx, "api", 1, map[string]string{crash: "true"})
		before := s.uids(ctx, "api")
		wc := s.weeder("held", "etcd", "api")
		wc.Spec.Mode, wc.Spec.WatchDuration = v1alpha1.Observe, "5m"
		create(ctx, wc)
		Eventually(skipped(ctx, wc, "Observing")).Should(BeEquivalentTo(1))
		Expect(condition(ctx, wc, "Ready")).To(And(HaveField("Reason", "Observing"), HaveField("Message", ContainSubstring("1 pods would be deleted now"))))

		changeGuardrail(ctx, func(g *v1alpha1.Guardrail) { g.Spec.Paused = true })
		DeferCleanup(func(ctx context.Context) {
			changeGuardrail(ctx, func(g *v1alpha1.Guardrail) { g.Spec.Paused = false })
		})
		edit(ctx, wc, func(wc *v1alpha1.WeederConfig) { wc.Spec.Mode = v1alpha1.Enforce })
		Eventually(skipped(ctx, wc, "Paused")).Should(BeEquivalentTo(1))
		Expect(condition(ctx, wc, "Ready")).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", "Paused")))
		Consistently(s.uids).WithContext(ctx).WithArguments("api").WithTimeout(moment).Should(Equal(before))

		By("a rule that comes later refuses it")
		changeGuardrail(ctx, func(g *v1alpha1.Guardrail) {
			g.Spec.Paused = false
			g.Spec.Rules = []v1alpha1.GuardrailRule{{
				Name: "no-weeding", Kinds: []string{"WeederConfig"}, Severity: "Deny", Expression: "object.metadata.namespace != '" + s.namespace + "'",
			}}
		})
		DeferCleanup(func(ctx context.Context) { changeGuardrail(ctx, func(g *v1alpha1.Guardrail) { g.Spec.Rules = nil }) })
		Eventually(func() metav1.Condition { return condition(ctx, wc, "Accepted") }).Should(And(
			HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("lifted/no-weeding"))))
		Consistently(s.uids).WithContext(ctx).WithArguments("api").WithTimeout(moment).Should(Equal(before))

		By("once nothing stands before it, it acts")
		changeGuardrail(ctx, func(g *v1alpha1.Guardrail) { g.Spec.Rules = nil })
		Eventually(s.uids).WithContext(ctx).WithArguments("api").WithTimeout(10 * time.Second).ShouldNot(Equal(before))
	})
})
