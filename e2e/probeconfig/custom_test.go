package probeconfig

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

var _ = Describe("a custom resource", func() {
	It("recovers in its level, after one object and before another, which doesn't wait for it for ever", func(ctx SpecContext) {
		s := newShoot(ctx)
		defineMachines(ctx)
		s.deploy(ctx, "kcm", 2)
		s.deploy(ctx, "mcm", 1)
		machine := machineFleet(s.namespace)
		Eventually(func(ctx context.Context) error { return h.Client.Create(ctx, machine.DeepCopy()) }).WithContext(ctx).Should(Succeed(), "once the kind is served")
		fleet := dependentOf("example.com/v1", "MachineFleet", "workers", 0, 1)
		fleet.ScaleUp.Timeout = "5s" // no controller ever tells of its machines
		pc := s.prober("prober", dependent("kcm", 0, 0), fleet, dependent("mcm", 0, 2))
		Expect(h.Client.Create(ctx, pc)).To(Succeed())
		machines := func(ctx context.Context) (int64, error) {
			err := h.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine)
			n, _, _ := unstructured.NestedInt64(machine.Object, "spec", "replicas")
			return n, err
		}
		Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionExternalHealthy).Should(Equal(metav1.ConditionTrue))
		cut(s.external)
		Eventually(machines).WithContext(ctx).Should(BeZero())
		Eventually(s.replicas).WithContext(ctx).Should(Equal(map[string]int32{"kcm": 0, "mcm": 0}))
		mend(s.external)
		Eventually(s.replicas).WithContext(ctx).Should(Equal(map[string]int32{"kcm": 2, "mcm": 1}), "a minute after it recovers")
		Expect(machines(ctx)).To(BeEquivalentTo(4))
		writes := s.written(ctx, 4) // those of custom resources aren't among them
		Expect(writes[:2]).To(ConsistOf("kcm 0", "mcm 0"))
		Expect(writes[2:]).To(Equal([]string{"kcm 2", "mcm 1"}))
		Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionProtectionActive).Should(Equal(metav1.ConditionFalse))
		Expect(machine.GetAnnotations()).NotTo(HaveKey(v1alpha1.AnnotationOriginalReplicas))
		Expect(h.Client.Delete(ctx, pc)).To(Succeed())
		Eventually(func(ctx context.Context) error {
			return h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc)
		}).WithContext(ctx).Should(MatchError(apierrors.IsNotFound, "not found"), "it goes while the manager may still list machines")
	}, SpecTimeout(specTime))
})
