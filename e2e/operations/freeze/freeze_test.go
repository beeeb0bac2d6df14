package freeze

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/operations/world"
)

const backend = world.Namespace + "/backend/80"

// gadget is what the target of health checks is like; nobody but the manager writes to it.
func gadget(ctx context.Context) (version string, err error) {
	target := &unstructured.Unstructured{}
	target.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gadget"})
	err = h.Client.Get(ctx, client.ObjectKey{Namespace: world.Namespace, Name: "gadget"}, target)
	return target.GetResourceVersion(), err
}

// state is all that policies of any kind do, as it is now.
func state(ctx context.Context, stormy []string, e *envoy.Envoy) []string {
	GinkgoHelper()
	done, err := h.Done(ctx)
	Expect(err).NotTo(HaveOccurred())
	version, err := gadget(ctx)
	Expect(err).NotTo(HaveOccurred())
	weeded, err := weededPods(ctx)
	Expect(err).NotTo(HaveOccurred())
	for _, name := range stormy {
		var node corev1.Node
		Expect(h.Client.Get(ctx, client.ObjectKey{Name: name}, &node)).To(Succeed())
		done = append(done, name+" "+string(fixture.EffectOn(&node, world.RepelKey)))
	}
	return append(done, "gadget at "+version, fmt.Sprint("weeded ", weeded), fmt.Sprint("pods ", len(pods(ctx, "api"))), fmt.Sprint("ejected after ", e.Threshold(backend), " errors"))
}

// detect edits the OutlierPolicy.
func detect(ctx context.Context, errors int) {
	GinkgoHelper()
	_, err := h.Kubectl(ctx, "-n", world.Namespace, "patch", "outlierpolicy", "backend", "--type=merge", "-p",
		fmt.Sprintf(`{"spec":{"outlierDetection":{"consecutiveServerErrors":%d}}}`, errors))
	Expect(err).NotTo(HaveOccurred())
}

// webhook sends the API server's calls of the webhook to an address, and says to which they went.
func webhook(ctx context.Context, url string) (was string) {
	GinkgoHelper()
	was, err := h.Kubectl(ctx, "get", "validatingwebhookconfiguration", "autohealer", "-o", "jsonpath={.webhooks[0].clientConfig.url}")
	Expect(err).NotTo(HaveOccurred())
	_, err = h.Kubectl(ctx, "patch", "validatingwebhookconfiguration", "autohealer", "--type=json", "-p",
		fmt.Sprintf(`[{"op":"replace","path":"/webhooks/0/clientConfig/url","value":%q}]`, url))
	Expect(err).NotTo(HaveOccurred())
	return was
}

// edit asks for another number of errors, in a dry run.
func edit(ctx context.Context) error {
	_, err := h.Kubectl(ctx, "-n", world.Namespace, "patch", "outlierpolicy", "backend", "--dry-run=server", "--type=merge", "-p", `{"spec":{"outlierDetection":{"consecutiveServerErrors":9}}}`)
	return err
}

