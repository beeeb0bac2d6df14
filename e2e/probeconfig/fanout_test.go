package probeconfig

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// followNamespaces: a config with a namespaceSelector has the targets that there are, and nothing waits for one that goes.
func (s *story) followNamespaces() {
	It("in the namespaces that there are, whether they come, go half-way, or are no longer selected", func(ctx SpecContext) {
		pc := shoot{namespace: harness.Namespace}.prober("fanout", dependent("kcm", 0, 0))
		pc.Spec.NamespaceSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"fanout": "true"}}
		label := func(one shoot, value string) {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"fanout":%s}}}`, value)
			Expect(h.Client.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: one.namespace}}, client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
		}
		targets := func(ctx context.Context) (v1alpha1.TargetCounts, error) {
			err := h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc)
			if err != nil || pc.Status.Targets == nil {
				return v1alpha1.TargetCounts{}, err
			}
			return *pc.Status.Targets, nil
		}
		proven := func(ctx context.Context) ([]v1alpha1.ProvenKubeconfig, error) {
			err := h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc)
			return pc.Status.ProvenKubeconfigs, err
		}
		all := newShoots(ctx, 3)
		stays, goes, leaves := all[0], all[1], all[2]
		for _, one := range all {
			one.deployPaused(ctx, "kcm", nil)
		}
		Expect(h.Client.Create(ctx, pc)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(h.Client.Delete(ctx, pc))).To(Succeed()) })
		for i, one := range all {
			label(one, `"true"`)
			Eventually(targets).WithContext(ctx).Should(And(HaveField("Total", BeEquivalentTo(i+1)), HaveField("Probed", BeEquivalentTo(i+1))), "a namespace appears")
			Eventually(proven).WithContext(ctx).Should(HaveLen(i+1), "where a kubeconfig has never worked nothing is scaled down")
		}

		By("letting all fail, of which one gets no further than its record")
		s.gate.shutAfter(goes.namespace, 1)
		cut(stays.external, goes.external, leaves.external)
		Eventually(s.gate.holds).WithContext(ctx).WithArguments(goes.namespace).Should(BeTrue())
		Eventually(targets).WithContext(ctx).Should(HaveField("ScaledDown", BeEquivalentTo(2)), "what runs isn't told as scaled down, whatever its record says")
		Expect(goes.replicas(ctx)).To(HaveKeyWithValue("kcm", BeEquivalentTo(1)))

		By("deleting that namespace, and no longer selecting another")
		Expect(h.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: goes.namespace}})).To(Succeed())
		label(leaves, "null")
		Eventually(leaves.replicas).WithContext(ctx).Should(HaveKeyWithValue("kcm", BeEquivalentTo(1)), "it has back what was taken")
		Eventually(leaves.records).WithContext(ctx).Should(BeEmpty())
		Eventually(targets).WithContext(ctx).Should(And(HaveField("Total", BeEquivalentTo(1)), HaveField("ScaledDown", BeEquivalentTo(1))))
		Expect(stays.replicas(ctx)).To(HaveKeyWithValue("kcm", BeZero()))

		By("deleting the config")
		Expect(h.Client.Delete(ctx, pc)).To(Succeed())
		Eventually(stays.replicas).WithContext(ctx).Should(HaveKeyWithValue("kcm", BeEquivalentTo(1)))
		Eventually(func(ctx context.Context) error {
			_, err := targets(ctx)
			return err
		}).WithContext(ctx).Should(MatchError(apierrors.IsNotFound, "not found"))
	}, SpecTimeout(specTime))
}

// loseRight takes from the account of an admitted config the right to scale.
func (s *story) loseRight(ctx context.Context) {
	GinkgoHelper()
	role := &rbacv1.Role{ObjectMeta: named(s.powerless.namespace, "prober"), Rules: []rbacv1.PolicyRule{readSecrets}}
	Expect(h.Client.Update(ctx, role)).To(Succeed())
}

// askRights: outside Autohealer's own namespace a config does what its account may, and no more.
func (s *story) askRights() {
	It("not for an account that may not scale, nor for one that lost this right a minute ago, after its config was admitted", func(ctx SpecContext) {
		never := s.powerless.prober("never", dependent("idle", 0, 0))
		never.Spec.ServiceAccountName = "nobody"
		Expect(h.Client.Create(ctx, never)).To(MatchError(ContainSubstring("probeconfig/account-may-not-scale")))
		pc := s.powerless.prober("prober")
		Eventually(func(ctx context.Context) (string, error) {
			err := h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc)
			if c := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ConditionAccepted); c != nil && c.Status == metav1.ConditionFalse {
				return c.Message, err
			}
			return "", err
		}, "90s").WithContext(ctx).Should(ContainSubstring("probeconfig/account-may-not-scale"))
		cut(s.powerless.external)
		Eventually(func(ctx context.Context) (int32, error) {
			err := h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc)
			return pc.Status.Targets.Probed, err
		}).WithContext(ctx).Should(BeZero(), "nothing is probed with which nothing may be done")
		Expect(s.powerless.scalings(ctx)).To(BeEmpty())
		role := &rbacv1.Role{ObjectMeta: named(s.powerless.namespace, "prober"), Rules: []rbacv1.PolicyRule{readSecrets, scaleAll}}
		Expect(h.Client.Update(ctx, role)).To(Succeed())
	}, SpecTimeout(specTime))
}

// expectEmpowered: the account that lost its right has it again, and the way from outside has been cut all the while.
func (s *story) expectEmpowered(ctx context.Context) {
	GinkgoHelper()
	Eventually(s.powerless.replicas, "90s").WithContext(ctx).Should(Equal(none), "once the account may again")
}
