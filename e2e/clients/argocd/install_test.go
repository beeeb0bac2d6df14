package argocd

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/clients/gitops"
)

// autohealer is the Application that docs/how-to/argo-cd.md has printed.
const autohealer application = "autohealer"

var _ = Describe("Argo CD", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) {
		files := map[string]string{
			"install.yaml":              w.Run(ctx, "kustomize", gitops.Path("config/default")),
			"guardrails/guardrail.yaml": gitops.File("config/samples/guardrail.yaml"),
		}
		for _, b := range w.Guide.Blocks {
			if name, ok := strings.CutPrefix(b.File, "autohealer/"); ok {
				files[name] = b.Text
			}
		}
		files["kustomization.yaml"] += w.Patches()
		autohealer.commit(ctx, files)
		autohealer.create(ctx)

		By("a manager that isn't ready yet")
		w.ExpectPods(ctx)
		Eventually(ctx, autohealer.message).Should(HavePrefix("waiting for healthy state of "), "and what is in later waves hasn't been tried")
		w.StartManager(ctx)
		Eventually(ctx, autohealer.state).Should(Equal(inSync))
	}, NodeTimeout(specTime))

	JustAfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			AddReportEntry("Applications and policies", evidence(ctx))
		}
	})

	It("installs Autohealer, then Guardrails, then policies", func(ctx SpecContext) {
		var guardrail v1alpha1.Guardrail
		Expect(w.Admin.Get(ctx, client.ObjectKey{Name: "platform"}, &guardrail)).To(Succeed())
		var policy v1alpha1.ConditionSet
		Expect(w.Admin.Get(ctx, client.ObjectKey{Name: "ntp-problem"}, &policy)).To(Succeed())
		Expect(guardrail.Status.Conditions).To(ContainElement(And(HaveField("Type", v1alpha1.ConditionReady), HaveField("Status", metav1.ConditionTrue),
			HaveField("LastTransitionTime.Time", Not(BeTemporally(">", policy.CreationTimestamp.Time))))))
	}, NodeTimeout(specTime))

	It("leaves what the manager publishes, and calls it no difference", func(ctx SpecContext) {
		var webhook admissionregistrationv1.ValidatingWebhookConfiguration
		Expect(w.Admin.Get(ctx, client.ObjectKey{Name: "autohealer"}, &webhook)).To(Succeed())
		Expect(webhook.Webhooks[0].ClientConfig.CABundle).NotTo(BeEmpty())
		autohealer.expectNoDrift(ctx)
	}, NodeTimeout(specTime))

	syncs()
	health()
	selfHeals()

	It("removes all with the Application, policies first", func(ctx SpecContext) {
		const taint = "example.com/ntp-problem"
		w.Report(ctx, "NTPProblem", corev1.ConditionTrue)
		Eventually(ctx, w.Taints).Should(ContainElement(taint))
		autohealer.delete(ctx)
		Expect(w.Taints(ctx)).NotTo(ContainElement(taint), "the manager has undone it before it went")
		Expect(w.Run(ctx, "get", "clusterrole,validatingwebhookconfiguration,namespace", "-l", "app.kubernetes.io/name=autohealer", "-o", "name")).To(BeEmpty())
		Expect(w.Run(ctx, "get", "crd", "-o", "name")).To(ContainSubstring("conditionsets.autohealer.resourcestack.com"), "Argo CD deletes no CRDs")
	}, NodeTimeout(specTime))
})
