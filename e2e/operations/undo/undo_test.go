package undo

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// unhold takes the holds off.
func unhold(ctx context.Context) {
	GinkgoHelper()
	const hold = "autohealer.resourcestack.com/hold-until-"
	repelled, evicted := h.Sick()
	for _, args := range [][]string{{"node", repelled}, {"node", evicted}, {"-n", namespace, "deployment", "kcm"}, {"-n", namespace, "statefulset", "ca"}, {"-n", namespace, "gadget", "gadget"}} {
		_, err := h.Kubectl(ctx, append([]string{"annotate"}, append(args, hold)...)...)
		Expect(err).NotTo(HaveOccurred())
	}
}

var _ = Describe("kubectl autohealer undo", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		h.Break(ctx)
	})

	It("is what explain tells of a Deployment that is scaled down", func(ctx SpecContext) {
		Eventually(func() said { return plugin(ctx, h.Kubeconfig, "explain", "-n", namespace, "deployment/kcm") }).Should(SatisfyAll(HaveField("Code", 0), HaveField("Out", And(
			MatchRegexp(`^deployment/kcm in namespace shoot
  ProbeConfig main: scaled down from 2 replicas since \S+ \(\S+\); it gets them back a minute after the probe from outside succeeds again
    InternalHealthy is True since \S+ \(\S+\)
    ExternalHealthy is False since \S+ \(\S+\): `), ContainSubstring("The manager says: ")))))
	})

	It("is what explain tells of a StatefulSet that is scaled down, and of a target whose condition a check turned", func(ctx SpecContext) {
		Expect(plugin(ctx, h.Kubeconfig, "explain", "-n", namespace, "statefulset.apps/ca", "gadget/gadget")).To(SatisfyAll(HaveField("Code", 0), HaveField("Out", And(
			MatchRegexp(`^statefulset/ca in namespace shoot
  ProbeConfig main: scaled down from 1 replica since \S+ \(\S+\); it gets them back a minute after the probe from outside succeeds again
`), MatchRegexp(`\ngadget/gadget in namespace shoot
  HealthCheckRegistration dialling:
    Dialled: False since \S+, and stays so
      check dial of ConfigMap shoot/dial: False: `)))))
	})

	It("--all restores everything with the manager stopped, and --hold is honoured when it comes back", func(ctx SpecContext) {
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		repelled, evicted := h.Sick()

		By("a look first")
		got := plugin(ctx, operator, "undo", "--all", "--dry-run")
		Expect(got).To(SatisfyAll(HaveField("Code", 0), HaveField("Err", BeEmpty()), HaveField("Out", And(
			ContainSubstring("node/"+repelled+" (dry run)\n  taint "+repelKey+":NoSchedule removed, which ConditionSet repelling set "),
			ContainSubstring("deployment/kcm in namespace shoot (dry run)\n  scaled from 0 to 2 replicas, which ProbeConfig shoot/main took "),
			ContainSubstring("Done again soon: by ProbeConfig shoot/main, while its probe from outside fails. Keep it off with --hold=2h")))))
		got = plugin(ctx, operator, "undo", "--all", "--dry-run=server", "--hold=1h")
		Expect(got).To(SatisfyAll(HaveField("Code", 0), HaveField("Err", BeEmpty()), HaveField("Out", And(
			ContainSubstring("node/"+repelled+" (server dry run)\n  taint "+repelKey+":NoSchedule removed, which ConditionSet repelling set "),
			ContainSubstring("deployment/kcm in namespace shoot (server dry run)\n  scaled from 0 to 2 replicas, which ProbeConfig shoot/main took "),
			ContainSubstring("gadget/gadget in namespace shoot (server dry run)\n  condition Dialled removed\n  held: ")))))
		Expect(h.Done(ctx)).To(Equal(h.Everything()))

		got = plugin(ctx, operator, "undo", "--all", "--hold=1h", "--reason=INC-4711")
		Expect(got).To(SatisfyAll(HaveField("Code", 0), HaveField("Err", BeEmpty()), HaveField("Out", And(
			MatchRegexp(`(?s)node/%s\n  taint %s:NoExecute removed, which ConditionSet evicting set \S+\n  held: nothing new is done to it until \S+\n  Done again after \S+: by ConditionSet evicting, which matches it\n`, evicted, evictKey),
			MatchRegexp(`(?s)gadget/gadget in namespace shoot\n  condition Dialled removed\n  held: nothing new is done to it until \S+\n`),
			MatchRegexp(`(?s)statefulset/ca in namespace shoot\n  scaled from 0 to 1 replica, which ProbeConfig shoot/main took \S+\n  held: `)))))
		Expect(h.Done(ctx)).To(Equal(h.Nothing()))
		left := ConsistOf(ContainSubstring("Node/" + evicted)) // the time of its eviction, by which the next is paced
		Eventually(again).WithContext(ctx).WithArguments(operator).Should(left)
		Expect(plugin(ctx, operator, "undo", "--all").Out).To(HavePrefix("node/"+evicted+"\n  nothing is to be undone\n"), "nothing else has a record")

		By("a manager that comes back")
		Expect(h.StartComponent(ctx, harness.Manager)).To(Succeed())
		Eventually(func() (string, error) {
			return h.Kubectl(ctx, "get", "conditionsets", "-o", "jsonpath={.items[*].status.nodes.heldBack}")
		}).Should(Equal("1 1"))
		Eventually(h.Condition).WithContext(ctx).WithArguments("Ready").Should(HaveField("Message", ContainSubstring("hold-until")))
		Consistently(h.Done, "3s").WithContext(ctx).Should(Equal(h.Nothing()))

		By("the end of the hold")
		unhold(ctx)
		Eventually(h.Done).WithContext(ctx).WithTimeout(2 * harness.Within).Should(ContainElements("kcm=0", "ca=0", repelled+" "+repelKey+":NoSchedule", "Dialled=False"))
	})

	It("names who does it again, goes on after one failure, and says what rights it lacks", func(ctx SpecContext) {
		repelled, _ := h.Sick()
		got := plugin(ctx, operator, "undo", "node/none", "no/"+repelled)
		Expect(got).To(SatisfyAll(HaveField("Code", 1), HaveField("Err", Equal("error: node/none: nodes \"none\" not found\n")),
			HaveField("Out", ContainSubstring("Done again soon: by ConditionSet repelling, which matches it."))))
		Eventually(h.Done).WithContext(ctx).Should(ContainElement(repelled+" "+repelKey+":NoSchedule"), "it was done again")

		nobody := h.Account(ctx, "reader", "autohealer-viewer", "system:node-reader", "view")
		got = plugin(ctx, nobody, "undo", "-n", namespace, "deploy/kcm")
		Expect(got).To(SatisfyAll(HaveField("Code", 1), HaveField("Err", And(ContainSubstring("is forbidden: "),
			HaveSuffix("\nNodes take the ClusterRole autohealer-operator, workloads take autohealer-workload-operator, EnvoyPatchPolicies take autohealer-envoy-patches.\n")))))
		Expect(plugin(ctx, operator, "undo", "node/"+repelled, "--all")).To(HaveField("Code", 2))
		Expect(plugin(ctx, operator, "undo")).To(HaveField("Code", 2))
		Expect(plugin(ctx, operator, "undo", "--all", "--hold=1000h")).To(SatisfyAll(HaveField("Code", 2), HaveField("Err", ContainSubstring("--hold=1000h0m0s: must be between 0s and 168h0m0s"))))
	})

	It("is not done again under a freeze", func(ctx SpecContext) {
		Expect(plugin(ctx, h.Kubeconfig, "freeze")).To(HaveField("Code", 0))
		DeferCleanup(func(ctx context.Context) { Expect(plugin(ctx, h.Kubeconfig, "thaw")).To(HaveField("Code", 0)) })
		Expect(plugin(ctx, operator, "undo", "--all")).To(SatisfyAll(HaveField("Code", 0),
			HaveField("Out", ContainSubstring("Done again when that ends: by ConditionSet repelling, which matches it; now Guardrail autohealer-freeze freezes everything"))))
		Consistently(h.Done, "3s").WithContext(ctx).Should(Equal(h.Nothing()))
	})

	It("--all restores everything when Autohealer's kinds are gone", func(ctx SpecContext) {
		Eventually(h.Done).WithContext(ctx).WithTimeout(2 * harness.Within).Should(ContainElements("kcm=0", "ca=0", "Dialled=False"))
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		_, err := h.Kubectl(ctx, "delete", "validatingwebhookconfiguration", "autohealer")
		Expect(err).NotTo(HaveOccurred())
		_, err = h.Kubectl(ctx, "delete", "crd", "-l", "app.kubernetes.io/name=autohealer", "--wait=false")
		Expect(err).NotTo(HaveOccurred())
		for _, args := range [][]string{{"conditionset", "repelling"}, {"conditionset", "evicting"}, {"healthcheckregistration", "dialling"}, {"-n", namespace, "probeconfig", "main"}} {
			_, err := h.Kubectl(ctx, append(append([]string{"patch"}, args...), "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)...)
			Expect(err).NotTo(HaveOccurred())
		}
		_, err = h.Kubectl(ctx, "wait", "--for=delete", "crd", "-l", "app.kubernetes.io/name=autohealer", "--timeout=30s")
		Expect(err).NotTo(HaveOccurred())
		Expect(h.Done(ctx)).To(ContainElements("kcm=0", "ca=0", "Dialled=False"), "nobody undid it")

		By("an account that may not look at every kind that may have been checked: nobody knows any more which were")
		Expect(plugin(ctx, operator, "undo", "--all")).To(SatisfyAll(HaveField("Code", 1), HaveField("Err", And(
			ContainSubstring("look at workers: "), HaveSuffix("There may be more to undo.\n"))), HaveField("Out", Not(ContainSubstring("Done again")))))
		Expect(h.Done(ctx)).To(Equal(h.Nothing()))
		Eventually(again).WithContext(ctx).WithArguments(h.Kubeconfig).Should(BeEmpty())
		Expect(plugin(ctx, h.Kubeconfig, "undo", "--all")).To(Equal(said{Code: 0, Out: "Nothing is to be undone: no object has a record.\n"}))
	})
})
