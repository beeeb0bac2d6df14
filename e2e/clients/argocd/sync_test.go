package argocd

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/clients/gitops"
)

type change = func(*unstructured.Unstructured)

// ways are those by which an Application may be applied and compared.
var ways = []struct {
	name string
	by   change
}{
	{"client-side apply", with([]any{}, "spec", "syncPolicy", "syncOptions")},
	{"server-side apply", with([]any{"ServerSideApply=true"}, "spec", "syncPolicy", "syncOptions")},
	{"server-side diff", with(map[string]any{"argocd.argoproj.io/compare-options": "ServerSideDiff=true"}, "metadata", "annotations")},
}

// folders of config/samples, and the health of what they have: nothing of Gardener's kinds is installed.
var folders = []struct{ name, health string }{{"", "Healthy"}, {"npd", "Healthy"}, {"tenant", "Healthy"}, {"gardener", "Degraded"}}

// rightsFirst belongs into the kustomization.yaml beside policies and their rights, which Argo CD then removes when the policies are gone.
const rightsFirst = `
patches:
- target: {kind: ServiceAccount|ClusterRole|Role|RoleBinding}
  patch: |
    - {op: add, path: /metadata/annotations, value: {argocd.argoproj.io/sync-wave: "-1"}}
`

func syncs() {
	for _, way := range ways {
		for _, folder := range folders {
			It("has config/samples/"+folder.name+" without drift by "+way.name, func(ctx SpecContext) {
				samples := application(strings.Join(strings.Fields("samples "+folder.name+" by "+way.name), "-"))
				files := gitops.Files("config/samples/" + folder.name + "/*.yaml")
				files["kustomization.yaml"] += rightsFirst
				samples.commit(ctx, files)
				samples.create(ctx, way.by)
				Eventually(ctx, samples.state).Should(Equal("Synced and " + folder.health))
				samples.expectNoDrift(ctx)
			}, NodeTimeout(specTime))
		}
	}

	It("shows a refusal in the rule's words, and applies the commit that repairs it", func(ctx SpecContext) {
		const refused application = "refused"
		text := gitops.File("config/samples/refused/outofdisk.yaml")
		sentence := w.Refusal(ctx, text, "argocd-controller")
		refused.commit(ctx, map[string]string{"set.yaml": text})
		refused.create(ctx)
		Eventually(ctx, refused.message).Should(ContainSubstring(sentence))
		shown, err := w.Guide.SkippedCommand(".status.operationState.message")
		Expect(err).NotTo(HaveOccurred())
		message, err := refused.message(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(shown.Differs(message)).To(BeEmpty())
		Expect(refused.state(ctx)).To(Equal("OutOfSync and Missing"))

		refused.commit(ctx, map[string]string{"set.yaml": strings.Replace(text, "status: false", "status: true", 1)})
		Eventually(ctx, refused.state).Should(Equal(inSync))
	}, NodeTimeout(specTime))

	It("deletes what has a refused policy once its sync is ended", func(ctx SpecContext) {
		const retried application = "retried"
		retried.commit(ctx, map[string]string{"set.yaml": gitops.File("config/samples/refused/outofdisk.yaml")})
		retried.create(ctx)
		Eventually(ctx, retried.message).Should(ContainSubstring("Retrying attempt #1"))
		end, err := w.Guide.SkippedCommand("Terminating")
		Expect(err).NotTo(HaveOccurred())
		w.Run(ctx, "delete", "application", "-n", "argocd", string(retried), "--wait=false")
		_, err = w.Shell(ctx, strings.ReplaceAll(end.Text, "argocd autohealer", "argocd "+string(retried)))
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() error { _, err := retried.status(ctx); return err }).Should(Satisfy(apierrors.IsNotFound))
	}, NodeTimeout(specTime))

	It("applies an exception before the policy of the same commit", func(ctx SpecContext) {
		const excepted application = "excepted"
		excepted.commit(ctx, map[string]string{"guardrail.yaml": gitops.Unnamed("excepted-")})
		excepted.create(ctx)
		Eventually(ctx, excepted.state).Should(Equal(inSync))

		policy := wave("2", gitops.Set("excepted-a"))
		Expect(w.Refusal(ctx, policy, "argocd-controller")).To(ContainSubstring("only/named"))
		excepted.commit(ctx, map[string]string{"exception.yaml": wave("1", w.ExceptionFor(ctx, gitops.Unnamed("excepted-"), policy)), "policy.yaml": policy})
		Eventually(ctx, excepted.state).Should(Equal(inSync))
		is, err := excepted.status(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(is.OperationState.RetryCount).To(BeZero())
		excepted.expectNoDrift(ctx)
	}, NodeTimeout(specTime))

	for _, removed := range []struct {
		by     application
		remove func(application, SpecContext)
	}{
		{"application", application.delete},
		{"commit", func(a application, ctx SpecContext) {
			a.commit(ctx, map[string]string{"rights.yaml": "", "registration.yaml": ""})
		}},
	} {
		It("removes a registration before its rights, with which it takes its conditions off, by "+string(removed.by), func(ctx SpecContext) {
			registered := "registered-by-" + removed.by
			conditions := func() string {
				return w.Run(ctx, "get", "worker", "of-aws", "-o", "jsonpath={.status.conditions[*].type}")
			}
			Expect(w.Apply(ctx, "{apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, metadata: {name: of-aws, namespace: default}, spec: {type: aws, pools: []}}")).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { w.Run(ctx, "delete", "worker", "of-aws") })
			rights, registration, _ := strings.Cut(gitops.File("config/samples/healthcheckregistration-1.yaml"), "---\n")
			registered.commit(ctx, map[string]string{"rights.yaml": wave("1", rights), "registration.yaml": wave("2", registration), "other.yaml": other})
			registered.create(ctx)
			Eventually(ctx, registered.state).Should(Equal(inSync))
			Eventually(ctx, conditions).Should(Equal("EveryNodeReady SystemComponentsHealthy"))

			removed.remove(registered, ctx)
			Eventually(ctx, func() string {
				return w.Run(ctx, "get", "clusterrole", "autohealer-health-checks-worker", "--ignore-not-found")
			}).Should(BeEmpty())
			Expect(w.Run(ctx, "get", "healthcheckregistrations", "-o", "name")).To(BeEmpty())
			Expect(conditions()).To(BeEmpty())
		}, NodeTimeout(specTime))
	}

	for _, order := range []struct {
		name    string
		commits []map[string]string
	}{
		{"a policy, then its Guardrail", []map[string]string{{"policy.yaml": ""}, {"guardrail.yaml": ""}}},
		{"a Guardrail, then its policy", []map[string]string{{"guardrail.yaml": ""}, {"policy.yaml": ""}}},
		{"both at once", []map[string]string{{"guardrail.yaml": "", "policy.yaml": ""}}},
	} {
		It("prunes "+order.name+", and what the policy did is undone", func(ctx SpecContext) {
			const pruned application = "pruned"
			pruned.commit(ctx, map[string]string{
				"guardrail.yaml": gitops.Unnamed("excepted-"), "policy.yaml": gitops.Set("named-a"), "other.yaml": other,
			})
			pruned.create(ctx)
			Eventually(ctx, pruned.state).Should(Equal(inSync))
			w.Report(ctx, "Broken", corev1.ConditionTrue)
			DeferCleanup(func(ctx SpecContext) { w.Report(ctx, "Broken", corev1.ConditionFalse) })
			Eventually(ctx, w.Taints).Should(ContainElement("example.com/named-a"))
			for _, commit := range order.commits {
				pruned.commit(ctx, commit)
				Eventually(ctx, pruned.state).Should(Equal(inSync))
			}
			Expect(w.Taints(ctx)).NotTo(ContainElement("example.com/named-a"))
			Expect(w.Admin.Get(ctx, client.ObjectKey{Name: "only"}, &v1alpha1.Guardrail{})).To(Satisfy(apierrors.IsNotFound))
			Expect(w.Admin.Get(ctx, client.ObjectKey{Name: "named-a"}, &v1alpha1.ConditionSet{})).To(Satisfy(apierrors.IsNotFound))
		}, NodeTimeout(specTime))
	}
}

// other keeps an Application from having nothing, which Argo CD doesn't sync by itself.
const other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other, namespace: default}\n"

// wave puts an object into a sync wave.
func wave(number, object string) string {
	return strings.Replace(object, "metadata:\n", "metadata:\n  annotations: {argocd.argoproj.io/sync-wave: \""+number+"\"}\n", 1)
}
