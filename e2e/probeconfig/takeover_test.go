package probeconfig

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("what someone scales up in an outage", func() {
	It("stays so when the manager is restarted in the middle of it", func(ctx SpecContext) {
		watching := underOracle(ctx, nil)
		s := newShoot(ctx)
		s.deploy(ctx, "kcm", 2)
		s.deploy(ctx, "held", 1)
		change := func(name, patch string) {
			GinkgoHelper()
			Expect(h.Client.Patch(ctx, &appsv1.Deployment{ObjectMeta: named(s.namespace, name)},
				client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("gitops"))).To(Succeed())
		}
		change("held", `{"metadata":{"annotations":{"autohealer.resourcestack.com/hold-until":"2100-01-01T00:00:00Z"}}}`)
		Expect(h.Client.Create(ctx, s.prober("prober", dependent("kcm", 0, 0), dependent("held", 0, 0)))).To(Succeed())
		Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionExternalHealthy).Should(Equal(metav1.ConditionTrue))
		watching.CutOff(s.namespace)
		cut(s.external)
		Eventually(s.replicas).WithContext(ctx).Should(Equal(map[string]int32{"kcm": 0, "held": 1}))
		change("kcm", `{"spec":{"replicas":2}}`)

		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		change("held", `{"metadata":{"annotations":{"autohealer.resourcestack.com/hold-until":null}}}`)
		Expect(h.StartComponent(ctx, harness.Manager)).To(Succeed())
		Eventually(s.replicas).WithContext(ctx).Should(Equal(map[string]int32{"kcm": 2, "held": 0}), "both are of one level, and would be scaled at once")
		Eventually(s.says).WithContext(ctx).WithArguments(v1alpha1.ConditionProtectionActive).Should(ContainSubstring(
			"Not protected: Deployment " + s.namespace + "/kcm: field manager gitops scaled it to 2 after it was scaled down."))

		watching.Mend(s.namespace)
		mend(s.external)
		Eventually(s.records).WithContext(ctx).Should(BeEmpty(), "when it recovered")
		Expect(s.replicas(ctx)).To(Equal(map[string]int32{"kcm": 2, "held": 1}))
		Expect(s.scalings(ctx)).To(Equal([]string{"kcm 0", "held 0", "held 1"}))
	}, SpecTimeout(specTime))
})
