package probeconfig

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
)

func kindsAndSecrets() {
	It("of any kind that the cluster's operators allow", func(ctx SpecContext) {
		s := newShoot(ctx)
		defineMachines(ctx)
		machine := machineFleet(s.namespace)
		Eventually(func(ctx context.Context) error { return h.Client.Create(ctx, machine.DeepCopy()) }).WithContext(ctx).Should(Succeed(), "once the kind is served")
		pc := s.prober("prober", dependentOf("example.com/v1", "MachineFleet", "workers", 0, 0))
		Expect(h.Client.Create(ctx, pc)).To(Succeed())
		replicas := func(ctx context.Context) (int64, error) {
			err := h.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine)
			n, _, _ := unstructured.NestedInt64(machine.Object, "spec", "replicas")
			return n, err
		}
		Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionExternalHealthy).Should(Equal(metav1.ConditionTrue))
		cut(s.external)
		Eventually(replicas).WithContext(ctx).Should(BeZero())
		Expect(h.Client.Delete(ctx, pc)).To(Succeed())
		Eventually(replicas).WithContext(ctx).Should(BeEquivalentTo(4))
		Eventually(func(ctx context.Context) bool {
			return apierrors.IsNotFound(h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc))
		}).WithContext(ctx).Should(BeTrue(), "while it may still remove its record")
		code, told := pluginAlone(ctx, "history", "-f", h.Log(harness.Manager), "machinefleet/workers")
		Expect(code).To(BeZero(), told)
		Expect(told).To(And(MatchRegexp(`ScaleDown .* 0 replicas, before 4\n`), MatchRegexp(`ScaleUp .* 4 replicas, before 0\n`)))
	}, SpecTimeout(specTime))

	It("not while a Secret of the target is broken, and it is probed again once it isn't", func(ctx SpecContext) {
		s := newShoot(ctx)
		s.deploy(ctx, "kcm", 1)
		Expect(h.Client.Create(ctx, s.prober("prober", dependent("kcm", 0, 0)))).To(Succeed())
		Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionExternalHealthy).Should(Equal(metav1.ConditionTrue))
		s.put(ctx, "external", []byte("\t{"))
		cut(s.external) // what is broken is looked at before anything is scaled down
		Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionStalled).Should(Equal(metav1.ConditionTrue))
		mend(s.external)
		s.put(ctx, "external", kubeconfigOf(s.external.Addr()))
		Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionExternalHealthy).Should(Equal(metav1.ConditionTrue))
		Expect(s.condition(ctx, v1alpha1.ConditionStalled)).NotTo(Equal(metav1.ConditionTrue))
		Expect(s.scalings(ctx)).To(BeEmpty())
	}, SpecTimeout(specTime))
}

// machineFleet is an object of the kind that defineMachines adds.
func machineFleet(namespace string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "MachineFleet", "metadata": map[string]any{"namespace": namespace, "name": "workers"},
		"spec": map[string]any{"replicas": int64(4)},
	}}
}

// defineMachines adds a kind with a scale subresource that no controller serves, and lets the manager scale it.
func defineMachines(ctx context.Context) {
	GinkgoHelper()
	object := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"replicas": {Type: "integer"}}}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "machinefleets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "machinefleets", Kind: "MachineFleet", Singular: "machinefleet", ListKind: "MachineFleetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": object, "status": object},
				}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"},
				},
			}},
		},
	}
	scheme := harness.Scheme()
	Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	admin, err := client.New(h.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "scale-machines"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"example.com"}, Resources: []string{"machinefleets"}, Verbs: []string{"get", "list", "patch"}},
		{APIGroups: []string{"example.com"}, Resources: []string{"machinefleets/scale"}, Verbs: []string{"get", "update"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: harness.Namespace, Name: harness.ServiceAccount}},
	}
	for _, o := range []client.Object{crd, role, binding} {
		Expect(admin.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(admin.Delete(ctx, o)).To(Succeed())
			Eventually(func(ctx context.Context) error {
				return admin.Get(ctx, client.ObjectKeyFromObject(o), o)
			}).WithContext(ctx).Should(MatchError(apierrors.IsNotFound, "not found"), "another spec may define it again")
		})
	}
}
