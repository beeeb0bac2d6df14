package operations

import (
	"bufio"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

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

// fields are the lines of a table, by their second column.
func fields(out string) map[string][]string {
	lines := map[string][]string{}
	for line := range strings.Lines(out) {
		if cells := strings.Fields(line); len(cells) > 1 && strings.Contains(cells[0], "/") {
			lines[cells[0]] = cells[1:]
		}
	}
	return lines
}

var _ = Describe("kubectl autohealer status", Ordered, func() {
	BeforeAll(func(ctx SpecContext) { // a manager that holds the Lease
		Expect(w.StopComponent(harness.Manager)).To(Succeed())
		Expect(w.StartManager(ctx, "--leader-elect=true")).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(w.StopComponent(harness.Manager)).To(Succeed())
			Expect(w.StartManager(ctx)).To(Succeed())
		})
	})

	It("shows what each policy does, what is held back and why, and how much of the limits is used", func(ctx SpecContext) {
		key := w.Key("status")
		nodes := w.AddNodes(ctx, 2, cluster.NodeOptions{Prefix: "status"})
		w.Create(ctx, fixture.NewSet("kernel-deadlock", key, repel, "StatusBroken"))
		Eventually(func() said { return plugin(ctx, "status") }).Should(SatisfyAll(HaveField("Code", 0),
			HaveField("Out", MatchRegexp(`^Manager: \S+ leads, heard \d+s ago\nmaxTaintedNodes: 0 of 10 used \(10% of 102\)\nmaxEvictingNodes: 0 of 5 used \(5% of 102\)\n`))))

		By("a limit that holds back")
		tight := metav1.ObjectMeta{Name: "tight"}
		rail := &v1alpha1.Guardrail{ObjectMeta: tight}
		rail.Spec.Limits = &v1alpha1.GuardrailLimits{MaxTaintedNodes: ptr.To(intstr.FromInt32(1))}
		Expect(w.Client.Create(ctx, rail)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(w.Client.Delete(ctx, rail))).To(Succeed()) })
		for _, node := range nodes {
			w.Report(ctx, node, "StatusBroken", corev1.ConditionTrue)
		}
		var got said
		Eventually(func() []string {
			got = plugin(ctx, "status")
			return fields(got.Out)["conditionset/kernel-deadlock"]
		}).Should(Equal([]string{"True", "True", "Operative", "1", "1", "of", "102", "nodes", "tainted"}))
		Expect(got.Code).To(Equal(0), "a limit is no fault")
		Expect(got.Out).To(And(ContainSubstring("maxTaintedNodes: 1 of 1 used (1 of 102)\n"),
			ContainSubstring("\nconditionset/kernel-deadlock: 1 node held back: maxTaintedNodes 1 allows 1 of 102 nodes, and 1 is tainted.\n")))

		By("kubectl's output formats")
		Expect(plugin(ctx, "status", "-o", "name").Out).To(Equal("conditionset.autohealer.resourcestack.com/kernel-deadlock\n"))
		Expect(plugin(ctx, "status", "-o", `jsonpath={.policies[?(@.heldBack>0)].name}`).Out).To(Equal("kernel-deadlock"))
		Expect(plugin(ctx, "status", "-l", "team=shop", "-o", "name").Out).To(BeEmpty())
		Expect(plugin(ctx, "status", "-o", "yaml").Out).To(HavePrefix("apiVersion: cli.autohealer.resourcestack.com/v1alpha1\nkind: Status\n"))
		var object struct {
			Manager struct{ Leads bool }
			Limits  []struct{ Used, Allowed int }
		}
		Expect(json.Unmarshal([]byte(plugin(ctx, "status", "-o", "json").Out), &object)).To(Succeed())
		Expect(object.Manager.Leads).To(BeTrue())
		Expect(object.Limits[0].Used).To(Equal(1))
		Expect(plugin(ctx, "status", "-o", "xml")).To(SatisfyAll(HaveField("Code", 2), HaveField("Err", ContainSubstring("--output=xml: must be one of json, yaml, name, wide, "))))
	})

	It("says what needs somebody: a breaker, a freeze, a manager that is gone", func(ctx SpecContext) {
		key := w.Key("status")
		nodes := w.AddNodes(ctx, 3, cluster.NodeOptions{Prefix: "alarm", Labels: map[string]string{"alarm": "yes"}})
		set := fixture.NewSet("alarm", key, repel, "AlarmBroken")
		set.Spec.NodeSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"alarm": "yes"}}
		w.Create(ctx, set)
		watched := watchStatus(ctx)
		for _, node := range nodes {
			w.Report(ctx, node, "AlarmBroken", corev1.ConditionTrue)
		}
		Eventually(func() []string { return fields(plugin(ctx, "status").Out)["conditionset/alarm"] }).Should(ContainElement("Open"))
		Expect(plugin(ctx, "status")).To(SatisfyAll(HaveField("Code", 1), HaveField("Out", ContainSubstring("\nconditionset/alarm: Too many nodes matched at once at "))))
		Eventually(watched, "15s").Should(ContainSubstring("Open"), "-w shows it without being asked again")

		By("a reset, after a look")
		for how, suffix := range map[string]string{"client": " (dry run)", "server": " (server dry run)"} {
			Expect(plugin(ctx, "reset", "conditionset/alarm", "--dry-run="+how)).To(SatisfyAll(HaveField("Code", 0), HaveField("Out", ContainSubstring("ago is reset"+suffix+". 3 of 3 nodes match: "))))
		}
		Expect(plugin(ctx, "reset", "conditionset/alarm", "--dry-run").Out).NotTo(ContainSubstring("is not open"))
		Expect(plugin(ctx, "reset", "conditionset/alarm")).To(SatisfyAll(HaveField("Code", 0), HaveField("Out", And(
			HavePrefix("conditionset.autohealer.resourcestack.com/alarm: the breaker that opened "), ContainSubstring("ago is reset. 3 of 3 nodes match: "+nodes[0]+", ")))))
		Eventually(w.Effect(ctx, nodes[0], key)).Should(BeEquivalentTo(repel))
		Expect(fields(plugin(ctx, "status").Out)["conditionset/alarm"]).NotTo(ContainElement("Open"))
		Expect(plugin(ctx, "reset", "alarm")).To(Equal(said{0, "The breaker of conditionset/alarm is not open.\n", ""}))
		Expect(plugin(ctx, "reset", "nobody")).To(SatisfyAll(HaveField("Code", 2), HaveField("Err", ContainSubstring(`"nobody" not found`))))

		Expect(frozen(ctx)).To(HaveField("Code", 0))
		Expect(plugin(ctx, "status")).To(SatisfyAll(HaveField("Code", 1), HaveField("Out", HavePrefix("Frozen by Guardrail autohealer-freeze: nothing is done and nothing undone.\n"))))
		Expect(plugin(ctx, "thaw").Code).To(Equal(0))

		By("a manager that is gone")
		Expect(w.StopComponent(harness.Manager)).To(Succeed())
		Eventually(func() said { return plugin(ctx, "status") }).WithTimeout(harness.Within).WithPolling(time.Second).Should(SatisfyAll(
			HaveField("Code", 1), HaveField("Out", MatchRegexp(`^Manager: none leads, so nothing is done`))))
		Expect(w.StartManager(ctx, "--leader-elect=true")).To(Succeed())
		Eventually(func() string { return plugin(ctx, "status").Out }).Should(MatchRegexp(`^Manager: \S+ leads`))

		By("a user who may read nothing but policies")
		_, err := w.Kubectl(ctx, "create", "serviceaccount", "-n", "default", "reader")
		Expect(err).NotTo(HaveOccurred())
		_, err = w.Kubectl(ctx, "create", "clusterrolebinding", "reader", "--clusterrole=autohealer-viewer", "--serviceaccount=default:reader")
		Expect(err).NotTo(HaveOccurred())
		reader, err := w.ServiceAccountKubeconfig(ctx, "default", "reader")
		Expect(err).NotTo(HaveOccurred())
		Expect(pluginAs(ctx, reader, "status")).To(SatisfyAll(HaveField("Code", 1), HaveField("Out", And(
			ContainSubstring("Not shown: the manager's Deployment can't be read: "), Not(ContainSubstring("Lease")), ContainSubstring("conditionset/alarm"), Not(ContainSubstring("none leads"))))))
		Expect(pluginAs(ctx, reader, "version")).To(SatisfyAll(HaveField("Code", 0), HaveField("Out", MatchRegexp(`\nManager Version: [^ ]+\n`))))
	})
})

// watchStatus runs status -w until the spec ends, and gives all that it said.
func watchStatus(ctx context.Context) func() string {
	GinkgoHelper()
	watching, stop := context.WithCancel(ctx)
	command := exec.CommandContext(watching, filepath.Join(w.BinDir, "kubectl-autohealer"), "status", "-w", "--kubeconfig="+w.Kubeconfig)
	out, err := command.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(command.Start()).To(Succeed())
	lines := make(chan string, 10000)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	DeferCleanup(func() {
		stop()
		_ = command.Wait() // it was killed
	})
	var all strings.Builder
	return func() string {
		for {
			select {
			case line, more := <-lines:
				if !more {
					return all.String()
				}
				all.WriteString(line + "\n")
			default:
				return all.String()
			}
		}
	}
}
