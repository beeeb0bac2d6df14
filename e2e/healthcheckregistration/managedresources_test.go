package healthcheckregistration

import (
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// resource of Gardener's resource manager: healthy or not, with a class and a label, or "".
const resource = `
apiVersion: resources.gardener.cloud/v1alpha1
kind: ManagedResource
metadata: {name: %[1]s, labels: {%[3]s}}
spec: {%[2]s}
status: {observedGeneration: 1, conditions: [{type: ResourcesApplied, status: "%[4]s", message: a webhook refuses it}, {type: ResourcesHealthy, status: "True"}]}
`

const labelled = "care.gardener.cloud/condition-type: "

var _ = Describe("the samples of Gardener's ManagedResources", func() {
	It("tell of them on the shoot's ControlPlane, the seed's Extension and the Garden", func(ctx SpecContext) {
		shoot := place(ctx)
		apply(ctx, "{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {gardener.cloud/role: shoot}}}", shoot)
		for _, namespace := range []string{"garden", "istio-system"} {
			apply(ctx, "{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", namespace)
		}
		put(ctx, shoot, "{apiVersion: extensions.gardener.cloud/v1alpha1, kind: ControlPlane, metadata: {name: w}, spec: {type: aws}}")
		put(ctx, "garden", "{apiVersion: extensions.gardener.cloud/v1alpha1, kind: Extension, metadata: {name: w}, spec: {class: seed}}")
		put(ctx, "", "{apiVersion: operator.gardener.cloud/v1alpha1, kind: Garden, metadata: {name: w}}")
		put(ctx, shoot, resource, "core", "", "", "True")
		put(ctx, shoot, resource, "kcm", "class: seed", "", "False")
		put(ctx, shoot, resource, "plutono", "class: seed", labelled+"ObservabilityComponentsHealthy", "True")
		put(ctx, shoot, resource, "own", "class: seed", labelled+"Mine", "True")
		put(ctx, "garden", resource, "virtual", "", "", "False")
		put(ctx, "garden", resource, "runtime", "class: seed", "", "True")
		put(ctx, "istio-system", resource, "istio", "class: seed", labelled+"Mine", "False")

		for _, name := range []string{"managedresources-of-shoots", "managedresources-of-seed", "managedresources-of-garden"} {
			DeferCleanup(func(ctx SpecContext) { unregister(ctx, name) }, NodeTimeout(specTime))
		}
		_, err := h.Kubectl(ctx, "apply", "-k", filepath.Join(h.Root(), "config", "samples", "gardener"))
		Expect(err).NotTo(HaveOccurred())

		of := func(group, kind, namespace, conditionType string) func() map[string]any {
			return condition(ctx, schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: kind}, namespace, conditionType)
		}
		const extensions, operator = "extensions.gardener.cloud", "operator.gardener.cloud"
		Eventually(of(extensions, "ControlPlane", shoot, "ControlPlaneHealthy")).Should(is("False", "HealthCheckUnsuccessful", `1\) control-plane: `+shoot+`/kcm: condition ResourcesApplied of ManagedResource is False: a webhook refuses it$`))
		Eventually(of(extensions, "ControlPlane", shoot, "SystemComponentsHealthy")).Should(is("True", "HealthCheckSuccessful", ""))
		Eventually(of(extensions, "ControlPlane", shoot, "ObservabilityComponentsHealthy")).Should(is("True", "HealthCheckSuccessful", ""))
		Eventually(of(extensions, "ControlPlane", shoot, "ManagedResourcesRouted")).Should(is("False", "HealthCheckUnsuccessful", `1\) routed: `+shoot+`/own feeds no condition: its label care.gardener.cloud/condition-type is Mine$`))
		Eventually(of(extensions, "Extension", "garden", "SeedSystemComponentsHealthy")).Should(is("False", "HealthCheckUnsuccessful", `1\) system-istio-system: istio-system/istio: condition ResourcesApplied of ManagedResource is False`))
		Eventually(of(operator, "Garden", "", "VirtualComponentsHealthy")).Should(is("False", "HealthCheckUnsuccessful", `1\) virtual-garden: garden/virtual: condition ResourcesApplied of ManagedResource is False`))
		Eventually(of(operator, "Garden", "", "RuntimeComponentsHealthy")).Should(is("True", "HealthCheckSuccessful", ""))
		Eventually(of(operator, "Garden", "", "ObservabilityComponentsHealthy")).Should(is("True", "HealthCheckSuccessful", ""))
		Eventually(of(operator, "Garden", "", "ManagedResourcesRouted")).Should(is("False", "HealthCheckUnsuccessful", `istio-system/istio feeds no condition: its label care.gardener.cloud/condition-type is Mine$`))

		kcm := &unstructured.Unstructured{}
		kcm.SetGroupVersionKind(schema.GroupVersionKind{Group: "resources.gardener.cloud", Version: "v1alpha1", Kind: "ManagedResource"})
		Expect(h.Client.Get(ctx, client.ObjectKey{Namespace: shoot, Name: "kcm"}, kcm)).To(Succeed())
		write := func(applied, healthy string) {
			GinkgoHelper()
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"conditions":[{"type":"ResourcesApplied",`+applied+`},{"type":"ResourcesHealthy",`+healthy+`}]}}`))
			Expect(h.Client.Status().Patch(ctx, kcm, patch)).To(Succeed())
		}
		healthy := of(extensions, "ControlPlane", shoot, "ControlPlaneHealthy")
		By("recovering")
		write(`"status":"True"`, `"status":"True"`)
		Eventually(healthy).Should(is("True", "HealthCheckSuccessful", `^\(1/1\) Health checks successful$`))
		By("rolling out")
		write(`"status":"Progressing","reason":"ApplyProgressing"`, `"status":"True"`)
		Eventually(healthy).Should(is("Progressing", "HealthCheckProgressing", `condition ResourcesApplied of ManagedResource is Progressing \(ApplyProgressing\)`))
		write(`"status":"True"`, `"status":"Unknown","reason":"HealthChecksPending"`)
		Eventually(healthy).Should(is("Progressing", "HealthCheckProgressing", `condition ResourcesHealthy of ManagedResource is Unknown \(HealthChecksPending\)`))
		write(`"status":"True"`, `"status":"True"`)
		Eventually(healthy).Should(is("True", "HealthCheckSuccessful", ""))
	}, NodeTimeout(specTime))
})

var _ = Describe("where", func() {
	It("chooses among what a selector selects, and not of one object that is named", func(ctx SpecContext) {
		registration := &v1alpha1.HealthCheckRegistration{}
		spec := about(gadget, place(ctx), `
checks: [{name: a, conditionType: X, object: {apiVersion: v1, kind: ConfigMap, name: "'c'", where: has(object.data)}, evaluate: {status: {}}}]`)
		Expect(yaml.UnmarshalStrict([]byte(spec), &registration.Spec)).To(Succeed())
		registration.Name = "named-with-where"
		Expect(h.Client.Create(ctx, registration, client.DryRunAll)).To(MatchError(And(
			ContainSubstring("spec.checks[0].object"), ContainSubstring("where chooses among what selector selects; set selector, which may be {}"))))
		registration.Spec.Checks[0].Object.Name, registration.Spec.Checks[0].Object.Selector = "", &v1alpha1.LabelSelector{}
		Expect(h.Client.Create(ctx, registration, client.DryRunAll)).To(Succeed())
	}, NodeTimeout(specTime))
})
