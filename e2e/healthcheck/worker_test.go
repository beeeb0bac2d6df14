package healthcheck

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/resourcestack/autohealer/pkg/healthcheck"
)

const healthyResource = `
apiVersion: resources.gardener.cloud/v1alpha1
kind: ManagedResource
metadata: {name: mcm-shoot}
status:
  observedGeneration: 1
  conditions: [{type: ResourcesApplied, status: "True"}, {type: ResourcesHealthy, status: "True"}]
`

const sprockets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sprockets.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Sprocket, listKind: SprocketList, plural: sprockets, singular: sprocket}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

var _ = Describe("the example of a Worker", func() {
	It("gets its two conditions, and a flip is told as soon as it happens", func(ctx SpecContext) {
		namespace := place(ctx)
		put(ctx, seedClient, namespace, healthyResource)
		putDeployment(ctx, seedClient, namespace, "machine-controller-manager", true)
		putNode(ctx, "example-1")
		putNode(ctx, "example-2")
		putKubeconfig(ctx, namespace, shoot)
		putWorker(ctx, namespace)
		run(healthcheck.For(worker, healthcheck.WithType(namespace), healthcheck.WithSyncPeriod(time.Hour), healthcheck.WithLoopbackShoots()).
			Check("SystemComponentsHealthy", "mcm-shoot", healthcheck.CheckManagedResource("mcm-shoot")).
			Check("EveryNodeReady", "mcm", healthcheck.CheckSeedDeployment("machine-controller-manager")).
			Check("EveryNodeReady", "nodes", healthcheck.SufficientNodesAvailable()))

		system, nodes := condition(ctx, worker, namespace, "SystemComponentsHealthy"), condition(ctx, worker, namespace, "EveryNodeReady")
		Eventually(system).Should(is("True", "HealthCheckSuccessful", `^\(1/1\) Health checks successful$`))
		Eventually(nodes).Should(is("True", "HealthCheckSuccessful", `^\(2/2\) Health checks successful$`))

		By("flipping")
		setAvailable(ctx, seedClient, namespace, "machine-controller-manager", false)
		Eventually(nodes).Should(is("False", "HealthCheckUnsuccessful", `^\(1/2\) Health checks successful: 1\) mcm: `+namespace+`/machine-controller-manager: condition Available of Deployment is False \(MinimumReplicas\)$`))
		Expect(system()).To(is("True", "HealthCheckSuccessful", ""))
		setAvailable(ctx, seedClient, namespace, "machine-controller-manager", true)
		Eventually(nodes).Should(is("True", "HealthCheckSuccessful", ""))
	}, NodeTimeout(2*time.Minute))

	It("is False for a Deployment that isn't there, and follows it as it comes and goes", func(ctx SpecContext) {
		namespace := place(ctx)
		putWorker(ctx, namespace)
		run(healthcheck.For(worker, healthcheck.WithType(namespace), healthcheck.WithSyncPeriod(time.Hour)).
			Check("ControlPlaneHealthy", "mcm", healthcheck.CheckSeedDeployment("mcm")))
		c := condition(ctx, worker, namespace, "ControlPlaneHealthy")
		Eventually(c).Should(is("False", "HealthCheckUnsuccessful", `^\(0/1\) Health checks successful: 1\) mcm: Deployment `+namespace+`/mcm doesn't exist$`))
		putDeployment(ctx, seedClient, namespace, "mcm", true)
		Eventually(c).Should(is("True", "HealthCheckSuccessful", ""))
	}, NodeTimeout(time.Minute))

	It("follows what is in no namespace", func(ctx SpecContext) {
		namespace := place(ctx)
		putWorker(ctx, namespace)
		definition := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
		run(healthcheck.For(worker, healthcheck.WithType(namespace), healthcheck.WithSyncPeriod(time.Hour)).
			Check("Served", "sprockets", healthcheck.CheckSeedObject(definition, "sprockets.example.org")))
		c := condition(ctx, worker, namespace, "Served")
		Eventually(c).Should(is("False", "HealthCheckUnsuccessful", `^\(0/1\) Health checks successful: 1\) sprockets: CustomResourceDefinition sprockets.example.org doesn't exist$`))
		made := put(ctx, seedClient, "", sprockets)
		Eventually(c).Should(is("True", "HealthCheckSuccessful", ""))
		Expect(seedClient.Delete(ctx, made)).To(Succeed())
		Eventually(c).Should(is("False", "HealthCheckUnsuccessful", ""))
	}, NodeTimeout(time.Minute))

	It("is Unknown, not False, without a kubeconfig, with one that can't be used, and for a kind that isn't served", func(ctx SpecContext) {
		namespace := place(ctx)
		putWorker(ctx, namespace)
		run(healthcheck.For(worker, healthcheck.WithType(namespace), healthcheck.WithSyncPeriod(5*time.Second), healthcheck.WithLoopbackShoots()).
			Check("EveryNodeReady", "nodes", healthcheck.SufficientNodesAvailable()).
			Check("Gone", "passing", healthcheck.CheckSeedObject(passing, "p")))
		nodes, gone := condition(ctx, worker, namespace, "EveryNodeReady"), condition(ctx, worker, namespace, "Gone")
		Eventually(nodes).Should(is("Unknown", "ConditionCheckError", `nodes: read the shoot's kubeconfig: .*not found`))
		put(ctx, seedClient, namespace, "apiVersion: v1\nkind: Secret\nmetadata: {name: gardener}\nstringData: {kubeconfig: nonsense}")
		Eventually(nodes).Should(is("Unknown", "ConditionCheckError", `nodes: use key kubeconfig of Secret gardener: `))

		put(ctx, seedClient, namespace, "apiVersion: example.org/v1\nkind: Passing\nmetadata: {name: p}")
		Eventually(gone).Should(is("True", "HealthCheckSuccessful", ""))
		definition := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "passings.example.org"}}}
		Expect(seedClient.Delete(ctx, definition)).To(Succeed())
		neverFalse := func() map[string]any {
			now := gone()
			if now["status"] == "False" {
				StopTrying(fmt.Sprintf("it turned False: %v", now)).Now()
			}
			return now
		}
		Eventually(neverFalse).WithPolling(20 * time.Millisecond).Should(is("Unknown", "ConditionCheckError", "the kind isn't served"))
		Consistently(neverFalse).WithPolling(20 * time.Millisecond).Should(HaveKeyWithValue("status", "Unknown"))
	}, NodeTimeout(2*time.Minute))

	It("is Unknown, not False, for want of rights, and judged once they are there", func(ctx SpecContext) {
		namespace := place(ctx)
		putDeployment(ctx, seedClient, namespace, "mcm", true)
		putWorker(ctx, namespace)
		grant(ctx, "extension", "extensions.gardener.cloud", "workers")
		runAs("extension", healthcheck.For(worker, healthcheck.WithType(namespace), healthcheck.WithSyncPeriod(5*time.Second), healthcheck.WithCheckTimeout(time.Second)).
			Check("ControlPlaneHealthy", "mcm", healthcheck.CheckSeedDeployment("mcm")).
			Check("Fine", "fine", func() healthcheck.HealthCheck { return always("True") }))
		c := condition(ctx, worker, namespace, "ControlPlaneHealthy")
		Eventually(c).Should(is("Unknown", "ConditionCheckError", "mcm: there is no right to watch deployments.apps"))
		Eventually(condition(ctx, worker, namespace, "Fine")).Should(is("True", "HealthCheckSuccessful", ""))
		grant(ctx, "extension", "apps", "deployments")
		Eventually(c).WithTimeout(time.Minute).Should(is("True", "HealthCheckSuccessful", ""), "the informer's back-off is over")
	}, NodeTimeout(2*time.Minute))

	It("is Unknown, not what it was, while the right to watch is lost, and judged anew once it is back", func(ctx SpecContext) {
		namespace := place(ctx)
		putDeployment(ctx, seedClient, namespace, "mcm", true)
		putWorker(ctx, namespace)
		grant(ctx, namespace, "extensions.gardener.cloud", "workers")
		grant(ctx, namespace, "apps", "deployments")
		p := runAs(namespace, healthcheck.For(worker, healthcheck.WithType(namespace), healthcheck.WithSyncPeriod(5*time.Second)).
			Check("ControlPlaneHealthy", "mcm", healthcheck.CheckSeedDeployment("mcm")).
			Check("Fine", "fine", func() healthcheck.HealthCheck { return always("True") }))
		c, fine := condition(ctx, worker, namespace, "ControlPlaneHealthy"), condition(ctx, worker, namespace, "Fine")
		Eventually(c).Should(is("True", "HealthCheckSuccessful", ""))

		By("losing the right, and then the Deployment's health")
		revoke(ctx, namespace, "deployments")
		p.cut()
		setAvailable(ctx, seedClient, namespace, "mcm", false)
		Eventually(c).Should(is("Unknown", "ConditionCheckError", "mcm: there is no right to watch deployments.apps"))
		Expect(fine()).To(is("True", "HealthCheckSuccessful", ""))

		By("giving the right back")
		grant(ctx, namespace, "apps", "deployments")
		Eventually(func() (map[string]any, error) {
			is := c()
			if is["status"] == "True" {
				return nil, StopTrying("what was known before the right was lost is believed")
			}
			return is, nil
		}).WithTimeout(3 * time.Minute).Should(is("False", "HealthCheckUnsuccessful", "condition Available of Deployment is False"))
		setAvailable(ctx, seedClient, namespace, "mcm", true)
		Eventually(c).Should(is("True", "HealthCheckSuccessful", ""))
	}, NodeTimeout(5*time.Minute))

	It("leaves Workers of another type, and suspended ones, alone", func(ctx SpecContext) {
		namespace := place(ctx)
		before := putWorker(ctx, namespace)
		fine := func() healthcheck.HealthCheck { return always("True") }
		p := run(
			healthcheck.For(worker, healthcheck.WithType("another"), healthcheck.WithSyncPeriod(5*time.Second)).Check("X", "a", fine),
			healthcheck.For(worker, healthcheck.WithType(namespace), healthcheck.WithClasses("garden")).Check("X", "a", fine),
			healthcheck.For(worker, healthcheck.WithType(namespace), healthcheck.WithSuspended(suspended)).Check("X", "a", fine),
		)
		Consistently(func() string { return stored(ctx, worker, namespace).GetResourceVersion() }, 2*time.Second).Should(Equal(before.GetResourceVersion()))
		Expect(p.writes.Load()).To(BeZero())
	}, NodeTimeout(time.Minute))
})
