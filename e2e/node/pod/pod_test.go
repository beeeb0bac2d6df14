//go:build linux

package pod

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/operations/world"
	"github.com/resourcestack/autohealer/e2e/oracle"
)

const (
	taintKey = "e2e.example.com/broken"
	broken   = corev1.NodeConditionType("Broken")
	sick     = corev1.TaintEffectNoSchedule
	// acting is within which a manager is ready that has just come, and then within which it acts: the Lease of one that was killed has to
	// end first, and beside other suites it takes a minute to start.
	acting = 2 * time.Minute
)

var _ = Describe("The manager in a Pod", func() {
	Context("by kubectl apply -f install.yaml", Ordered, func() { life("kubectl apply -f install.yaml", byManifest, nil) })
	Context("by helm install", Ordered, func() { life("helm install", byHelm, nil) })
	Context("by kubectl apply -k", Ordered, func() { life("kubectl apply -k", byKustomize, hardTimes) })
})

// story is what the specs of one life of an installation share.
type story struct {
	way way
	pod *corev1.Pod
	// record is that of the first sick node: as long as it is the same, nothing was undone and done again.
	record string
}

// life has Autohealer installed, at work, and uninstalled without a trace; meanwhile are the specs between.
func life(how string, prepare func() way, meanwhile func(*story)) {
	var (
		s              story
		witness        *oracle.Oracle
		began          time.Time
		ready, refused time.Duration
	)

	BeforeAll(func(ctx SpecContext) {
		s.way = prepare()
		DeferCleanup(func(ctx SpecContext) {
			if CurrentSpecReport().Failed() { // else nothing is left
				Eventually(byPlugin).WithContext(ctx).WithTimeout(time.Minute).WithPolling(time.Second).Should(nothingLeft)
			}
		}, NodeTimeout(2*time.Minute))
		report(ctx, corev1.ConditionFalse, broken, ballast[:2]...)
		began = time.Now()
		s.way.install(ctx)
		s.rollOut(ctx, thisTag)
		ready = time.Since(began)
		var err error
		witness, err = oracle.Attach(ctx, c, oracle.Options{DoubtGrace: 25 * time.Second}) // a silent watch is believed for 20 s
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(witness.Stop)
	}, NodeTimeout(3*time.Minute))

	It("refuses a dangerous ConditionSet", func(ctx SpecContext) {
		Eventually(func() error {
			return api.Create(ctx, fixture.NewSet("flooded", "e2e.example.com/flooded", sick, flooded), client.DryRunAll)
		}).Should(MatchError(SatisfyAll(ContainSubstring("admission webhook"), ContainSubstring("conditionset/would-exceed-limit"))))
		refused = time.Since(began)
	})

	It("taints a sick node", func(ctx SpecContext) {
		set := fixture.NewSet("broken", taintKey, sick, broken)
		Expect(api.Create(ctx, set)).To(Succeed())
		report(ctx, corev1.ConditionTrue, broken, ballast[0])
		Eventually(effect(ctx, ballast[0])).WithTimeout(acting).Should(Equal(sick))
		suite.Measured("from nothing installed, by %s: the manager in a Pod is ready after %.1f s, refuses a dangerous policy after %.1f s, has tainted a sick node after %.1f s",
			how, ready.Seconds(), refused.Seconds(), time.Since(began).Seconds())
		s.record = getNode(ctx, ballast[0]).Annotations[fixture.RecordAnnotation]
		Eventually(func() ([]metav1.Condition, error) {
			err := api.Get(ctx, client.ObjectKeyFromObject(set), set)
			return set.Status.Conditions, err
		}).Should(ContainElement(SatisfyAll(HaveField("Type", v1alpha1.ConditionReady), HaveField("Status", metav1.ConditionTrue))))
		report(ctx, corev1.ConditionTrue, broken, ballast[1])
		Eventually(effect(ctx, ballast[1])).Should(Equal(sick))
	}, NodeTimeout(2*time.Minute))

	if meanwhile != nil {
		meanwhile(&s)
	}

	It("broke no invariant", func(ctx SpecContext) {
		Expect(witness.Check(ctx)).To(BeEmpty())
		witness.Stop() // it couldn't follow what is uninstalled
	})

	It("is uninstalled without a trace", func(ctx SpecContext) {
		s.way.uninstall(ctx)
		var traces []string
		Eventually(func() (err error) {
			traces, err = world.Traces(ctx, c.Config, api)
			return err
		}).Should(Succeed(), "for a while the API server names kinds whose CRD is gone")
		Expect(traces).To(BeEmpty())
		Expect(effect(ctx, ballast[1])()).To(BeZero())
	}, NodeTimeout(3*time.Minute))
}

