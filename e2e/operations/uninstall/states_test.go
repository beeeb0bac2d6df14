package uninstall

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/operations/world"
)

var _ = Describe("kubectl autohealer uninstall", func() {
	It("removes an installation whose policies act, and nothing that isn't its own", Label("versions"), func(ctx SpecContext) {
		installAndBreak(ctx)
		repelled, _ := h.Sick()
		foreign := makeForeign(ctx, repelled)

		got := uninstall(ctx, "--yes")
		Expect(got).To(succeeds)
		Expect(got.Out).To(And(
			ContainSubstring("\nUndo\n  node/"+repelled+": taint "+world.RepelKey+":NoSchedule removed, which ConditionSet repelling set "),
			ContainSubstring("\nguardrail.autohealer.resourcestack.com/autohealer-freeze created\n"),
			ContainSubstring("\nnode/"+repelled+": hold removed\n"),
			ContainSubstring("\nprobeconfig/main in namespace shoot deleted\n"),
			ContainSubstring("rolebinding/autohealer-probe-target in namespace shoot binds a role of Autohealer's that will be gone: kubectl delete -n shoot rolebinding.rbac.authorization.k8s.io autohealer-probe-target\n"),
			ContainSubstring("clusterrole/autohealer-foreign says that it is Autohealer's, and this version doesn't know it. If it is: kubectl delete clusterrole.rbac.authorization.k8s.io autohealer-foreign\n"),
		))
		expectNothingLeft(ctx)
		By("what isn't its own")
		for _, o := range foreign {
			Expect(h.Client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed(), o.GetName())
			Expect(o.GetDeletionTimestamp()).To(BeNil())
		}
		after := node(ctx, repelled)
		Expect(after.Spec.Taints).To(ContainElement(HaveField("Key", "example.com/foreign")))
		Expect(after.Annotations).To(HaveKeyWithValue("example.com/owned-taints", "foreign"))
		for _, o := range foreign {
			Expect(h.Client.Delete(ctx, o)).To(Succeed())
		}

		By("a second time")
		Expect(uninstall(ctx, "--yes")).To(SatisfyAll(HaveField("Code", 0), HaveField("Out", HavePrefix("Nothing of Autohealer is in this cluster.\n"))))
	}, NodeTimeout(specTime))

	It("removes it while manager and webhook are down", func(ctx SpecContext) {
		installAndBreak(ctx)
		stop()
		Expect(uninstall(ctx, "--yes")).To(succeeds)
		expectNothingLeft(ctx)
	}, NodeTimeout(specTime))

	It("removes it while only the webhook is unreachable", func(ctx SpecContext) {
		installAndBreak(ctx)
		_, err := h.Kubectl(ctx, "patch", "validatingwebhookconfiguration", "autohealer", "--type=json", "-p", `[{"op":"replace","path":"/webhooks/0/clientConfig/url","value":"https://`+cluster.Unserved()+`/validate"}]`)
		Expect(err).NotTo(HaveOccurred())
		Expect(uninstall(ctx, "--yes")).To(succeeds)
		expectNothingLeft(ctx)
	}, NodeTimeout(specTime))

	It("removes it while a namespace is being deleted that waits for a policy", func(ctx SpecContext) {
		installAndBreak(ctx)
		stop()
		Expect(h.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: world.Namespace}})).To(Succeed())
		Eventually(func() (string, error) {
			return h.Kubectl(ctx, "get", "probeconfig", "-n", world.Namespace, "main", "-o", "jsonpath={.metadata.deletionTimestamp}")
		}).ShouldNot(BeEmpty())
		Expect(uninstall(ctx, "--yes")).To(succeeds)
		Eventually(func() error {
			return h.Client.Get(ctx, client.ObjectKey{Name: world.Namespace}, &corev1.Namespace{})
		}).Should(MatchError(ContainSubstring("not found")))
		expectTraces(ctx, BeEmpty())
	}, NodeTimeout(specTime))

	It("removes it while the kinds are being deleted and wait for policies", func(ctx SpecContext) {
		installAndBreak(ctx)
		stop()
		_, err := h.Kubectl(ctx, "delete", "crd", "-l", "app.kubernetes.io/name=autohealer", "--wait=false")
		Expect(err).NotTo(HaveOccurred())
		Expect(uninstall(ctx, "--yes")).To(succeeds)
		expectNothingLeft(ctx)
	}, NodeTimeout(specTime))

	It("removes it when the kinds are gone, and a manager is there still", func(ctx SpecContext) {
		installAndBreak(ctx)
		stop()
		_, err := h.Kubectl(ctx, "delete", "crd", "-l", "app.kubernetes.io/name=autohealer", "--wait=false")
		Expect(err).NotTo(HaveOccurred())
		for _, args := range [][]string{{"conditionset", "repelling"}, {"conditionset", "evicting"}, {"healthcheckregistration", "dialling"}, {"-n", world.Namespace, "probeconfig", "main"}} {
			_, err := h.Kubectl(ctx, append(append([]string{"patch"}, args...), "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)...)
			Expect(err).NotTo(HaveOccurred())
		}
		_, err = h.Kubectl(ctx, "wait", "--for=delete", "crd", "-l", "app.kubernetes.io/name=autohealer", "--timeout=30s")
		Expect(err).NotTo(HaveOccurred())
		Expect(h.Done(ctx)).To(Equal(h.Everything()), "nobody undid it")
		Expect(uninstall(ctx, "--yes")).To(succeeds)
		expectNothingLeft(ctx)
	}, NodeTimeout(specTime))

	It("removes what an uninstall in the wrong order left", func(ctx SpecContext) {
		installAndBreak(ctx)
		stop()
		_, err := h.Kubectl(ctx, "delete", "-k", h.Root()+"/config/default", "--wait=false", "--ignore-not-found")
		Expect(err).NotTo(HaveOccurred())
		Expect(uninstall(ctx, "--yes")).To(succeeds)
		expectNothingLeft(ctx)
	}, NodeTimeout(specTime))
})

// makeForeign makes what looks like Autohealer's and isn't, also on a node.
func makeForeign(ctx context.Context, nodeName string) []client.Object {
	GinkgoHelper()
	_, err := h.Kubectl(ctx, "annotate", "node", nodeName, "example.com/owned-taints=foreign", "--overwrite")
	Expect(err).NotTo(HaveOccurred())
	_, err = h.Kubectl(ctx, "taint", "node", nodeName, "example.com/foreign=:PreferNoSchedule", "--overwrite")
	Expect(err).NotTo(HaveOccurred())
	ours := metav1.ObjectMeta{Name: "autohealer-foreign", Labels: map[string]string{"app.kubernetes.io/name": "autohealer"}}
	none := admissionregistrationv1.SideEffectClassNone
	foreign := []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: ours},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "autohealer-foreign"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "foreign.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none, FailurePolicy: ptr.To(admissionregistrationv1.Ignore),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://foreign.example.com/")},
		}}},
	}
	for _, o := range foreign {
		Expect(h.Client.Create(ctx, o)).To(Succeed())
	}
	return foreign
}
