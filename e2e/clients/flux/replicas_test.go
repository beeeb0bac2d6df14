package flux

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// shoot is a Kustomization, and the namespace of what it applies.
const shoot kustomization = "shoot"

func scales() {
	It("leaves at 0 what a ProbeConfig scaled, with the documented patch, and only with it", func(ctx SpecContext) {
		resources := w.NewShoot(ctx, string(shoot))
		text, err := w.Concept.File("kustomization-patch.yaml")
		Expect(err).NotTo(HaveOccurred())
		var patch struct{ Spec struct{ Patches []any } }
		Expect(yaml.Unmarshal([]byte(text), &patch)).To(Succeed())
		commit(ctx, map[string]string{"shoot/rights.yaml": resources.Rights(), "shoot/deployments.yaml": resources.Deployments("one"), "shoot-policies/config.yaml": resources.ProbeConfig("{}")})
		like(ctx, string(shoot), "", patch.Spec.Patches)
		like(ctx, "shoot-policies", string(shoot), nil)
		Eventually(ctx, kustomization("shoot-policies").state).Should(beReady())
		Expect(resources.Replicas(ctx)).To(Equal(map[string]int32{"kube-controller-manager": 1, "cluster-autoscaler": 2}))

		By("an outage")
		resources.BreakExternal(ctx)
		Eventually(ctx, resources.Replicas).Should(Equal(map[string]int32{"kube-controller-manager": 0, "cluster-autoscaler": 0}))
		shoot.reconcile(ctx)
		outage := map[string]int32{"kube-controller-manager": 0, "cluster-autoscaler": 2}
		Expect(resources.Replicas(ctx)).To(Equal(outage))
		Eventually(ctx, func() string { return resources.Events(ctx, "ScaledByOthers") }).Should(ContainSubstring("field manager kustomize-controller scaled it to 2"))

		By("another change in Git")
		commit(ctx, map[string]string{"shoot/deployments.yaml": resources.Deployments("two")})
		Eventually(ctx, shoot.state).Should(beReady())
		Expect(resources.Replicas(ctx)).To(Equal(outage))

		By("the end of the outage, once the external probe has succeeded for a minute")
		resources.MendExternal()
		Eventually(ctx, resources.Replicas).WithTimeout(specTime).Should(Equal(map[string]int32{"kube-controller-manager": 1, "cluster-autoscaler": 2}))
	}, NodeTimeout(specTime))
}