// hardTimes are what becomes of a manager in a Pod, of the way that people change by hand.
func hardTimes(s *story) {
	It("runs as config/default says", func() {
		status := s.pod.Status.ContainerStatuses[0]
		Expect(status.Ready).To(BeTrue())
		Expect(status.RestartCount).To(BeZero())
		Expect(s.pod.Status.HostIP).To(Equal(s.pod.Status.PodIP), "it has its node's network")
	})

	It("is restarted when it is killed, and undoes nothing", func(ctx SpecContext) {
		began := time.Now()
		Expect(real.KillContainer(ctx, s.pod.Status.ContainerStatuses[0].ContainerID)).To(Succeed())
		Eventually(container).WithContext(ctx).WithTimeout(acting).Should(SatisfyAll(HaveField("RestartCount", int32(1)), HaveField("Ready", true)))
		suite.Measured("killed, the manager in a Pod is ready again after %.1f s", time.Since(began).Seconds())
		report(ctx, corev1.ConditionTrue, broken, ballast[2])
		Eventually(effect(ctx, ballast[2])).WithTimeout(acting).Should(Equal(sick), "the restarted manager should act")
		s.expectUntouched(ctx)
	}, NodeTimeout(2*acting))

	It("goes back to the version before and forth again, and undoes nothing", func(ctx SpecContext) {
		tree, program := world.Previous(ctx)
		Expect(real.Load(ctx, program, image+":previous")).To(Succeed())
		for _, to := range []struct {
			tree, tag string
			status    corev1.ConditionStatus
			effect    corev1.TaintEffect
		}{{tree, "previous", corev1.ConditionFalse, ""}, {root, thisTag, corev1.ConditionTrue, sick}} {
			began := time.Now()
			s.way.(*kustomized).apply(ctx, to.tree, to.tag) //nolint:forcetypeassert // these are its hard times
			s.rollOut(ctx, to.tag)
			suite.Measured("to replace the manager in a Pod by another version (%s) took %.1f s", to.tag, time.Since(began).Seconds())
			report(ctx, to.status, broken, ballast[2])
			Eventually(effect(ctx, ballast[2])).WithTimeout(acting).Should(Equal(to.effect), "either version should go on with what the other did")
			s.expectUntouched(ctx)
		}
	}, NodeTimeout(4*acting))

	It("does nothing while it lacks memory, and goes on once it has it", func(ctx SpecContext) {
		const limits = `{"spec":{"template":{"spec":{"containers":[{"name":"manager","resources":{"requests":{"memory":"24Mi"},"limits":{"memory":"24Mi"}}}]}}}}`
		kubectl(ctx, "patch", deployment, "-n", harness.Namespace, "-p", limits)
		Eventually(container).WithContext(ctx).WithTimeout(acting).Should(SatisfyAll(
			HaveField("LastTerminationState.Terminated", HaveField("Reason", "OOMKilled")), HaveField("RestartCount", BeNumerically(">=", 1)),
		))
		report(ctx, corev1.ConditionFalse, broken, ballast[0])
		report(ctx, corev1.ConditionTrue, broken, ballast[3])
		Eventually(container).WithContext(ctx).WithTimeout(acting).Should(SatisfyAll(
			HaveField("Ready", false), HaveField("RestartCount", BeNumerically(">=", 2)),
		), "it should be killed again with this to do")
		s.expectUntouched(ctx)
		Expect(effect(ctx, ballast[3])()).To(BeZero())

		s.way.install(ctx)
		s.rollOut(ctx, thisTag)
		Eventually(effect(ctx, ballast[0])).WithTimeout(acting).Should(BeZero())
		Eventually(effect(ctx, ballast[3])).Should(Equal(sick))
	}, NodeTimeout(4*acting))
}

// expectUntouched expects the first sick node to be as the first manager left it.
func (s *story) expectUntouched(ctx context.Context) {
	GinkgoHelper()
	node := getNode(ctx, ballast[0])
	Expect(fixture.EffectOn(node, taintKey)).To(Equal(sick))
	Expect(node.Annotations).To(HaveKeyWithValue(fixture.RecordAnnotation, s.record))
}
