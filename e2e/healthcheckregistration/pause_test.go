package healthcheckregistration

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// guarded puts a Guardrail in force until end is called, or the spec ends.
func guarded(ctx context.Context, name string, spec v1alpha1.GuardrailSpec) (end func()) {
	GinkgoHelper()
	rail := &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	Expect(h.Client.Create(ctx, rail)).To(Succeed())
	drop := func(ctx context.Context) { Expect(client.IgnoreNotFound(h.Client.Delete(ctx, rail))).To(Succeed()) }
	DeferCleanup(func(ctx SpecContext) { drop(ctx) }, NodeTimeout(specTime))
	return func() { drop(ctx) }
}

var _ = Describe("a registration that may not act", func() {
	for what, c := range map[string]struct {
		spec func(namespace string) v1alpha1.GuardrailSpec
		says string
	}{
		"paused": {
			func(string) v1alpha1.GuardrailSpec { return v1alpha1.GuardrailSpec{Paused: true} },
			"Paused: ",
		},
		"refused by a rule that came later": {
			func(namespace string) v1alpha1.GuardrailSpec {
				return v1alpha1.GuardrailSpec{Rules: []v1alpha1.GuardrailRule{{
					Name: "r", Kinds: []string{"HealthCheckRegistration"}, Expression: "object.metadata.name != '" + namespace + "'",
				}}}
			},
			"RuleViolated",
		},
	} {
		It("only heals while it is "+what+", and goes on where it was", func(ctx SpecContext) {
			namespace := place(ctx)
			setPhase(ctx, namespace, "ill", "Down")
			setPhase(ctx, namespace, "well", "Up")
			putTarget(ctx, gadget, namespace)
			register(ctx, namespace, about(gadget, namespace, "checks: ["+checkOf("Ill", "ill")+", "+checkOf("Well", "well")+"]"))
			ill, well := condition(ctx, gadget, namespace, "Ill"), condition(ctx, gadget, namespace, "Well")
			Eventually(ill).Should(is("False", "HealthCheckUnsuccessful", ""))
			Eventually(well).Should(is("True", "HealthCheckSuccessful", ""))

			end := guarded(ctx, namespace, c.spec(namespace))
			Eventually(statusOf(ctx, namespace, "Ready")).Should(ContainSubstring(c.says))
			setPhase(ctx, namespace, "well", "Down")
			setPhase(ctx, namespace, "ill", "Up")
			Eventually(ill).Should(is("True", "HealthCheckSuccessful", ""), "it heals")
			Consistently(well, 7*time.Second).Should(is("True", "HealthCheckSuccessful", ""), "and nothing turns False, also at the next look")

			end()
			Eventually(well).Should(is("False", "HealthCheckUnsuccessful", "it is Down"))
			Eventually(statusOf(ctx, namespace, "Ready")).Should(HavePrefix("True Operative"))
		}, NodeTimeout(specTime))
	}
})