var _ = Describe("kubectl autohealer freeze", Ordered, func() {
	var e *envoy.Envoy

	BeforeAll(func(ctx SpecContext) {
		apply(ctx, weeded)
		apply(ctx, inGit)
		Eventually(crashing).WithContext(ctx).Should(HaveLen(5))
		h.CreatePolicies(ctx)
		e = h.StartEnvoy(ctx, envoys)
		Eventually(e.Threshold).WithArguments(backend).Should(Equal(5))
	}, NodeTimeout(3*harness.Within))

	It("stops policies of all kinds in a storm, and thaw lets them go on within their limits", func(ctx SpecContext) {
		stormy, err := h.AddNodes(ctx, 4, cluster.NodeOptions{Prefix: "stormy"})
		Expect(err).NotTo(HaveOccurred())
		h.UnderOracle(ctx)
		repelled, evicted := h.Sick()
		h.Report(ctx, corev1.ConditionTrue)
		Eventually(h.Done).WithContext(ctx).Should(Equal([]string{
			repelled + " " + world.RepelKey + ":NoSchedule", evicted + " " + world.EvictKey + ":NoExecute", "kcm=2", "ca=1", "Dialled=True",
		}))
		stop := startStorm(ctx, stormy)
		for range 3 {
			was := state(ctx, stormy, e)
			Eventually(state).WithContext(ctx).WithArguments(stormy, e).ShouldNot(Equal(was), "the storm should blow")
		}

		began := time.Now()
		DeferCleanup(func(ctx context.Context) { Expect(plugin(ctx, "thaw").Code).To(BeZero()) })
		Expect(plugin(ctx, "freeze", "--reason=INC-4711")).To(SatisfyAll(HaveField("Code", 0), HaveField("Out", ContainSubstring("The manager confirms, after "))))
		Expect(time.Since(began)).To(BeNumerically("<", 5*time.Second))
		Eventually(time.Now).Should(BeTemporally(">", began.Add(5*time.Second)), "a write that was on its way may arrive")
		was := state(ctx, stormy, e)

		By("giving each kind something to do, and something to take back")
		h.Report(ctx, corev1.ConditionFalse)
		h.External.BreakNew(faultproxy.Reset)
		h.External.BreakOpen(faultproxy.Reset)
		h.Dial(ctx, "Down")
		detect(ctx, 7)
		Eventually(plugin).WithContext(ctx).WithArguments("explain", "-n", world.Namespace, "service/backend").Should(HaveField("Out", ContainSubstring(
			"\n    Not what Envoys have everywhere: Guardrail autohealer-freeze freezes everything, undo included: Envoys keep 1 of 1 clusters as they were.\n")))
		recoverService(ctx)
		Eventually(h.Condition).WithContext(ctx).WithArguments("ExternalHealthy").Should(HaveField("Status", BeEquivalentTo("False")), "probing goes on")
		Consistently(state).WithContext(ctx).WithArguments(stormy, e).WithTimeout(10 * time.Second).WithPolling(200 * time.Millisecond).Should(Equal(was))

		By("going on after it")
		stop()
		for _, name := range stormy {
			Expect(h.SetCondition(ctx, name, "Broken", corev1.ConditionFalse, cluster.ConditionOptions{})).To(Succeed())
		}
		Expect(plugin(ctx, "thaw").Code).To(BeZero())
		Eventually(h.Done).WithContext(ctx).Should(Equal([]string{"kcm=0", "ca=0", "Dialled=False"}))
		Eventually(e.Threshold).WithArguments(backend).Should(Equal(7))
		Eventually(weededPods).WithContext(ctx).Should(BeEquivalentTo(2), "and no more in this minute")
		Consistently(weededPods).WithContext(ctx).WithTimeout(3 * time.Second).Should(BeEquivalentTo(2))
		Expect(plugin(ctx, "explain", "-n", "shop", "deployment/api").Out).To(MatchRegexp(
			`\n  Done: pod/api-\S+ was deleted at \S+ \(\S+ ago\), when Service etcd had recovered, for WeederConfig etcd\n`))
	}, NodeTimeout(10*harness.Within))

	// What the last spec left: the dependents are scaled down, and crash-looping pods wait for their minute.
	It("keeps what was done though its reason ends, while nobody answers the webhook, and thaw takes it back", func(ctx SpecContext) {
		h.UnderOracle(ctx)
		repelled, falling := h.Nodes[2], h.Nodes[3]
		report := func(node string, status corev1.ConditionStatus) {
			GinkgoHelper()
			Expect(h.SetCondition(ctx, node, "Broken", status, cluster.ConditionOptions{})).To(Succeed())
		}
		report(repelled, corev1.ConditionTrue)
		Eventually(h.Done).WithContext(ctx).Should(Equal([]string{repelled + " " + world.RepelKey + ":NoSchedule", "kcm=0", "ca=0", "Dialled=False"}))
		was := webhook(ctx, "https://"+cluster.Unserved()+"/validate")
		DeferCleanup(func(ctx context.Context) { webhook(ctx, was) })
		Eventually(edit).WithContext(ctx).Should(MatchError(ContainSubstring("failed calling webhook")))
		DeferCleanup(func(ctx context.Context) { Expect(plugin(ctx, "thaw").Code).To(BeZero()) })
		Expect(plugin(ctx, "freeze")).To(SatisfyAll(HaveField("Code", 0), HaveField("Out", ContainSubstring("The manager confirms, after "))))
		frozen := state(ctx, []string{}, e)

		By("ending the reason of all that was done, and giving reasons for more")
		report(repelled, corev1.ConditionFalse)
		report(falling, corev1.ConditionTrue)
		h.External.BreakNew(faultproxy.None)
		h.Dial(ctx, "Up")
		_, err := h.Kubectl(ctx, "-n", world.Namespace, "delete", "outlierpolicy", "backend")
		Expect(err).NotTo(HaveOccurred())
		// A dependent gets its replicas back when both sides have been well for a minute, which a probe that comes late on a slow
		// machine begins anew; in a minute two more pods could be deleted, too.
		Eventually(func() (time.Duration, error) {
			if now := state(ctx, []string{}, e); !slices.Equal(now, frozen) {
				return 0, StopTrying(fmt.Sprintf("under a freeze %q became %q", frozen, now))
			}
			well := time.Hour
			for _, side := range []string{"InternalHealthy", "ExternalHealthy"} {
				c, err := h.Condition(ctx, side)
				if err != nil || c.Status != "True" {
					return 0, err
				}
				well = min(well, time.Since(c.LastTransitionTime.Time))
			}
			return well, nil
		}).WithContext(ctx).WithTimeout(6*harness.Within).WithPolling(500*time.Millisecond).Should(BeNumerically(">", 80*time.Second), "probing goes on")

		By("going on after it")
		Expect(plugin(ctx, "thaw").Code).To(BeZero())
		Eventually(weededPods).WithContext(ctx).WithTimeout(4*harness.Within).Should(BeEquivalentTo(4), "two more, and the last in the next minute")
		Eventually(h.Done).WithContext(ctx).WithTimeout(4 * harness.Within).Should(Equal([]string{falling + " " + world.RepelKey + ":NoSchedule", "kcm=2", "ca=1", "Dialled=True"}))
		Eventually(e.Threshold).WithArguments(backend).ShouldNot(Equal(7))
	}, NodeTimeout(15*harness.Within))
})
