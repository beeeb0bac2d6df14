package flux

import (
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/clients/gitops"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// The Kustomizations that docs/how-to/flux.md has printed.
const (
	installation kustomization = "autohealer"
	guardrails   kustomization = "guardrails"
	policies     kustomization = "policies"
)

var _ = Describe("Flux", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) {
		files := map[string]string{
			"autohealer/install.yaml":       w.Run(ctx, "kustomize", gitops.Path("config/default")),
			"autohealer/kustomization.yaml": "resources: [install.yaml]" + w.Patches(),
			"guardrails/guardrail.yaml":     gitops.File("config/samples/guardrail.yaml"),
			"policies/broken.yaml":          gitops.Set("broken"),
		}
		samples := gitops.Files("config/samples/*-1.yaml")
		Expect(samples).To(HaveLen(5))
		for name, text := range samples {
			files["policies/"+name] = text
		}
		// What a registration may do outlives it.
		rights, registration, _ := strings.Cut(samples["healthcheckregistration-1.yaml"], "---\n")
		files["guardrails/rights.yaml"], files["policies/healthcheckregistration-1.yaml"] = rights, registration
		commit(ctx, files)
	}, NodeTimeout(specTime))

	It("installs Autohealer, then Guardrails, then policies", func(ctx SpecContext) {
		install(ctx)
		By("a manager that isn't ready yet")
		w.ExpectPods(ctx)
		for k, on := range map[kustomization]kustomization{guardrails: installation, policies: guardrails} {
			Eventually(ctx, func() string {
				return w.Run(ctx, "get", "kustomization", string(k), "-n", "flux-system", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
			}).Should(Equal("dependency 'flux-system/" + string(on) + "' is not ready"))
		}
		w.StartManager(ctx)
		for _, k := range []kustomization{installation, guardrails, policies} {
			Eventually(ctx, k.state).Should(beReady())
		}
		w.Report(ctx, "Broken", corev1.ConditionTrue)
		Eventually(ctx, w.Taints).Should(ContainElement("example.com/broken"))
	}, NodeTimeout(specTime))

	It("changes nothing when it applies the same again", func(ctx SpecContext) {
		generations := func() string {
			return w.Run(ctx, "get", "conditionsets,guardrails,probeconfigs,validatingwebhookconfigurations,deployments", "-A", "-o", "custom-columns=NAME:.metadata.name,UID:.metadata.uid,GENERATION:.metadata.generation")
		}
		before := generations()
		for _, k := range []kustomization{installation, guardrails, policies} {
			k.reconcile(ctx)
		}
		Expect(generations()).To(Equal(before))
	}, NodeTimeout(specTime))

	for _, force := range []string{"true", "false"} {
		It("says a refusal in the rule's words, leaves the policy as it is, and applies the commit that repairs it; with force: "+force, func(ctx SpecContext) {
			w.Run(ctx, "patch", "kustomization", "policies", "-n", "flux-system", "--type=merge", `-p={"spec":{"force":`+force+`}}`)
			dangerous := strings.Replace(gitops.Set("broken"), "Broken: {status: true}", "Ready: {status: true}", 1)
			before := stored(ctx, "broken")
			sentence := w.Refusal(ctx, dangerous, "kustomize-controller")
			commit(ctx, map[string]string{"policies/broken.yaml": dangerous, "policies/other.yaml": gitops.Set("other")})
			Eventually(ctx, policies.state).Should(And(ContainSubstring("Ready=False: "), ContainSubstring(sentence)))
			Expect(stored(ctx, "broken").UID).To(Equal(before.UID))
			Expect(stored(ctx, "broken").Generation).To(Equal(before.Generation))
			Expect(w.Run(ctx, "get", "conditionsets", "-o", "name")).NotTo(ContainSubstring("other"))
			Expect(w.Taints(ctx)).To(ContainElement("example.com/broken"))

			commit(ctx, map[string]string{"policies/broken.yaml": gitops.Set("broken"), "policies/other.yaml": ""})
			Eventually(ctx, policies.state).Should(beReady())
		}, NodeTimeout(specTime))
	}

	It("applies an exception before the policy of the same commit, and doesn't fail when it is over", func(ctx SpecContext) {
		commit(ctx, map[string]string{"guardrails/only.yaml": gitops.Unnamed("old")})
		Eventually(ctx, policies.state).Should(beReady())
		Expect(w.Refusal(ctx, gitops.Set("old"), "kustomize-controller")).To(ContainSubstring("call it another name"))
		exception := w.ExceptionFor(ctx, gitops.Unnamed("old"), gitops.Set("old"))
		commit(ctx, map[string]string{"guardrails/old.yaml": exception, "policies/old.yaml": gitops.Set("old")})
		Eventually(ctx, policies.state).Should(beReady())

		By("the end of the exception, when its policy has another name")
		commit(ctx, map[string]string{
			"guardrails/old.yaml": gitops.Until(exception, time.Now().Add(20*time.Second)), "policies/old.yaml": "", "policies/new.yaml": gitops.Set("new"),
		})
		Eventually(ctx, func() string {
			return w.Run(ctx, "get", "guardrailexceptions", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].reason}`)
		}).Should(Equal("Expired"))
		guardrails.reconcile(ctx)
		policies.reconcile(ctx)
	}, NodeTimeout(specTime))

	It("isn't Ready while a policy is refused that was stored before the rule, and is when it is repaired", func(ctx SpecContext) {
		commit(ctx, map[string]string{"guardrails/only.yaml": gitops.Unnamed("new")})
		Eventually(ctx, guardrails.state).Should(beReady())
		Eventually(ctx, policies.state).Should(And(ContainSubstring("Ready=False: "), ContainSubstring("ConditionSet/new status: 'Failed'")))
		commit(ctx, map[string]string{"policies/new.yaml": "", "policies/renamed.yaml": gitops.Set("renamed")})
		Eventually(ctx, policies.state).Should(beReady())
	}, NodeTimeout(specTime))

	It("applies a tenant's policy after its account, from another Kustomization alone", func(ctx SpecContext) {
		commit(ctx, map[string]string{"tenant/account.yaml": gitops.File("config/samples/tenant/account.yaml"), "tenant/weederconfig.yaml": gitops.File("config/samples/tenant/weederconfig.yaml")})
		like(ctx, "tenant", "", nil)
		Eventually(ctx, kustomization("tenant").state).Should(And(ContainSubstring("Ready=False: "), ContainSubstring("weeder")))
		commit(ctx, map[string]string{"tenant/weederconfig.yaml": "", "tenant-policies/weederconfig.yaml": gitops.File("config/samples/tenant/weederconfig.yaml")})
		like(ctx, "tenant-policies", "tenant", nil)
		Eventually(ctx, kustomization("tenant").state).Should(beReady())
		Eventually(ctx, kustomization("tenant-policies").state).Should(beReady())
	}, NodeTimeout(specTime))

	scales()

	It("prunes a policy, and what it did is undone", func(ctx SpecContext) {
		commit(ctx, map[string]string{"policies/renamed.yaml": ""})
		Eventually(ctx, policies.state).Should(beReady())
		Eventually(ctx, w.Taints).ShouldNot(ContainElement("example.com/renamed"))
		Eventually(ctx, func() error { return w.Admin.Get(ctx, client.ObjectKey{Name: "renamed"}, &v1alpha1.ConditionSet{}) }).Should(Satisfy(apierrors.IsNotFound))
	}, NodeTimeout(specTime))

	It("deletes policies with their Kustomization, and leaves the installation, which the command uninstalls", func(ctx SpecContext) {
		Expect(w.Taints(ctx)).To(ContainElement("example.com/broken"))
		w.Run(ctx, "delete", "kustomization", "policies", "-n", "flux-system", "--timeout=1m")
		Expect(w.Taints(ctx)).NotTo(ContainElement(HavePrefix("example.com/")), "undone before the Kustomization went")
		w.Run(ctx, "delete", "kustomization", "--all", "-n", "flux-system", "--timeout=1m")
		Expect(w.Run(ctx, "get", "deployments", "-n", harness.Namespace, "-o", "name")).To(ContainSubstring(harness.ServiceAccount))
		Expect(w.StopComponent(gitops.Manager)).To(Succeed()) // its pods, which kwok plays, don't run it
		uninstall(ctx)
		Expect(w.Run(ctx, "get", "crd,namespaces", "-o", "name")).NotTo(ContainSubstring("autohealer"))
	}, NodeTimeout(specTime))

	releases()
})

// install applies what the page has printed, with another URL.
func install(ctx SpecContext) {
	GinkgoHelper()
	manifests, err := w.Guide.File("flux.yaml")
	Expect(err).NotTo(HaveOccurred())
	Expect(w.Apply(ctx, strings.Replace(manifests, "https://git.example.org/platform/cluster.git", url, 1))).To(Succeed())
}

// like makes a further Kustomization as policies is, for the folder of its name.
func like(ctx SpecContext, name, dependsOn string, patches []any) {
	GinkgoHelper()
	k, err := policies.get(ctx)
	Expect(err).NotTo(HaveOccurred())
	spec := k.Object["spec"].(map[string]any)
	spec["path"], spec["patches"] = "./"+name, patches
	if delete(spec, "dependsOn"); dependsOn != "" {
		spec["dependsOn"] = []any{map[string]any{"name": dependsOn}}
	}
	is := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	is.SetGroupVersionKind(k.GroupVersionKind())
	is.SetNamespace(k.GetNamespace())
	is.SetName(name)
	Expect(w.Admin.Create(ctx, is)).To(Succeed())
}

func stored(ctx SpecContext, name string) *v1alpha1.ConditionSet {
	GinkgoHelper()
	var set v1alpha1.ConditionSet
	Expect(w.Admin.Get(ctx, client.ObjectKey{Name: name}, &set)).To(Succeed())
	return &set
}

func uninstall(ctx SpecContext) {
	GinkgoHelper()
	said, err := exec.CommandContext(ctx, filepath.Join(w.BinDir, "kubectl-autohealer"), "uninstall", "--yes", "--kubeconfig="+w.Kubeconfig).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(said))
}
