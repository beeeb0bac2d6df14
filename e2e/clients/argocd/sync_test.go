package argocd

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
)

// ways are those by which an Application may be applied and compared.
var ways = map[string]func(*unstructured.Unstructured){
	"client-side apply": with([]any{}, "spec", "syncPolicy", "syncOptions"),
	"server-side apply": with([]any{"ServerSideApply=true"}, "spec", "syncPolicy", "syncOptions"),
	"server-side diff":  with(map[string]any{"argocd.argoproj.io/compare-options": "ServerSideDiff=true"}, "metadata", "annotations"),
}

// folders of config/samples, and the health of what they have: nothing of Gardener's kinds is installed.
var folders = map[string]string{"": "Healthy", "npd": "Healthy", "tenant": "Healthy", "gardener": "Degraded"}

func syncs() {
	for way, change := range ways {
		for folder, health := range folders {
			It("has config/samples/"+folder+" without drift by "+way, func(ctx SpecContext) {
				samples := application(strings.Join(strings.Fields("samples "+folder+" by "+way), "-"))
				files := map[string]string{}
				found, err := filepath.Glob(absolute("config/samples/" + folder + "/*.yaml"))
				Expect(err).NotTo(HaveOccurred())
				for _, file := range found {
					files[filepath.Base(file)] = sample(filepath.Join(folder, filepath.Base(file)))
				}
				samples.commit(ctx, files)
				samples.create(ctx, change)
				Eventually(ctx, samples.state).Should(Equal("Synced and " + health))
				samples.expectNoDrift(ctx)
			}, NodeTimeout(specTime))
		}
	}

	It("shows a refusal in the rule's words, and applies the commit that repairs it", func(ctx SpecContext) {
		const refused application = "refused"
		text := sample("refused/outofdisk.yaml")
		_, err := c.KubectlWithInput(ctx, strings.NewReader(text), "create", "--dry-run=server", "-f", "-")
		Expect(err).To(HaveOccurred())
		_, sentence, denied := strings.Cut(strings.TrimSpace(err.Error()), " request: ")
		Expect(denied).To(BeTrue(), err.Error())
		refused.commit(ctx, map[string]string{"set.yaml": text})
		refused.create(ctx)
		Eventually(ctx, refused.message).Should(ContainSubstring(sentence))
		Expect(refused.state(ctx)).To(Equal("OutOfSync and Missing"))

		refused.commit(ctx, map[string]string{"set.yaml": strings.Replace(text, "status: false", "status: true", 1)})
		Eventually(ctx, refused.state).Should(Equal(inSync))
	}, NodeTimeout(specTime))

	It("applies an exception before the policy of the same commit", func(ctx SpecContext) {
		const excepted application = "excepted"
		excepted.commit(ctx, map[string]string{"guardrail.yaml": onlyNamed})
		excepted.create(ctx)
		Eventually(ctx, excepted.state).Should(Equal(inSync))

		policy := wave("2", setOf("excepted-a"))
		Expect(c.KubectlWithInput(ctx, strings.NewReader(policy), "create", "--dry-run=server", "-f", "-")).Error().To(MatchError(ContainSubstring("only/named")))
		excepted.commit(ctx, map[string]string{"exception.yaml": wave("1", exceptionFor(ctx, policy)), "policy.yaml": policy})
		Eventually(ctx, excepted.state).Should(Equal(inSync))
		is, err := excepted.status(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(is.OperationState.RetryCount).To(BeZero())
		excepted.expectNoDrift(ctx)
	}, NodeTimeout(specTime))

	for order, commits := range map[string][]map[string]string{
		"a policy, then its Guardrail": {{"policy.yaml": ""}, {"guardrail.yaml": ""}},
		"a Guardrail, then its policy": {{"guardrail.yaml": ""}, {"policy.yaml": ""}},
		"both at once":                 {{"guardrail.yaml": "", "policy.yaml": ""}},
	} {
		It("prunes "+order+", and what the policy did is undone", func(ctx SpecContext) {
			const pruned application = "pruned"
			pruned.commit(ctx, map[string]string{
				"guardrail.yaml": onlyNamed, "policy.yaml": setOf("named-a"), "other.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other, namespace: default}\n",
			})
			pruned.create(ctx)
			Eventually(ctx, pruned.state).Should(Equal(inSync))
			report(ctx, "Broken", true)
			DeferCleanup(func(ctx SpecContext) { report(ctx, "Broken", false) })
			Eventually(ctx, taints).Should(ContainElement("example.com/named-a"))
			for _, commit := range commits {
				pruned.commit(ctx, commit)
				Eventually(ctx, pruned.state).Should(Equal(inSync))
			}
			Expect(taints(ctx)).NotTo(ContainElement("example.com/named-a"))
			Expect(admin.Get(ctx, client.ObjectKey{Name: "only"}, &v1alpha1.Guardrail{})).To(Satisfy(apierrors.IsNotFound))
			Expect(admin.Get(ctx, client.ObjectKey{Name: "named-a"}, &v1alpha1.ConditionSet{})).To(Satisfy(apierrors.IsNotFound))
		}, NodeTimeout(specTime))
	}
}

// onlyNamed refuses sets called excepted-….
const onlyNamed = `apiVersion: autohealer.resourcestack.com/v1alpha1
kind: Guardrail
metadata: {name: only}
spec:
  rules:
  - name: named
    kinds: [ConditionSet]
    severity: Deny
    expression: "!object.metadata.name.startsWith('excepted-')"
    messageExpression: "'call it another name'"
    exceptable: true
`

// setOf taints nodes that are Broken, with a key of its own.
func setOf(name string) string {
	return `apiVersion: autohealer.resourcestack.com/v1alpha1
kind: ConditionSet
metadata:
  name: ` + name + `
spec:
  type: Broken
  effect: NoSchedule
  taintKey: example.com/` + name + `
  conditions: {Broken: {status: true}}
`
}

// wave puts an object into a sync wave.
func wave(number, object string) string {
	return strings.Replace(object, "metadata:\n", "metadata:\n  annotations: {argocd.argoproj.io/sync-wave: \""+number+"\"}\n", 1)
}

// exceptionFor is what the command of docs/how-to/exceptions.md writes for a policy, with a reason.
func exceptionFor(ctx SpecContext, policy string) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	write(dir, "policy.yaml", policy)
	write(dir, "rules.yaml", onlyNamed)
	hash := exec.CommandContext(ctx, filepath.Join(c.BinDir, "kubectl-autohealer"), "hash", "-f", "policy.yaml", "--rules", "rules.yaml", "-o", "exception")
	hash.Dir = dir
	exception, err := hash.Output()
	Expect(err).NotTo(HaveOccurred())
	return strings.Replace(string(exception), `reason: ""`, "reason: The name is older than the rule, OPS-1234.", 1)
}

// report says whether the first node has a problem.
func report(ctx SpecContext, condition corev1.NodeConditionType, has bool) {
	GinkgoHelper()
	status := corev1.ConditionFalse
	if has {
		status = corev1.ConditionTrue
	}
	Expect(c.SetCondition(ctx, nodes[0], condition, status, cluster.ConditionOptions{})).To(Succeed())
}

// taints are the keys of the first node's.
func taints(ctx context.Context) (keys []string, err error) {
	var node corev1.Node
	err = admin.Get(ctx, client.ObjectKey{Name: nodes[0]}, &node)
	for _, t := range node.Spec.Taints {
		keys = append(keys, t.Key)
	}
	return keys, err
}
