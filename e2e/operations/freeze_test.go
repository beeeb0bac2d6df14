package operations

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// frozen freezes, by the plugin, until the spec ends.
func frozen(ctx context.Context, args ...string) said {
	GinkgoHelper()
	DeferCleanup(func(ctx context.Context) { Expect(plugin(ctx, "thaw").Code).To(Equal(0)) })
	return plugin(ctx, append([]string{"freeze"}, args...)...)
}

var _ = Describe("kubectl autohealer freeze", func() {
	It("stops everything within 5 s in a storm, undo included, over a restart, and thaw resumes within the limits", func(ctx SpecContext) {
		s := startStorm(ctx, "Storm")
		s.blows(ctx)
		began := time.Now()
		got := frozen(ctx, "--reason", "INC-4711")
		Expect(time.Since(began)).To(BeNumerically("<", 5*time.Second))
		Expect(got).To(SatisfyAll(HaveField("Code", 0), HaveField("Err", BeEmpty()),
			HaveField("Out", MatchRegexp(`guardrail.autohealer.resourcestack.com/autohealer-freeze created
Frozen: nothing is done and nothing undone. The manager confirms, after [0-9.]+s.
To go on: kubectl autohealer thaw`))))
		Eventually(time.Now).Should(BeTemporally(">", began.Add(5*time.Second)), "a write that was on its way may arrive")
		was := s.taints(ctx)
		Consistently(func() any { return s.taints(ctx) }, "6s", "200ms").Should(Equal(was), "the oracle sees every write, too")

		By("saying so in every status")
		Eventually(w.Ready).WithContext(ctx).WithArguments(s.repelling).Should(SatisfyAll(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", "Frozen"),
			HaveField("Message", HavePrefix("Guardrail autohealer-freeze freezes everything, undo included. "))))

		By("leaving what a deleted policy did, and the policy with it")
		Expect(w.Client.Delete(ctx, &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: s.repelling}})).To(Succeed())
		Eventually(w.Condition(ctx, s.repelling, "Reconciling")).Should(HaveField("Message",
			HavePrefix("Guardrail autohealer-freeze freezes everything, undo included. The ConditionSet is deleted once its taints are off ")))

		By("staying frozen for a manager that is killed and starts anew")
		Expect(w.Kill(harness.Manager, syscall.SIGKILL)).To(Succeed())
		Expect(w.StopComponent(harness.Manager)).To(Succeed())
		Expect(w.StartManager(ctx)).To(Succeed())
		Consistently(func() any { return s.taints(ctx) }, "3s", "200ms").Should(Equal(was))
		Expect(plugin(ctx, "freeze")).To(SatisfyAll(HaveField("Code", 0),
			HaveField("Out", MatchRegexp(`^Autohealer was frozen already, since \S+ \([0-9.ms]+\) by admin: INC-4711.\nFrozen: `))))

		By("going on: what was waiting is undone, and what matches is done as the limits allow")
		s.stop()
		Expect(plugin(ctx, "thaw")).To(SatisfyAll(HaveField("Code", 0), HaveField("Out", MatchRegexp(
			`^guardrail.autohealer.resourcestack.com/autohealer-freeze deleted; it was frozen since \S+ \([0-9.ms]+\) by admin: INC-4711\n$`))))
		Eventually(func(g Gomega) {
			for name, effects := range s.taints(ctx) {
				g.Expect(effects[0]).To(BeEmpty(), "its set was deleted: %s", name)
				want := Equal(corev1.TaintEffect(none))
				if w.Node(ctx, name).Labels[string(s.dead)] == "" {
					want = Not(want)
				}
				g.Expect(effects[1]).To(want, name)
			}
		}).Should(Succeed())
		Expect(plugin(ctx, "thaw")).To(Equal(said{0, "Nothing is frozen.\n", ""}))
	})

	It("changes nothing in a dry run", func(ctx SpecContext) {
		for how, suffix := range map[string]string{"client": "(dry run)", "server": "(server dry run)"} {
			Expect(plugin(ctx, "freeze", "--dry-run="+how)).To(Equal(said{0, "guardrail.autohealer.resourcestack.com/autohealer-freeze created " + suffix + "\n", ""}))
		}
		Expect(plugin(ctx, "thaw", "--dry-run")).To(Equal(said{0, "Nothing is frozen.\n", ""}))
		Expect(frozen(ctx)).To(HaveField("Code", 0))
		for how, suffix := range map[string]string{"client": `\(dry run\)`, "server": `\(server dry run\)`} {
			Expect(plugin(ctx, "thaw", "--dry-run="+how)).To(HaveField("Out", MatchRegexp("^guardrail.autohealer.resourcestack.com/autohealer-freeze deleted "+suffix+"; it was frozen since ")))
		}
		Expect(plugin(ctx, "freeze", "--dry-run=server")).To(SatisfyAll(HaveField("Code", 0), HaveField("Out", HavePrefix("Autohealer was frozen already, since "))))

		By("a finalizer that keeps it")
		held := func(ctx context.Context, finalizers string) {
			_, err := w.Kubectl(ctx, "patch", "guardrail", "autohealer-freeze", "--type=merge", "-p", `{"metadata":{"finalizers":`+finalizers+`}}`)
			Expect(err).NotTo(HaveOccurred())
		}
		held(ctx, `["example.com/audit"]`)
		DeferCleanup(held, "null")
		Expect(plugin(ctx, "thaw", "--timeout=1s")).To(Equal(said{1, "",
			"Guardrail autohealer-freeze is deleted, still there after 1s, and freezes until it is gone: it waits for the finalizers [\"example.com/audit\"]. See who set them: kubectl get guardrail autohealer-freeze -o yaml\n"}))
	})

	It("works while nobody answers the webhook, and lets nothing else in", func(ctx SpecContext) {
		unreachable(ctx)
		const blocked = "failed calling webhook"
		for name, manifest := range map[string]string{
			"another name":             "kind: Guardrail\nmetadata: {name: autohealer-freeze-2}\nspec: {frozen: true}",
			"limits beside it":         "kind: Guardrail\nmetadata: {name: autohealer-freeze}\nspec: {frozen: true, limits: {maxTaintedNodes: 100%}}",
			"a pause beside it":        "kind: Guardrail\nmetadata: {name: autohealer-freeze}\nspec: {frozen: true, paused: true}",
			"nothing frozen":           "kind: Guardrail\nmetadata: {name: autohealer-freeze}\nspec: {frozen: false}",
			"an empty spec":            "kind: Guardrail\nmetadata: {name: autohealer-freeze}\nspec: {}",
			"another kind of its name": "kind: ConditionSet\nmetadata: {name: autohealer-freeze}\nspec: {type: A, effect: NoSchedule, taintKey: example.com/a, conditions: {A: {status: true}}}",
		} {
			_, err := w.Apply(ctx, "apiVersion: autohealer.resourcestack.com/v1alpha1\n"+manifest)
			Expect(err).To(MatchError(ContainSubstring(blocked)), name)
		}
		Expect(frozen(ctx)).To(HaveField("Code", 0))
		for _, patch := range []string{`{"spec":{"frozen":false}}`, `{"spec":{"limits":{"maxTaintedNodes":"100%"}}}`} {
			_, err := w.Kubectl(ctx, "patch", "guardrail", "autohealer-freeze", "--type=merge", "-p", patch)
			Expect(err).To(MatchError(ContainSubstring(blocked)), patch)
		}
		Expect(plugin(ctx, "thaw")).To(HaveField("Code", 0))
	})

	It("stays under a GitOps tool that prunes what isn't in Git", func(ctx SpecContext) {
		key := w.Key("gitops")
		node := w.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: "gitops"})[0]
		dir := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(dir, "set.yaml"), []byte(fmt.Sprintf(`apiVersion: autohealer.resourcestack.com/v1alpha1
kind: ConditionSet
metadata: {name: gitops, labels: {app.kubernetes.io/instance: platform}}
spec: {type: E2E, effect: NoSchedule, taintKey: %s, for: 0s, recoverAfter: 0s, conditions: {GitOpsBroken: {status: true}}}
`, key)), 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, "rail.yaml"), []byte(`apiVersion: autohealer.resourcestack.com/v1alpha1
kind: Guardrail
metadata: {name: platform, labels: {app.kubernetes.io/instance: platform}}
spec: {limits: {maxTaintedNodes: 50%}}
`), 0o600)).To(Succeed())
		sync := func(g Gomega) {
			_, err := w.Kubectl(ctx, "apply", "-f", dir, "--prune", "-l", "app.kubernetes.io/instance=platform",
				"--prune-allowlist=autohealer.resourcestack.com/v1alpha1/Guardrail", "--prune-allowlist=autohealer.resourcestack.com/v1alpha1/ConditionSet")
			g.Expect(err).NotTo(HaveOccurred())
		}
		sync(Default)
		DeferCleanup(func(ctx context.Context) {
			w.Discard(ctx, &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: "gitops"}})
			_, err := w.Kubectl(ctx, "delete", "guardrail", "platform")
			Expect(err).NotTo(HaveOccurred())
		})
		Expect(frozen(ctx)).To(HaveField("Code", 0))

		By("pruning, which takes another one that carries the tool's label")
		labelled := &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "left-over", Labels: map[string]string{"app.kubernetes.io/instance": "platform"},
			Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}"}}}
		Expect(w.Client.Create(ctx, labelled)).To(Succeed())
		Eventually(func(g Gomega) {
			sync(g)
			g.Expect(w.Client.Get(ctx, client.ObjectKeyFromObject(labelled), labelled)).NotTo(Succeed(), "the tool should prune")
		}).Should(Succeed())
		w.Report(ctx, node, "GitOpsBroken", corev1.ConditionTrue)
		Consistently(func(g Gomega) {
			sync(g)
			effect, err := w.Effect(ctx, node, key)()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(effect).To(BeEmpty())
		}, "3s").Should(Succeed())
		Expect(plugin(ctx, "thaw").Code).To(Equal(0))
		Eventually(w.Effect(ctx, node, key)).Should(BeEquivalentTo(repel))
	})

	It("says what to do where it can't be done", func(ctx SpecContext) {
		_, err := w.Kubectl(ctx, "create", "serviceaccount", "-n", "default", "tenant")
		Expect(err).NotTo(HaveOccurred())
		tenant, err := w.ServiceAccountKubeconfig(ctx, "default", "tenant")
		Expect(err).NotTo(HaveOccurred())
		for verb, advice := range map[string]string{
			"freeze": `stop the manager instead, which stops undo, too:
  kubectl -n autohealer-system scale deployment autohealer-manager --replicas=0
`,
			"thaw": "\nIt takes the ClusterRole autohealer-guardrail-admin.\n",
		} {
			Expect(pluginAs(ctx, tenant, verb)).To(SatisfyAll(HaveField("Code", 2), HaveField("Out", BeEmpty()), HaveField("Err", And(
				ContainSubstring(`User "system:serviceaccount:default:tenant" cannot `), HaveSuffix(advice)))))
		}

		By("another Guardrail that freezes")
		other := &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "from-git"}, Spec: v1alpha1.GuardrailSpec{Frozen: true}}
		Expect(w.Client.Create(ctx, other)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(w.Client.Delete(ctx, other))).To(Succeed()) })
		Expect(frozen(ctx)).To(HaveField("Code", 0))
		Expect(plugin(ctx, "thaw")).To(SatisfyAll(HaveField("Code", 1), HaveField("Err",
			"Everything is frozen still, by Guardrail from-git: set its spec.frozen to false, or delete it, where it comes from.\n")))
		Expect(w.Client.Delete(ctx, other)).To(Succeed())

		By("no manager that could confirm")
		Expect(w.StopComponent(harness.Manager)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(w.StartManager(ctx)).To(Succeed()) })
		Expect(plugin(ctx, "freeze", "--timeout=1s")).To(SatisfyAll(HaveField("Code", 0), HaveField("Out",
			ContainSubstring("Frozen: no manager leads now, so nothing is done anyway; one that starts does nothing, either.\n"))))
	})
})

// unreachable sends the API server's calls of the webhook where nobody listens, until the spec ends.
func unreachable(ctx context.Context) {
	GinkgoHelper()
	was := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	Expect(w.Client.Get(ctx, client.ObjectKey{Name: "autohealer"}, was)).To(Succeed())
	call := func(ctx context.Context, url string) {
		GinkgoHelper()
		is := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: was.Name}}
		patch := fmt.Sprintf(`[{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": %q}]`, url)
		Expect(w.Client.Patch(ctx, is, client.RawPatch(types.JSONPatchType, []byte(patch)))).To(Succeed())
	}
	probe := func() string {
		err := w.Client.Create(ctx, &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, client.DryRunAll)
		if err == nil {
			return ""
		}
		return err.Error()
	}
	call(ctx, "https://"+cluster.Unserved()+"/validate")
	DeferCleanup(func(ctx context.Context) {
		call(ctx, *was.Webhooks[0].ClientConfig.URL)
		Eventually(func() error {
			return w.Client.Create(ctx, &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, client.DryRunAll)
		}).Should(Succeed(), "the webhook should answer again")
	})
	Eventually(probe).WithPolling(50 * time.Millisecond).Should(ContainSubstring("failed calling webhook"))
}
