package weederconfig

import (
	"context"
	"encoding/json"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

func clientKey(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

var _ = Describe("A tenant", Serial, func() {
	It("can't have deleted what its account, or a rule, doesn't let it delete", func(ctx SpecContext) {
		s := newShop(ctx)
		Expect(h.Client.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: named(s.namespace, "default")})).To(Succeed())
		wc := s.weeder("tenant", "etcd", "api")
		Eventually(func() error { return h.Client.Create(ctx, wc.DeepCopy(), client.DryRunAll) }).Should(
			MatchError(ContainSubstring("weederconfig/account-may-not-delete: ServiceAccount default may not delete pods in namespace " + s.namespace)))

		By("stored past webhook and policy, it does nothing")
		s.recovered(ctx, "etcd")
		s.deploy(ctx, "api", 1, map[string]string{crash: "true"})
		before := s.uids(ctx, "api")
		entitled := newShop(ctx)
		entitled.recovered(ctx, "etcd")
		entitled.deploy(ctx, "api", 1, map[string]string{crash: "true"})
		others, careless := entitled.uids(ctx, "api"), entitled.weeder("careless", "etcd")
		selecting(expressions("NotIn", "main"))(&careless.Spec)
		withoutGates(ctx, func() {
			for _, config := range []*v1alpha1.WeederConfig{wc, careless} {
				Eventually(func() error { return h.Client.Create(ctx, config) }).Should(Succeed(), "as soon as the API server knows that the gates are gone")
			}
		})
		Eventually(func() metav1.Condition { return condition(ctx, wc, "Accepted") }).Should(And(
			HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("may not delete pods"))))
		Consistently(s.uids).WithContext(ctx).WithArguments("api").WithTimeout(moment).Should(Equal(before))
		Eventually(skipped(ctx, wc, "Forbidden")).Should(BeEquivalentTo(1))

		By("nor does one that the rules refuse for what it selects")
		Eventually(func() metav1.Condition { return condition(ctx, careless, "Accepted") }).Should(And(
			HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("negative-pod-selector"))))
		Eventually(skipped(ctx, careless, "NotAdmitted")).Should(BeNumerically(">=", 1))
		Expect(entitled.uids(ctx, "api")).To(Equal(others))
	})
})

// withoutGates does something while neither webhook nor policies are there.
func withoutGates(ctx context.Context, do func()) {
	GinkgoHelper()
	var kept []string
	for _, gate := range []string{"validatingwebhookconfiguration/autohealer", "validatingadmissionpolicybinding/autohealer-weederconfig"} {
		manifest, err := h.Kubectl(ctx, "get", gate, "-o", "json")
		Expect(err).NotTo(HaveOccurred())
		kept = append(kept, manifest)
		_, err = h.Kubectl(ctx, "delete", gate)
		Expect(err).NotTo(HaveOccurred())
	}
	do()
	for _, manifest := range kept {
		_, err := h.Apply(ctx, withoutVersion(manifest))
		Expect(err).NotTo(HaveOccurred())
	}
	Eventually(func() error {
		_, err := h.Apply(ctx, fmt.Sprintf(`{"apiVersion":"autohealer.resourcestack.com/v1alpha1","kind":"WeederConfig","metadata":{"name":"bad","namespace":"default"},
			"spec":{"watchDuration":"5s","servicesAndDependantSelectors":{"a":{"podSelectors":[{"matchExpressions":[{"key":"a","operator":"NotIn","values":["%s"]}]}]}}}}`, "b"), "--dry-run=server")
		return err
	}).Should(MatchError(And(ContainSubstring("negative-pod-selector"), ContainSubstring("autohealer-weederconfig"))))
}

// withoutVersion drops what only a stored object has.
func withoutVersion(manifest string) string {
	GinkgoHelper()
	var object unstructured.Unstructured
	Expect(json.Unmarshal([]byte(manifest), &object.Object)).To(Succeed())
	object.SetResourceVersion("")
	object.SetUID("")
	text, err := json.Marshal(object.Object)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}
