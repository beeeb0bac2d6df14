package healthcheckregistration

import (
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const healthyResource = `
apiVersion: resources.gardener.cloud/v1alpha1
kind: ManagedResource
metadata: {name: mcm-shoot}
status:
  observedGeneration: 1
  conditions: [{type: ResourcesApplied, status: "True"}, {type: ResourcesHealthy, status: "True"}]
`

// mcm has no pods, so that its real controller finds it available.
const mcm = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: machine-controller-manager}, spec: {replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}"

var _ = Describe("the sample of a provider's Workers", func() {
	It("gives a Worker its two conditions, follows what it depends on, and takes them away with itself", func(ctx SpecContext) {
		namespace := place(ctx)
		put(ctx, namespace, healthyResource)
		putNode(ctx, "example-1")
		putNode(ctx, "example-2")
		putKubeconfig(ctx, namespace)
		deployment := put(ctx, namespace, mcm)
		put(ctx, namespace, "{apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, metadata: {name: w}, spec: {type: aws, pools: [{minimum: 1}, {minimum: 1}]}}")
		DeferCleanup(func(ctx SpecContext) { unregister(ctx, "provider-aws-worker") }, NodeTimeout(specTime))
		_, err := h.Kubectl(ctx, "apply", "-f", filepath.Join(h.Root(), "config", "samples", "healthcheckregistration-1.yaml"))
		Expect(err).NotTo(HaveOccurred())

		system, nodes := condition(ctx, worker, namespace, "SystemComponentsHealthy"), condition(ctx, worker, namespace, "EveryNodeReady")
		Eventually(nodes).Should(is("True", "HealthCheckSuccessful", `^\(2/2\) Health checks successful$`))
		Eventually(system).Should(is("True", "HealthCheckSuccessful", `^\(1/1\) Health checks successful$`))
		Expect(nodes()).To(HaveKey("lastUpdateTime"), "Gardener's shape")
		Expect(stored(ctx, worker, namespace).GetAnnotations()).To(HaveKeyWithValue("autohealer.resourcestack.com/owned-conditions", "EveryNodeReady,SystemComponentsHealthy"))
		Eventually(statusOf(ctx, "provider-aws-worker", "Ready")).Should(HavePrefix("True Operative: 1 of 1 targets are healthy"))
		Eventually(statusOf(ctx, "provider-aws-worker", "TargetsHealthy")).Should(Equal("True AllHealthy: 1 of 1 targets are healthy."))

		By("flipping")
		Expect(h.Client.Delete(ctx, deployment)).To(Succeed())
		Eventually(nodes).Should(is("False", "HealthCheckUnsuccessful", `^\(1/2\) Health checks successful: 1\) mcm: Deployment `+namespace+`/machine-controller-manager doesn't exist$`))
		Expect(system()).To(is("True", "HealthCheckSuccessful", ""))
		Eventually(statusOf(ctx, "provider-aws-worker", "TargetsHealthy")).Should(Equal("False SomeUnhealthy: 0 of 1 targets are healthy."))
		Expect(statusOf(ctx, "provider-aws-worker", "Ready")()).To(HavePrefix("True Operative"), "a sick target is no mistake of the registration's")
		put(ctx, namespace, mcm)
		Eventually(nodes).Should(is("True", "HealthCheckSuccessful", `^\(2/2\) Health checks successful$`))

		By("deleting the registration")
		unregister(ctx, "provider-aws-worker")
		Expect(nodes()).To(BeNil())
		Expect(system()).To(BeNil())
		Expect(stored(ctx, worker, namespace).GetAnnotations()).NotTo(HaveKey("autohealer.resourcestack.com/owned-conditions"))
	}, NodeTimeout(specTime))
})
