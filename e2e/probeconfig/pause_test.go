package probeconfig

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

var _ = Describe("while a Guardrail pauses", func() {
	It("nothing is scaled down, the status says so, and it goes on where it was", func(ctx SpecContext) {
		s := newShoot(ctx)
		s.deploy(ctx, "kcm", 1)
		pc := s.prober("prober", dependent("kcm", 0, 0))
		Expect(h.Client.Create(ctx, pc)).To(Succeed())
		Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionExternalHealthy).Should(Equal(metav1.ConditionTrue))
		pause := &v1alpha1.Guardrail{ObjectMeta: named("", "maintenance"), Spec: v1alpha1.GuardrailSpec{Paused: true}}
		Expect(h.Client.Create(ctx, pause)).To(Succeed())
		goOn := func(ctx context.Context) { Expect(client.IgnoreNotFound(h.Client.Delete(ctx, pause))).To(Succeed()) }
		DeferCleanup(goOn)
		ready := func(ctx context.Context) (metav1.Condition, error) {
			err := h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc)
			if c := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ConditionReady); c != nil {
				return *c, err
			}
			return metav1.Condition{}, err
		}
		Eventually(ready).WithContext(ctx).Should(And(HaveField("Reason", "Paused"), HaveField("Message", ContainSubstring("Guardrail maintenance pauses all new acts"))))

		cut(s.external)
		Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionExternalHealthy).Should(Equal(metav1.ConditionFalse))
		Consistently(s.scalings).WithContext(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
		goOn(ctx)
		Eventually(s.replicas).WithContext(ctx).Should(Equal(map[string]int32{"kcm": 0}))
	}, SpecTimeout(specTime))
})
