//go:build linux

package pod

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/operations/world"
	"github.com/resourcestack/autohealer/e2e/oracle"
)

const (
	taintKey = "e2e.example.com/broken"
	broken   = corev1.NodeConditionType("Broken")
	// acting is within which a manager acts that has just come: the Lease of one that was killed has to end first.
	acting = time.Minute
)

var _ = Describe("The manager in a Pod", Ordered, func() {
	var (
		install *installation
		pod     *corev1.Pod
		witness *oracle.Oracle
		// record is that of the first sick node: as long as it is the same, nothing was undone and done again.
		record string
	)

	BeforeAll(func(ctx SpecContext) {
		install = newInstallation()
		began := time.Now()
		pod = install.apply(ctx, "v1")
		tell("the manager in a Pod is ready %.1f s after kubectl apply", time.Since(began).Seconds())
		var err error
		witness, err = oracle.Attach(ctx, c, oracle.Options{DoubtGrace: 25 * time.Second}) // a silent watch is believed for 20 s
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(witness.Stop)
	}, NodeTimeout(2*time.Minute))

	expectUntouched := func(ctx context.Context) {
		GinkgoHelper()
		node := getNode(ctx, ballast[0])
		Expect(fixture.EffectOn(node, taintKey)).To(Equal(corev1.TaintEffectNoSchedule))
		Expect(node.Annotations).To(HaveKeyWithValue(fixture.RecordAnnotation, record))
	}

	It("runs as config/default says", func() {
		status := pod.Status.ContainerStatuses[0]
		Expect(status.Ready).To(BeTrue())
		Expect(status.RestartCount).To(BeZero())
		Expect(pod.Status.HostIP).To(Equal(pod.Status.PodIP), "it has its node's network")
	})

	It("refuses a dangerous ConditionSet", func(ctx SpecContext) {
		const flooded = corev1.NodeConditionType("Flooded")
		for _, name := range ballast[50:70] {
			report(ctx, name, flooded, corev1.ConditionTrue)
		}
		Eventually(func() error {
			return api.Create(ctx, fixture.NewSet("flooded", "e2e.example.com/flooded", corev1.TaintEffectNoSchedule, flooded), client.DryRunAll)
		}).Should(MatchError(SatisfyAll(ContainSubstring("admission webhook"), ContainSubstring("conditionset/would-exceed-limit"))))
		for _, name := range ballast[50:70] {
			report(ctx, name, flooded, corev1.ConditionFalse)
		}
	})

	It("taints a sick node", func(ctx SpecContext) {
		set := fixture.NewSet("broken", taintKey, corev1.TaintEffectNoSchedule, broken)
		Expect(api.Create(ctx, set)).To(Succeed())
		Eventually(func() ([]metav1.Condition, error) {
			err := api.Get(ctx, client.ObjectKeyFromObject(set), set)
			return set.Status.Conditions, err
		}).WithTimeout(acting).Should(ContainElement(SatisfyAll(HaveField("Type", v1alpha1.ConditionReady), HaveField("Status", metav1.ConditionTrue))))
		report(ctx, ballast[0], broken, corev1.ConditionTrue)
		Eventually(effect(ctx, ballast[0])).Should(Equal(corev1.TaintEffectNoSchedule))
		record = getNode(ctx, ballast[0]).Annotations[fixture.RecordAnnotation]
	})

	It("is restarted when it is killed, and undoes nothing", func(ctx SpecContext) {
		began := time.Now()
		Expect(real.KillContainer(ctx, pod.Status.ContainerStatuses[0].ContainerID)).To(Succeed())
		Eventually(container).WithContext(ctx).WithTimeout(time.Minute).Should(SatisfyAll(HaveField("RestartCount", int32(1)), HaveField("Ready", true)))
		tell("killed, the manager in a Pod is ready again after %.1f s", time.Since(began).Seconds())
		expectUntouched(ctx)
		report(ctx, ballast[1], broken, corev1.ConditionTrue)
		Eventually(effect(ctx, ballast[1])).WithTimeout(acting).Should(Equal(corev1.TaintEffectNoSchedule), "the restarted manager should act")
		expectUntouched(ctx)
	})

	It("is upgraded, and undoes nothing", func(ctx SpecContext) {
		began := time.Now()
		before := pod.UID
		pod = install.apply(ctx, "v2")
		Expect(pod.UID).NotTo(Equal(before))
		tell("an upgrade of the manager in a Pod took %.1f s", time.Since(began).Seconds())
		expectUntouched(ctx)
		report(ctx, ballast[1], broken, corev1.ConditionFalse)
		Eventually(effect(ctx, ballast[1])).WithTimeout(acting).Should(BeZero(), "the new manager should undo what the old one did")
		expectUntouched(ctx)
	}, NodeTimeout(2*time.Minute))

	It("does nothing while it lacks memory, and goes on once it has it", func(ctx SpecContext) {
		const limits = `{"spec":{"template":{"spec":{"containers":[{"name":"manager","resources":{"requests":{"memory":"24Mi"},"limits":{"memory":"24Mi"}}}]}}}}`
		_, err := c.Kubectl(ctx, "patch", "deployment", "autohealer-manager", "-n", harness.Namespace, "-p", limits)
		Expect(err).NotTo(HaveOccurred())
		Eventually(container).WithContext(ctx).WithTimeout(time.Minute).Should(SatisfyAll(
			HaveField("LastTerminationState.Terminated", HaveField("Reason", "OOMKilled")), HaveField("RestartCount", BeNumerically(">=", 1)),
		))
		report(ctx, ballast[0], broken, corev1.ConditionFalse)
		report(ctx, ballast[1], broken, corev1.ConditionTrue)
		Eventually(container).WithContext(ctx).WithTimeout(time.Minute).Should(SatisfyAll(
			HaveField("Ready", false), HaveField("RestartCount", BeNumerically(">=", 2)),
		), "it should be killed again with this to do")
		expectUntouched(ctx)
		Expect(effect(ctx, ballast[1])()).To(BeZero())

		pod = install.apply(ctx, "v2")
		Eventually(effect(ctx, ballast[0])).WithTimeout(acting).Should(BeZero())
		Eventually(effect(ctx, ballast[1])).Should(Equal(corev1.TaintEffectNoSchedule))
	}, NodeTimeout(3*time.Minute))

	It("broke no invariant", func(ctx SpecContext) {
		Expect(witness.Check(ctx)).To(BeEmpty())
		witness.Stop() // it couldn't follow what is uninstalled
	})

	It("is uninstalled without a trace", func(ctx SpecContext) {
		uninstall := exec.CommandContext(ctx, filepath.Join(c.BinDir, "kubectl-autohealer"), "uninstall", "--yes", "--kubeconfig="+c.Kubeconfig)
		out, err := uninstall.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		Expect(string(out)).To(SatisfyAll(
			ContainSubstring("node/"+ballast[1]+": taint "+taintKey+":NoSchedule removed"), HaveSuffix("Nothing of Autohealer is left.\n"),
		))
		var traces []string
		Eventually(func() (err error) {
			traces, err = world.Traces(ctx, c.Config, api)
			return err
		}).Should(Succeed(), "for a while the API server names kinds whose CRD is gone")
		Expect(traces).To(BeEmpty())
		Expect(effect(ctx, ballast[1])()).To(BeZero())
	}, NodeTimeout(2*time.Minute))
})

// tell keeps a figure, and shows it among the specs as well.
func tell(format string, args ...any) {
	figures = append(figures, fmt.Sprintf(format, args...))
	AddReportEntry(figures[len(figures)-1])
}

// report writes a condition as node-problem-detector does.
func report(ctx context.Context, node string, condition corev1.NodeConditionType, status corev1.ConditionStatus) {
	GinkgoHelper()
	Expect(c.SetCondition(ctx, node, condition, status, cluster.ConditionOptions{Reason: "E2E"})).To(Succeed())
}

func getNode(ctx context.Context, name string) *corev1.Node {
	GinkgoHelper()
	var node corev1.Node
	Expect(api.Get(ctx, client.ObjectKey{Name: name}, &node)).To(Succeed())
	return &node
}

func effect(ctx context.Context, name string) func() (corev1.TaintEffect, error) {
	return func() (corev1.TaintEffect, error) {
		var node corev1.Node
		err := api.Get(ctx, client.ObjectKey{Name: name}, &node)
		return fixture.EffectOn(&node, taintKey), err
	}
}
