package argocd

import (
	"context"
	"fmt"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// autohealer is the Application that docs/how-to/argo-cd.md has printed.
const autohealer application = "autohealer"

// outside are patches for a manager outside of the cluster, whose pods are ready when it is.
const outside = `
patches:
- target: {kind: ValidatingWebhookConfiguration, name: autohealer}
  patch: |
    - {op: remove, path: /webhooks/0/clientConfig/service}
    - {op: add, path: /webhooks/0/clientConfig/url, value: "https://%s/validate"}
- target: {kind: Deployment, name: autohealer-manager}
  patch: |
    - {op: add, path: /spec/template/metadata/labels/autohealer.test~1unready, value: "true"}
`

var _ = Describe("Argo CD", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) {
		files := map[string]string{
			"install.yaml":              kubectl(ctx, "kustomize", absolute("config/default")),
			"guardrails/guardrail.yaml": sample("guardrail.yaml"),
		}
		for _, b := range howTo.Blocks {
			if name, ok := strings.CutPrefix(b.File, "autohealer/"); ok {
				files[name] = b.Text
			}
		}
		files["kustomization.yaml"] += fmt.Sprintf(outside, local(webhookPort))
		autohealer.commit(ctx, files)
		autohealer.create(ctx)

		By("a manager that isn't ready yet")
		const of = "app.kubernetes.io/component=manager"
		Eventually(ctx, func() string { return kubectl(ctx, "get", "pods", "-n", harness.Namespace, "-l", of, "-o", "name") }).ShouldNot(BeEmpty())
		Consistently(ctx, func(ctx context.Context) ([]v1alpha1.Guardrail, error) {
			var guardrails v1alpha1.GuardrailList
			err := admin.List(ctx, &guardrails)
			return guardrails.Items, err
		}).Should(BeEmpty())
		startManager(ctx)
		kubectl(ctx, "label", "pods", "-n", harness.Namespace, "-l", of, "autohealer.test/unready-")
		Eventually(ctx, autohealer.state).Should(Equal(inSync))
	}, NodeTimeout(specTime))

	JustAfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			AddReportEntry("Applications", kubectl(ctx, "get", "applications", "-n", "argocd", "-o", "yaml"))
			AddReportEntry("logs stay", "in "+c.KeepLogs())
		}
	})

	It("installs Autohealer, then Guardrails, then policies", func(ctx SpecContext) {
		var guardrail v1alpha1.Guardrail
		Expect(admin.Get(ctx, client.ObjectKey{Name: "platform"}, &guardrail)).To(Succeed())
		var policy v1alpha1.ConditionSet
		Expect(admin.Get(ctx, client.ObjectKey{Name: "ntp-problem"}, &policy)).To(Succeed())
		Expect(guardrail.Status.Conditions).To(ContainElement(And(HaveField("Type", v1alpha1.ConditionReady), HaveField("Status", metav1.ConditionTrue),
			HaveField("LastTransitionTime.Time", Not(BeTemporally(">", policy.CreationTimestamp.Time))))))
	}, NodeTimeout(specTime))

	It("leaves what the manager publishes, and calls it no difference", func(ctx SpecContext) {
		var webhook admissionregistrationv1.ValidatingWebhookConfiguration
		Expect(admin.Get(ctx, client.ObjectKey{Name: "autohealer"}, &webhook)).To(Succeed())
		Expect(webhook.Webhooks[0].ClientConfig.CABundle).NotTo(BeEmpty())
		autohealer.expectNoDrift(ctx)
	}, NodeTimeout(specTime))

	syncs()
	health()
	selfHeals()

	It("removes all with the Application, policies first", func(ctx SpecContext) {
		const taint = "example.com/ntp-problem"
		report(ctx, "NTPProblem", true)
		Eventually(ctx, taints).Should(ContainElement(taint))
		autohealer.delete(ctx)
		Expect(taints(ctx)).NotTo(ContainElement(taint), "the manager has undone it before it went")
		Expect(kubectl(ctx, "get", "clusterrole,validatingwebhookconfiguration,namespace", "-l", "app.kubernetes.io/name=autohealer", "-o", "name")).To(BeEmpty())
		Expect(kubectl(ctx, "get", "crd", "-o", "name")).To(ContainSubstring("conditionsets.autohealer.resourcestack.com"), "Argo CD deletes no CRDs")
	}, NodeTimeout(specTime))
})

// expectNoDrift compares once more, without what Argo CD remembers: it finds no difference, and has had none to correct.
func (a application) expectNoDrift(ctx SpecContext) {
	GinkgoHelper()
	before, err := a.status(ctx)
	Expect(err).NotTo(HaveOccurred())
	a.refresh(ctx, "hard")
	Expect(a.state(ctx)).To(HavePrefix("Synced and "))
	after, err := a.status(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(after.History).To(Equal(before.History))
	Expect(after.OperationState).To(Equal(before.OperationState))
}

func sample(name string) string {
	GinkgoHelper()
	text, err := os.ReadFile(absolute("config/samples/" + name))
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}
