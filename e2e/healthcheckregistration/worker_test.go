package healthcheckregistration

import (
	"fmt"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
		putMachines(ctx, namespace, 2)
		put(ctx, namespace, "{apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, metadata: {name: w}, spec: {type: aws, pools: [{minimum: 1}, {minimum: 1}]}}")
		registerSample(ctx)

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

	It("compares the nodes that are Ready with those that MachineDeployments want", func(ctx SpecContext) {
		namespace := place(ctx)
		put(ctx, namespace, healthyResource)
		deployment := put(ctx, namespace, mcm)
		putKubeconfig(ctx, namespace)
		put(ctx, namespace, "{apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, metadata: {name: w}, spec: {type: aws, pools: [{minimum: 1, maximum: 20}]}}")
		registerSample(ctx)
		nodes := condition(ctx, worker, namespace, "EveryNodeReady")
		Eventually(nodes).Should(is("Progressing", "HealthCheckProgressing", `nodes: there is no MachineDeployment in namespace `+namespace))

		By("scaling up")
		putMachines(ctx, namespace, 10)
		Eventually(nodes).Should(is("Progressing", "HealthCheckProgressing", `nodes: 0 of at least 10 nodes are available; not registered: 10`))
		for i := range 10 {
			putNode(ctx, fmt.Sprintf("desired-%d", i))
		}
		Eventually(nodes).Should(is("True", "HealthCheckSuccessful", `^\(2/2\) Health checks successful$`))

		By("breaking all nodes but one, of which the pool's minimum is enough")
		for i := 1; i < 10; i++ {
			setReady(ctx, fmt.Sprintf("desired-%d", i), corev1.ConditionFalse)
		}
		Eventually(nodes).Should(is("False", "HealthCheckUnsuccessful", `nodes: 1 of at least 10 nodes are available; not ready: desired-1, desired-2, desired-3, desired-4, desired-5 and 4 more$`))
		for i := 1; i < 10; i++ {
			setReady(ctx, fmt.Sprintf("desired-%d", i), corev1.ConditionTrue)
		}
		Eventually(nodes).Should(is("True", "HealthCheckSuccessful", ""))

		By("adding one that isn't managed, and is broken")
		putNode(ctx, "unmanaged")
		_, err := shoot.Kubectl(ctx, "annotate", "node", "unmanaged", "node.machine.sapcloud.io/not-managed-by-mcm=1")
		Expect(err).NotTo(HaveOccurred())
		setReady(ctx, "unmanaged", corev1.ConditionFalse)
		scaleMachines(ctx, namespace, "11")
		Eventually(nodes).Should(is("Progressing", "HealthCheckProgressing", `nodes: 10 of at least 11 nodes are available; not registered: 1$`))

		By("hibernating: no machines are wanted, and then nobody answers")
		scaleMachines(ctx, namespace, "null")
		Eventually(nodes).Should(is("True", "HealthCheckSuccessful", ""))
		Expect(h.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gardener"}})).To(Succeed())
		Expect(h.Client.Delete(ctx, deployment)).To(Succeed())
		Eventually(nodes).Should(is("False", "HealthCheckUnsuccessful", `^\(1/2\) Health checks successful: 1\) mcm: `), "of what is asked then")
	}, NodeTimeout(specTime))
})

// registerSample registers the sample, which ends with the spec.
func registerSample(ctx SpecContext) {
	GinkgoHelper()
	DeferCleanup(func(ctx SpecContext) { unregister(ctx, "provider-aws-worker") }, NodeTimeout(specTime))
	_, err := h.Kubectl(ctx, "apply", "-f", filepath.Join(h.Root(), "config", "samples", "healthcheckregistration-1.yaml"))
	Expect(err).NotTo(HaveOccurred())
}

// putMachines makes two MachineDeployments, of which one wants so many machines and the other none, as they are stored.
func putMachines(ctx SpecContext, namespace string, replicas int) {
	GinkgoHelper()
	put(ctx, namespace, "{apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineDeployment, metadata: {name: pool-1}, spec: {replicas: %d}}", replicas)
	put(ctx, namespace, "{apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineDeployment, metadata: {name: pool-2}, spec: {}}")
}

func scaleMachines(ctx SpecContext, namespace, replicas string) {
	GinkgoHelper()
	_, err := h.Kubectl(ctx, "patch", "machinedeployment", "pool-1", "-n", namespace, "--type=merge", "-p", `{"spec":{"replicas":`+replicas+`}}`)
	Expect(err).NotTo(HaveOccurred())
}

// setReady has a node's kubelet say so, long after the node joined.
func setReady(ctx SpecContext, name string, status corev1.ConditionStatus) {
	GinkgoHelper()
	n := &corev1.Node{}
	Expect(shootClient.Get(ctx, client.ObjectKey{Name: name}, n)).To(Succeed())
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(n.CreationTimestamp.Add(time.Hour))}}
	Expect(shootClient.Status().Update(ctx, n)).To(Succeed())
}
