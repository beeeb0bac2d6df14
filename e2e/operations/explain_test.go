package operations

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("kubectl autohealer explain", func() {
	It("says of each node what the manager did, or what holds it back, and what comes next", func(ctx SpecContext) {
		key, later := w.Key("explain"), w.Key("explain")
		nodes := w.AddNodes(ctx, 4, cluster.NodeOptions{Prefix: "explain"})
		rail := &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "explain"}}
		rail.Spec.Limits = &v1alpha1.GuardrailLimits{MaxTaintedNodes: ptr.To(intstr.FromInt32(2))}
		Expect(w.Client.Create(ctx, rail)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(w.Client.Delete(ctx, rail))).To(Succeed()) })
		w.Create(ctx, fixture.NewSet("explained", key, repel, "ExplainBroken"))
		patient := fixture.NewSet("patient", later, repel, "ExplainWorn")
		patient.Spec.For = "1h"
		w.Create(ctx, patient)
		Eventually(func() string { return plugin(ctx, "status").Out }).Should(ContainSubstring("maxTaintedNodes: 0 of 2 used"))
		for _, node := range nodes {
			w.Report(ctx, node, "ExplainBroken", corev1.ConditionTrue)
		}
		w.Report(ctx, nodes[0], "ExplainWorn", corev1.ConditionTrue)
		Eventually(w.Status(ctx, "explained")).Should(HaveField("Nodes", HaveValue(SatisfyAll(HaveField("Tainted", BeEquivalentTo(2)), HaveField("HeldBack", BeEquivalentTo(2))))))

		tainted := 0
		for _, node := range nodes {
			got := plugin(ctx, "explain", "node/"+node)
			Expect(got).To(SatisfyAll(HaveField("Code", 0), HaveField("Out", Not(ContainSubstring("Now: "))), HaveField("Out", ContainSubstring("ExplainBroken is True since "))))
			if fixture.EffectOn(w.Node(ctx, node), key) == repel {
				tainted++
				Expect(got.Out).To(And(ContainSubstring("ConditionSet explained: taint "+key+":NoSchedule since "), Not(ContainSubstring("Held back: "))))
			} else {
				Expect(got.Out).To(MatchRegexp(`Held back: maxTaintedNodes 2 allows 2 of 104 nodes, and 2 are tainted \(LimitReached\); in line since `))
			}
		}
		Expect(tainted).To(Equal(2))
		Expect(plugin(ctx, "explain", "node", nodes[0]).Out).To(MatchRegexp(`ConditionSet patient: matches since [^\n]*\n +ExplainWorn is True since [^\n]*\n +It acts at \S+ \(in 5[0-9]m\), when that has lasted for 60m`))

		By("a freeze, while a node recovers")
		Expect(frozen(ctx)).To(HaveField("Code", 0))
		sick := nodes[0]
		for _, node := range nodes {
			if fixture.EffectOn(w.Node(ctx, node), key) == repel {
				sick = node
			}
		}
		w.Report(ctx, sick, "ExplainBroken", corev1.ConditionFalse)
		Expect(plugin(ctx, "explain", "node/"+sick).Out).To(And(HavePrefix("Everything is frozen by Guardrail autohealer-freeze: "),
			ContainSubstring("Not now, since everything is frozen: remove "+key+":NoSchedule (ConditionsRecovered)")))
		Expect(plugin(ctx, "thaw").Code).To(Equal(0))
		Eventually(w.Effect(ctx, sick, key)).Should(BeEmpty())

		By("the same from the audit trail, by the manager's own log")
		acts := func() (string, error) {
			out, err := exec.CommandContext(ctx, filepath.Join(w.BinDir, "kubectl-autohealer"), "history", "--since=1h", "-f", w.Log(harness.Manager), "node/"+sick).CombinedOutput()
			return string(out), err
		}
		Eventually(acts).Should(MatchRegexp(`(?s) Taint +node/%s +conditionset/explained +ConditionsMatched +%s:NoSchedule\n.* Untaint +node/%[1]s +conditionset/explained +ConditionsRecovered +%[2]s:NoSchedule removed\n`, sick, key))
	})

	It("says of a node that it has nothing to do with it, and of one with somebody else's taint that it keeps off", func(ctx SpecContext) {
		key := w.Key("foreign")
		labelled := map[string]string{"foreign": "yes"}
		others := w.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: "untouched"})
		nodes := w.AddNodes(ctx, 2, cluster.NodeOptions{Prefix: "foreign", Labels: labelled})
		_, err := w.Kubectl(ctx, "taint", "node", nodes[0], key+"=mine:NoSchedule")
		Expect(err).NotTo(HaveOccurred())
		set := fixture.NewSet("keeps-off", key, repel, "ForeignBroken")
		set.Spec.NodeSelector = &v1alpha1.LabelSelector{MatchLabels: labelled}
		w.Create(ctx, set)
		w.Report(ctx, nodes[0], "ForeignBroken", corev1.ConditionTrue)
		w.Report(ctx, nodes[1], "ForeignBroken", corev1.ConditionFalse)
		Eventually(w.Status(ctx, "keeps-off")).Should(HaveField("Nodes", HaveValue(HaveField("HeldBack", BeEquivalentTo(1)))))

		Expect(plugin(ctx, "explain", "node/"+nodes[0]).Out).To(MatchRegexp(
			`ConditionSet keeps-off: matches since [^\n]*\n +ForeignBroken is True since [^\n]*\n +Held back: [^\n]*\(ForeignTaint\)`))
		Expect(plugin(ctx, "explain", "node/"+nodes[1]).Out).To(MatchRegexp(
			`ConditionSet keeps-off: does not match\n +ForeignBroken is False since [^\n]*; the set asks for True\n`))
		Expect(plugin(ctx, "explain", "node/"+others[0])).To(Equal(said{0, "node/" + others[0] + "\n  No ConditionSet is about this node, and Autohealer did nothing to it.\n", ""}))
		Expect(w.Node(ctx, nodes[0]).Spec.Taints).To(ContainElement(corev1.Taint{Key: key, Value: "mine", Effect: repel}))
	})

	It("completes kinds, and names that the cluster has", func(ctx SpecContext) {
		complete := func(args ...string) []string {
			command := exec.CommandContext(ctx, filepath.Join(w.BinDir, "kubectl-autohealer"), append([]string{"__complete"}, args...)...)
			command.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig) // a flag would be taken for the word to complete
			out, err := command.Output()
			Expect(err).NotTo(HaveOccurred())
			return strings.Split(strings.TrimSpace(string(out)), "\n")
		}
		node := w.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: "completed"})[0]
		Expect(complete("explain", "")).To(ContainElements("node/", "service/"))
		Expect(complete("explain", "no/compl")).To(ContainElement("no/" + node))
		for _, verb := range []string{"explain", "undo"} {
			_, err := w.Kubectl(ctx, "-n", "default", "create", "deployment", "completed-"+verb, "--image=none", "--replicas=0")
			Expect(err).NotTo(HaveOccurred())
			Expect(complete(verb, "-n", "default", "deployment/compl")).To(ContainElement("deployment/completed-" + verb))
			_, err = w.Kubectl(ctx, "-n", "default", "delete", "deployment", "completed-"+verb)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(complete("status", "-n", "kube-")).To(ContainElements("kube-system", "kube-node-lease"))
		Expect(complete("check", "--autohealer-namespace", "")).To(ContainElement("autohealer-system"))
		Expect(complete("history", "no/compl")).To(ContainElement("no/" + node))
		Expect(complete("status", "-o", "")).To(ContainElements("wide", "json", "yaml", "name"))
	})
})
