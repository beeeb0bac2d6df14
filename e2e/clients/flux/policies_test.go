package flux

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// The Kustomizations that docs/how-to/flux.md has printed.
const (
	installation kustomization = "autohealer"
	guardrails   kustomization = "guardrails"
	policies     kustomization = "policies"
)

// outside are patches for a manager outside of the cluster, whose pods are ready when it is.
const outside = `
resources: [install.yaml]
patches:
- target: {kind: ValidatingWebhookConfiguration, name: autohealer}
  patch: |
    - {op: remove, path: /webhooks/0/clientConfig/service}
    - {op: add, path: /webhooks/0/clientConfig/url, value: "https://127.0.0.1:%d/validate"}
- target: {kind: Deployment, name: autohealer-manager}
  patch: |
    - {op: add, path: /spec/template/metadata/labels/autohealer.test~1unready, value: "true"}
`

var _ = Describe("Flux", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) {
		files := map[string]string{
			"autohealer/install.yaml":       kubectl(ctx, "kustomize", filepath.Join(root, "config", "default")),
			"autohealer/kustomization.yaml": fmt.Sprintf(outside, webhookPort),
			"guardrails/guardrail.yaml":     read("config/samples/guardrail.yaml"),
			"policies/broken.yaml":          setOf("broken"),
		}
		samples, err := filepath.Glob(filepath.Join(root, "config", "samples", "*-1.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(samples).To(HaveLen(5))
		for _, file := range samples {
			files["policies/"+filepath.Base(file)] = read("config/samples/" + filepath.Base(file))
		}
		commit(ctx, files)
	}, NodeTimeout(specTime))

	It("installs Autohealer, then Guardrails, then policies", func(ctx SpecContext) {
		install(ctx)
		By("a manager that isn't ready yet")
		const pods = "app.kubernetes.io/component=manager"
		Eventually(ctx, func() string { return kubectl(ctx, "get", "pods", "-n", harness.Namespace, "-l", pods, "-o", "name") }).ShouldNot(BeEmpty())
		Consistently(ctx, func() string { return kubectl(ctx, "get", "conditionsets,guardrails", "-o", "name") }).Should(BeEmpty())
		startManager(ctx)
		kubectl(ctx, "label", "pods", "-n", harness.Namespace, "-l", pods, "autohealer.test/unready-")
		for _, k := range []kustomization{installation, guardrails, policies} {
			Eventually(ctx, k.state).Should(beReady())
		}
		report(ctx, corev1.ConditionTrue)
		Eventually(ctx, taints).Should(ContainElement("example.com/broken"))
	}, NodeTimeout(specTime))

	It("changes nothing when it applies the same again", func(ctx SpecContext) {
		generations := func() string {
			return kubectl(ctx, "get", "conditionsets,guardrails,probeconfigs,validatingwebhookconfigurations,deployments", "-A", "-o", "custom-columns=NAME:.metadata.name,UID:.metadata.uid,GENERATION:.metadata.generation")
		}
		before := generations()
		for _, k := range []kustomization{installation, guardrails, policies} {
			k.reconcile(ctx)
		}
		Expect(generations()).To(Equal(before))
	}, NodeTimeout(specTime))

	for _, force := range []string{"true", "false"} {
		It("says a refusal in the rule's words, leaves the policy as it is, and applies the commit that repairs it; with force: "+force, func(ctx SpecContext) {
			kubectl(ctx, "patch", "kustomization", "policies", "-n", "flux-system", "--type=merge", `-p={"spec":{"force":`+force+`}}`)
			dangerous := strings.Replace(setOf("broken"), "Broken: {status: true}", "Ready: {status: true}", 1)
			before := stored(ctx, "broken")
			sentence := refusal(ctx, dangerous)
			commit(ctx, map[string]string{"policies/broken.yaml": dangerous, "policies/other.yaml": setOf("other")})
			Eventually(ctx, policies.state).Should(And(ContainSubstring("Ready=False: "), ContainSubstring(sentence)))
			Expect(stored(ctx, "broken").UID).To(Equal(before.UID))
			Expect(stored(ctx, "broken").Generation).To(Equal(before.Generation))
			Expect(kubectl(ctx, "get", "conditionsets", "-o", "name")).NotTo(ContainSubstring("other"))
			Expect(taints(ctx)).To(ContainElement("example.com/broken"))

			commit(ctx, map[string]string{"policies/broken.yaml": setOf("broken"), "policies/other.yaml": ""})
			Eventually(ctx, policies.state).Should(beReady())
		}, NodeTimeout(specTime))
	}

	It("applies an exception before the policy of the same commit, and doesn't fail when it is over", func(ctx SpecContext) {
		commit(ctx, map[string]string{"guardrails/only.yaml": noneCalledOld})
		Eventually(ctx, policies.state).Should(beReady())
		Expect(refusal(ctx, setOf("old"))).To(ContainSubstring("call it another name"))
		exception := exceptionFor(ctx, setOf("old"))
		commit(ctx, map[string]string{"guardrails/old.yaml": exception, "policies/old.yaml": setOf("old")})
		Eventually(ctx, policies.state).Should(beReady())

		By("the end of the exception, when its policy has another name")
		commit(ctx, map[string]string{
			"guardrails/old.yaml": until(exception, time.Now().Add(20*time.Second)), "policies/old.yaml": "", "policies/new.yaml": setOf("new"),
		})
		Eventually(ctx, func() string {
			return kubectl(ctx, "get", "guardrailexceptions", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].reason}`)
		}).Should(Equal("Expired"))
		guardrails.reconcile(ctx)
		policies.reconcile(ctx)
	}, NodeTimeout(specTime))

	It("isn't Ready while a policy is refused that was stored before the rule, and is when it is repaired", func(ctx SpecContext) {
		commit(ctx, map[string]string{"guardrails/only.yaml": strings.ReplaceAll(noneCalledOld, "'old'", "'new'")})
		Eventually(ctx, guardrails.state).Should(beReady())
		Eventually(ctx, policies.state).Should(And(ContainSubstring("Ready=False: "), ContainSubstring("ConditionSet/new status: 'Failed'")))
		commit(ctx, map[string]string{"policies/new.yaml": "", "policies/newer.yaml": setOf("newer")})
		Eventually(ctx, policies.state).Should(beReady())
	}, NodeTimeout(specTime))

	It("applies a tenant's policy after its account, from another Kustomization alone", func(ctx SpecContext) {
		commit(ctx, map[string]string{"tenant/account.yaml": read("config/samples/tenant/account.yaml"), "tenant/weederconfig.yaml": read("config/samples/tenant/weederconfig.yaml")})
		like(ctx, "tenant", "", nil)
		Eventually(ctx, kustomization("tenant").state).Should(And(ContainSubstring("Ready=False: "), ContainSubstring("weeder")))
		commit(ctx, map[string]string{"tenant/weederconfig.yaml": "", "tenant-policies/weederconfig.yaml": read("config/samples/tenant/weederconfig.yaml")})
		like(ctx, "tenant-policies", "tenant", nil)
		Eventually(ctx, kustomization("tenant").state).Should(beReady())
		Eventually(ctx, kustomization("tenant-policies").state).Should(beReady())
	}, NodeTimeout(specTime))

	scales()

	It("prunes a policy, and what it did is undone", func(ctx SpecContext) {
		commit(ctx, map[string]string{"policies/newer.yaml": ""})
		Eventually(ctx, policies.state).Should(beReady())
		Eventually(ctx, taints).ShouldNot(ContainElement("example.com/newer"))
		Eventually(ctx, func() error { return admin.Get(ctx, client.ObjectKey{Name: "newer"}, &v1alpha1.ConditionSet{}) }).Should(Satisfy(apierrors.IsNotFound))
	}, NodeTimeout(specTime))

	It("deletes policies with their Kustomization, and leaves the installation, which the command uninstalls", func(ctx SpecContext) {
		Expect(taints(ctx)).To(ContainElement("example.com/broken"))
		kubectl(ctx, "delete", "kustomization", "policies", "-n", "flux-system", "--timeout=1m")
		Expect(taints(ctx)).NotTo(ContainElement(HavePrefix("example.com/")), "undone before the Kustomization went")
		kubectl(ctx, "delete", "kustomization", "--all", "-n", "flux-system", "--timeout=1m")
		Expect(kubectl(ctx, "get", "deployments", "-n", harness.Namespace, "-o", "name")).To(ContainSubstring(harness.ServiceAccount))
		Expect(c.StopComponent(manager)).To(Succeed()) // its pods, which kwok plays, don't run it
		uninstall(ctx)
		Expect(kubectl(ctx, "get", "crd,namespaces", "-o", "name")).NotTo(ContainSubstring("autohealer"))
	}, NodeTimeout(specTime))

})

// install applies what the page has printed, with another URL.
func install(ctx SpecContext) {
	GinkgoHelper()
	manifests, err := howTo.File("flux.yaml")
	Expect(err).NotTo(HaveOccurred())
	apply(ctx, strings.Replace(manifests, "https://git.example.org/platform/cluster.git", url, 1))
}

// noneCalledOld refuses one policy.
const noneCalledOld = `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: Guardrail
metadata: {name: only}
spec:
  rules:
  - name: named
    kinds: [ConditionSet]
    severity: Deny
    expression: object.metadata.name != 'old'
    messageExpression: "'call it another name'"
    exceptable: true
`

// setOf taints nodes that are Broken, with a key of its own.
func setOf(name string) string {
	return `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: ConditionSet
metadata: {name: ` + name + `}
spec:
  type: Broken
  effect: NoSchedule
  taintKey: example.com/` + name + `
  conditions: {Broken: {status: true}}
`
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
	Expect(admin.Create(ctx, is)).To(Succeed())
}

func stored(ctx SpecContext, name string) *v1alpha1.ConditionSet {
	GinkgoHelper()
	var set v1alpha1.ConditionSet
	Expect(admin.Get(ctx, client.ObjectKey{Name: name}, &set)).To(Succeed())
	return &set
}

// refusal is what the API server says of a policy.
func refusal(ctx SpecContext, policy string) string {
	GinkgoHelper()
	_, err := c.KubectlWithInput(ctx, strings.NewReader(policy), "apply", "--server-side", "--field-manager=kustomize-controller", "--dry-run=server", "-f", "-")
	Expect(err).To(HaveOccurred())
	_, sentence, denied := strings.Cut(err.Error(), "request: ")
	Expect(denied).To(BeTrue(), err.Error())
	return sentence
}

// exceptionFor is what the command of docs/how-to/exceptions.md writes for a policy, with a reason.
func exceptionFor(ctx SpecContext, policy string) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	write(dir, "policy.yaml", policy)
	write(dir, "rules.yaml", noneCalledOld)
	hash := exec.CommandContext(ctx, filepath.Join(c.BinDir, "kubectl-autohealer"), "hash", "-f", "policy.yaml", "--rules", "rules.yaml", "-o", "exception")
	hash.Dir = dir
	exception, err := hash.Output()
	Expect(err).NotTo(HaveOccurred())
	return strings.Replace(string(exception), `reason: ""`, "reason: The name is older than the rule, OPS-1234.", 1)
}

// until ends an exception earlier.
func until(exception string, end time.Time) string {
	return regexp.MustCompile("expiresAt: .*").ReplaceAllString(exception, "expiresAt: "+end.UTC().Format(time.RFC3339))
}

func uninstall(ctx SpecContext) {
	GinkgoHelper()
	said, err := exec.CommandContext(ctx, filepath.Join(c.BinDir, "kubectl-autohealer"), "uninstall", "--yes", "--kubeconfig="+c.Kubeconfig).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(said))
}
