package probeconfig

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// about is a condition's reason and message.
func (s shoot) says(ctx context.Context, conditionType string) (string, error) {
	var all v1alpha1.ProbeConfigList
	if err := h.Client.List(ctx, &all, client.InNamespace(s.namespace)); err != nil || len(all.Items) == 0 {
		return "", err
	}
	if c := meta.FindStatusCondition(all.Items[0].Status.Conditions, conditionType); c != nil {
		return c.Reason + ": " + c.Message, nil
	}
	return "", nil
}

var _ = Describe("a ProbeConfig whose external kubeconfig", func() {
	It("never worked scales nothing down; once it has, what others scale up is named", func(ctx SpecContext) {
		underOracle(ctx, nil)
		s := newShoot(ctx)
		s.deploy(ctx, "kcm", 2)
		cut(s.external)
		pc := s.prober("prober", dependent("kcm", 0, 0))
		pc.Spec.AnnotateMeltdownProtection = ptr.To(true)
		Expect(h.Client.Create(ctx, pc)).To(Succeed())
		Eventually(s.says).WithContext(ctx).WithArguments(v1alpha1.ConditionStalled).Should(HavePrefix(
			"KubeconfigUntried: The external probe fails, and hasn't succeeded since Secret " + s.namespace + "/external was written: "))
		Consistently(s.scalings).WithContext(ctx).WithTimeout(5 * time.Second).Should(BeEmpty())

		mend(s.external)
		Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionExternalHealthy).Should(Equal(metav1.ConditionTrue))
		Expect(s.condition(ctx, v1alpha1.ConditionStalled)).NotTo(Equal(metav1.ConditionTrue))
		cut(s.external)
		Eventually(s.replicas).WithContext(ctx).Should(Equal(map[string]int32{"kcm": 0}))
		annotations := func(ctx context.Context) (map[string]string, error) {
			var d appsv1.Deployment
			err := h.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "kcm"}, &d)
			return d.Annotations, err
		}
		Expect(annotations(ctx)).To(HaveKey("dependency-watchdog.gardener.cloud/meltdown-protection-active"))

		Expect(h.Client.Patch(ctx, &appsv1.Deployment{ObjectMeta: named(s.namespace, "kcm")},
			client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":1}}`)), client.FieldOwner("gitops"))).To(Succeed())
		Eventually(s.says).WithContext(ctx).WithArguments(v1alpha1.ConditionProtectionActive).Should(Equal(
			"ScaledByOthers: Nothing is scaled down. Not protected: Deployment " + s.namespace + "/kcm: field manager gitops scaled it to 1 after it was scaled down."))
		Eventually(func(ctx context.Context) (notes []string, err error) {
			var all eventsv1.EventList
			err = h.Client.List(ctx, &all, client.InNamespace(s.namespace))
			for _, e := range all.Items {
				if e.Reason == "ScaledByOthers" && e.Action == "Leave" { // others tell that the condition turned
					notes = append(notes, e.Note)
				}
			}
			return notes, err
		}).WithContext(ctx).Should(ConsistOf(ContainSubstring("field manager gitops scaled it to 1"), ContainSubstring("field manager gitops scaled it to 1")),
			"one on the object, one on the config")

		mend(s.external)
		Eventually(annotations).WithContext(ctx).ShouldNot(Or(HaveKey("dependency-watchdog.gardener.cloud/meltdown-protection-active"),
			HaveKey(v1alpha1.AnnotationOriginalReplicas)), "when it recovered")
		Expect(s.replicas(ctx)).To(Equal(map[string]int32{"kcm": 1}))
	}, SpecTimeout(specTime))
})
