package argocd

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

func selfHeals() {
	for _, apply := range []struct {
		name    application
		options []any
	}{
		{"client-side", []any{"RespectIgnoreDifferences=true"}},
		{"server-side", []any{"RespectIgnoreDifferences=true", "ServerSideApply=true"}},
	} {
		It("leaves at 0 what a ProbeConfig scaled, with the documented ignoreDifferences, and only with them: "+string(apply.name), func(ctx SpecContext) {
			name := apply.name
			shoot := w.NewShoot(ctx, string(name))
			text, err := w.Concept.File("application-patch.yaml")
			Expect(err).NotTo(HaveOccurred())
			var patch struct {
				Spec struct {
					IgnoreDifferences []any
					SyncPolicy        struct{ SyncOptions []any }
				}
			}
			Expect(yaml.Unmarshal([]byte(text), &patch)).To(Succeed())
			Expect(patch.Spec.SyncPolicy.SyncOptions).To(Equal([]any{"ServerSideApply=true", "RespectIgnoreDifferences=true"}))
			name.commit(ctx, map[string]string{
				"rights.yaml": shoot.Rights(), "deployments.yaml": shoot.Deployments("one"), "config.yaml": shoot.ProbeConfig(`{argocd.argoproj.io/sync-wave: "1"}`),
			})
			name.create(ctx, with(patch.Spec.IgnoreDifferences, "spec", "ignoreDifferences"), with(apply.options, "spec", "syncPolicy", "syncOptions"))
			Eventually(ctx, name.state).Should(Equal(inSync))
			Expect(shoot.Replicas(ctx)).To(Equal(map[string]int32{"kube-controller-manager": 2, "cluster-autoscaler": 2}))

			By("an outage")
			shoot.BreakExternal(ctx)
			outage := map[string]int32{"kube-controller-manager": 0, "cluster-autoscaler": 2}
			Eventually(ctx, shoot.Replicas).Should(Equal(outage))
			Eventually(ctx, func() string { return shoot.Events(ctx, "ScaledByOthers") }).Should(ContainSubstring("field manager argocd-controller scaled it to 2"))
			name.expectNoDrift(ctx)
			Expect(shoot.Replicas(ctx)).To(Equal(outage))

			By("a sync for another reason")
			name.commit(ctx, map[string]string{"deployments.yaml": shoot.Deployments("two")})
			Eventually(ctx, name.state).Should(Equal(inSync))
			Expect(shoot.Replicas(ctx)).To(Equal(outage))

			By("the end of the outage")
			shoot.MendExternal()
			Eventually(ctx, shoot.Replicas).WithTimeout(specTime).Should(Equal(map[string]int32{"kube-controller-manager": 2, "cluster-autoscaler": 2}))
			Eventually(ctx, name.state).Should(Equal(inSync))
		}, NodeTimeout(2*specTime))
	}
}
