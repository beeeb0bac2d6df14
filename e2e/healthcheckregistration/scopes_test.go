package healthcheckregistration

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const rightsToNamespaces = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: autohealer-health-checks-namespaces
  labels: {autohealer.resourcestack.com/aggregate-to-health-checks: "true"}
rules:
- {apiGroups: [""], resources: [namespaces], verbs: [get, list, watch]}
`

var _ = Describe("a check of objects that have no namespace", func() {
	It("finds them from a target that has one, and hears of their changes", func(ctx SpecContext) {
		apply(ctx, rightsToNamespaces)
		DeferCleanup(func(ctx SpecContext) {
			_, err := h.Kubectl(ctx, "delete", "clusterrole", "autohealer-health-checks-namespaces")
			Expect(err).NotTo(HaveOccurred())
		}, NodeTimeout(specTime))
		namespace := place(ctx)
		label := func(ctx context.Context, phase string) {
			GinkgoHelper()
			_, err := h.Kubectl(ctx, "label", "namespace", namespace, "--overwrite", "of="+namespace, "phase="+phase)
			Expect(err).NotTo(HaveOccurred())
		}
		label(ctx, "Up")
		putTarget(ctx, gadget, namespace)
		healthy := `evaluate: {cel: {healthy: object.metadata.labels.phase == 'Up'}}`
		register(ctx, namespace, strings.Replace(about(gadget, namespace, `
checks:
- {name: a, conditionType: Named, object: {apiVersion: v1, kind: Namespace, name: target.metadata.namespace}, `+healthy+`}
- {name: b, conditionType: Selected, onMissing: Skip, object: {apiVersion: v1, kind: Namespace, selector: {matchLabels: {of: `+namespace+`}}}, `+healthy+`}`), "syncPeriod: 5s", "syncPeriod: 1h", 1))
		for _, phase := range []string{"Up", "Down", "Up"} {
			By(phase)
			label(ctx, phase)
			want := is("True", "HealthCheckSuccessful", "")
			if phase == "Down" {
				want = is("False", "HealthCheckUnsuccessful", namespace+" isn't healthy")
			}
			for _, conditionType := range []string{"Named", "Selected"} {
				Eventually(condition(ctx, gadget, namespace, conditionType)).Should(want, conditionType)
			}
		}
	}, NodeTimeout(specTime))
})

var _ = Describe("a kind that has no CustomResourceDefinition", func() {
	It("is told of in the registration's status alone", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		apply(ctx, `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: %[1]s, name: d, labels: {for: %[1]s}},
spec: {replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: c}]}}}}`, namespace)
		spec := "target: {apiVersion: apps/v1, kind: Deployment, selector: {matchLabels: {for: " + namespace + "}}}\nsyncPeriod: 5s\nchecks: [" + checkOf("Dialled", "dial") + "]\n"
		because := "it has no CustomResourceDefinition, and only custom resources take conditions of health checks"
		Expect(tryOut(ctx, namespace, spec)).To(warns("unwritable", "Deployment takes no conditions: "+because+"; write output: RegistrationOnly"))
		register(ctx, namespace, spec)
		Eventually(statusOf(ctx, namespace, "Stalled")).Should(Equal("True KindUnusable: Deployment of apps/v1 can't have conditions: " + because + "; write output: RegistrationOnly."))

		By("as the refusal says")
		spec += "output: RegistrationOnly\n"
		Expect(tryOut(ctx, namespace+"-other", spec)).To(BeEmpty())
		apply(ctx, "{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: HealthCheckRegistration, metadata: {name: %s}, spec: {output: RegistrationOnly}}", namespace)
		Eventually(statusOf(ctx, namespace, "Ready")).Should(HavePrefix("True Operative: 1 of 1 targets are healthy"))
		setPhase(ctx, namespace, "dial", "Down")
		Eventually(statusOf(ctx, namespace, "TargetsHealthy")).Should(HavePrefix("False SomeUnhealthy: "))
	}, NodeTimeout(specTime))
})
