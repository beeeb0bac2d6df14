package weederconfig

import (
	"context"
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("Never deleted", func() {
	It("are the Service's own pods, ownerless, mirror and terminating ones", func(ctx SpecContext) {
		s := newShop(ctx)
		s.recovered(ctx, "etcd")
		// One label for all of them; each has another reason.
		bare := func(name string, change func(*corev1.Pod)) *corev1.Pod {
			return s.bare(ctx, name, func(p *corev1.Pod) {
				p.Labels["weed"] = "true"
				if change != nil {
					change(p)
				}
			})
		}
		bare("ownerless", nil)
		bare("mirror", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} })
		owned := s.owned(ctx)
		terminating := bare("terminating", func(p *corev1.Pod) { owned(p); p.Finalizers = []string{"e2e.example.com/hold"} })
		DeferCleanup(func(ctx context.Context) {
			_, err := h.Kubectl(ctx, "-n", s.namespace, "patch", "pod", "terminating", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
			Expect(err).NotTo(HaveOccurred())
		})
		bare("control", owned)
		for _, name := range []string{"ownerless", "mirror", "terminating", "control"} {
			s.eventuallyCrashes(ctx, name, 1)
		}
		Expect(h.Client.Delete(ctx, terminating)).To(Succeed())

		wc := s.weeder("never", "etcd", "x")
		wc.Spec.ServicesAndDependantSelectors["etcd"].PodSelectors[0].MatchLabels = map[string]string{"weed": "true"}
		Expect(h.Client.Create(ctx, wc)).To(Succeed())
		// The rules refuse a config that selects a Service's own pods, so this one comes later.
		bare("own", func(p *corev1.Pod) { owned(p); p.Labels["app"] = "etcd" })

		Eventually(func() error { return h.Client.Get(ctx, clientKey(s.namespace, "control"), &corev1.Pod{}) }).Should(Satisfy(apierrors.IsNotFound), "it is deleted")
		for _, reason := range []string{"NoController", "MirrorPod", "PodOfTheService"} {
			Eventually(skipped(ctx, wc, reason)).Should(BeEquivalentTo(1), reason)
		}
		for _, name := range []string{"ownerless", "mirror", "own", "terminating"} {
			Expect(h.Client.Get(ctx, clientKey(s.namespace, name), &corev1.Pod{})).To(Succeed(), name)
		}
		Expect(s.crashing(ctx, "terminating")).To(Equal(1), "while it ends it crash-loops")
		Expect(s.acts()).To(HaveLen(1))
	})

	It("are Autohealer's own pods", func(ctx SpecContext) {
		s := shop{harness.Namespace}
		s.recovered(ctx, "etcd")
		DeferCleanup(s.clear)
		wc := s.weeder("own", "etcd", "x")
		wc.Spec.ServicesAndDependantSelectors["etcd"].PodSelectors[0].MatchLabels = map[string]string{"weed": "true"}
		create(ctx, wc)
		owned := s.owned(ctx)
		for _, name := range []string{"autohealer", "other"} { // the rules refuse a config that selects the former, so it comes later
			pod := s.bare(ctx, name, func(p *corev1.Pod) {
				owned(p)
				p.Labels["weed"], p.Labels["app.kubernetes.io/name"] = "true", name
			})
			DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(h.Client.Delete(ctx, pod))).To(Succeed()) })
		}
		Eventually(func() error { return h.Client.Get(ctx, clientKey(s.namespace, "other"), &corev1.Pod{}) }).Should(Satisfy(apierrors.IsNotFound))
		Eventually(skipped(ctx, wc, "PodOfAutohealer")).Should(BeEquivalentTo(1))
		Expect(h.Client.Get(ctx, clientKey(s.namespace, "autohealer"), &corev1.Pod{})).To(Succeed())
	})

	It("is a pod that took another's name while the request was on its way", func(ctx SpecContext) {
		s := newShop(ctx)
		s.recovered(ctx, "etcd")
		owned := s.owned(ctx)
		first := s.unplayed(ctx, "api", owned)
		s.crash(ctx, first)
		replaced := make(chan types.UID, 1)
		var once sync.Once
		proxy.beforeEach(func(r *http.Request) {
			if r.Method != http.MethodDelete || resourceOf(r.URL.Path) != "pods" {
				return
			}
			once.Do(func() {
				defer GinkgoRecover()
				Expect(h.Client.Delete(ctx, first)).To(Succeed())
				Eventually(func() error { return h.Client.Get(ctx, clientKey(s.namespace, "api"), &corev1.Pod{}) }).Should(Satisfy(apierrors.IsNotFound))
				replaced <- s.unplayed(ctx, "api", owned).UID
			})
		})
		DeferCleanup(func() { proxy.beforeEach(nil) })
		wc := s.weeder("replaced", "etcd", "api")
		Expect(h.Client.Create(ctx, wc)).To(Succeed())
		var second types.UID
		Eventually(replaced).Should(Receive(&second))
		quiet(ctx)
		Expect(s.uids(ctx, "api")).To(Equal([]types.UID{second}))
		Expect(s.acts()).To(BeEmpty())
		Eventually(deleted(ctx, wc)).Should(BeZero(), "what didn't happen isn't counted")
	})

	It("is a pod on a cycle that came about after its configs were admitted, while there is one", func(ctx SpecContext) {
		s := newShop(ctx)
		s.upstream(ctx, "etcd", 1)
		s.upstream(ctx, "api", 1)
		first, second := s.weeder("first", "etcd", "api"), s.weeder("second", "api", "x")
		second.Spec.ServicesAndDependantSelectors["api"].PodSelectors[0].MatchLabels = map[string]string{"weed": "true"}
		for _, wc := range []*v1alpha1.WeederConfig{first, second} {
			wc.Spec.WatchDuration = "5m"
			create(ctx, wc)
		}
		s.label(ctx, "etcd", "weed", true)
		s.down(ctx, "etcd")
		s.fail(ctx, "api")
		before := s.uids(ctx, "api")
		s.up(ctx, "etcd")
		Eventually(skipped(ctx, first, "DependencyCycle")).Should(BeEquivalentTo(1))
		Expect(condition(ctx, first, "Ready").Message).To(ContainSubstring("Services wait for each other (etcd → api → etcd)"))
		Consistently(s.uids).WithContext(ctx).WithArguments("api").WithTimeout(moment).Should(Equal(before))
		s.label(ctx, "etcd", "weed", false)
		Eventually(s.uids).WithContext(ctx).WithArguments("api").ShouldNot(Equal(before), "nothing stands before its deletion any more")
	})

	It("is anything in Observe mode, while paused, or under an object that the rules refuse", func(ctx SpecContext) {
		s := newShop(ctx)
		s.recovered(ctx, "etcd")
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
