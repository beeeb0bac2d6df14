package undo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// sick are a node that is tainted, and one that is evicted.
func sick() (repelled, evicted string) { return nodes[0], nodes[1] }

// done is all that was done, as node key:effect and workload=replicas.
func done(ctx context.Context) ([]string, error) {
	var found []string
	for _, name := range nodes {
		var node corev1.Node
		if err := h.Client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return nil, err
		}
		for _, key := range []string{repelKey, evictKey} {
			if effect := fixture.EffectOn(&node, key); effect != "" {
				found = append(found, fmt.Sprintf("%s %s:%s", name, key, effect))
			}
		}
	}
	var deployment appsv1.Deployment
	var state appsv1.StatefulSet
	if err := h.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "kcm"}, &deployment); err != nil {
		return nil, err
	}
	if err := h.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "ca"}, &state); err != nil {
		return nil, err
	}
	return append(found, fmt.Sprintf("kcm=%d", *deployment.Spec.Replicas), fmt.Sprintf("ca=%d", *state.Spec.Replicas)), nil
}

// everything is what policies do to what is sick; nothing is what there is without them.
func everything() []string {
	repelled, evicted := sick()
	return []string{repelled + " " + repelKey + ":NoSchedule", evicted + " " + evictKey + ":NoExecute", "kcm=0", "ca=0"}
}

var nothing = []string{"kcm=2", "ca=1"}

// records are the objects with an annotation that tells what was done.
func records(ctx context.Context) ([]string, error) {
	var found []string
	for _, kind := range []string{"nodes", "deployments", "statefulsets", "replicasets"} {
		out, err := h.Kubectl(ctx, "get", kind, "-A", "-o", `go-template={{range .items}}{{.kind}}/{{.metadata.name}}{{range $key, $_ := .metadata.annotations}} {{$key}}{{end}}{{"\n"}}{{end}}`)
		if err != nil {
			return nil, err
		}
		found = append(found, strings.Split(strings.TrimSpace(out), "\n")...)
	}
	return slices.DeleteFunc(found, func(line string) bool {
		return !strings.Contains(line, "owned-taints") && !strings.Contains(line, "original-replicas")
	}), nil
}

// again undoes all, and gives the records that are left: ReplicaSets get copies of their Deployment's annotations, at any time.
func again(ctx context.Context) ([]string, error) {
	GinkgoHelper()
	Expect(plugin(ctx, operator, "undo", "--all").Code).To(BeZero())
	return records(ctx)
}

// report makes nodes sick or well.
func report(ctx context.Context, status corev1.ConditionStatus) {
	GinkgoHelper()
	repelled, evicted := sick()
	Expect(h.SetCondition(ctx, repelled, "Broken", status, cluster.ConditionOptions{})).To(Succeed())
	Expect(h.SetCondition(ctx, evicted, "Dead", status, cluster.ConditionOptions{})).To(Succeed())
}

// unhold takes the holds off.
func unhold(ctx context.Context) {
	GinkgoHelper()
	const hold = "autohealer.resourcestack.com/hold-until-"
	repelled, evicted := sick()
	for _, args := range [][]string{{"node", repelled}, {"node", evicted}, {"-n", namespace, "deployment", "kcm"}, {"-n", namespace, "statefulset", "ca"}} {
		_, err := h.Kubectl(ctx, append([]string{"annotate"}, append(args, hold)...)...)
		Expect(err).NotTo(HaveOccurred())
	}
}

var _ = Describe("kubectl autohealer undo", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		report(ctx, corev1.ConditionTrue)
		external.BreakNew(faultproxy.Reset)
		external.BreakOpen(faultproxy.Reset)
		Eventually(done).WithContext(ctx).WithTimeout(2 * harness.Within).Should(Equal(everything()))
	})

	It("is what explain tells of a Deployment that is scaled down", func(ctx SpecContext) {
		Eventually(func() said { return plugin(ctx, h.Kubeconfig, "explain", "-n", namespace, "deployment/kcm") }).Should(SatisfyAll(HaveField("Code", 0), HaveField("Out", And(
			MatchRegexp(`^deployment/kcm in namespace shoot
  ProbeConfig main: scaled down from 2 replicas since \S+ \(\S+\); it gets them back a minute after the probe from outside succeeds again
    InternalHealthy is True since \S+ \(\S+\)
    ExternalHealthy is False since \S+ \(\S+\): `), ContainSubstring("The manager says: ")))))
	})

	It("--all restores everything with the manager stopped, and --hold is honoured when it comes back", func(ctx SpecContext) {
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		repelled, evicted := sick()

		By("a look first")
		got := plugin(ctx, operator, "undo", "--all", "--dry-run")
		Expect(got).To(SatisfyAll(HaveField("Code", 1), HaveField("Err", BeEmpty()), HaveField("Out", And(
			ContainSubstring("node/"+repelled+" (dry run)\n  taint "+repelKey+":NoSchedule removed, which ConditionSet repelling set "),
			ContainSubstring("deployment/kcm in namespace shoot (dry run)\n  scaled from 0 to 2 replicas, which ProbeConfig shoot/main took "),
			ContainSubstring("Done again soon: by ProbeConfig shoot/main, while its probe from outside fails. Keep it off with --hold=2h")))))
		Expect(done(ctx)).To(Equal(everything()))

		got = plugin(ctx, operator, "undo", "--all", "--hold=1h", "--reason=INC-4711")
		Expect(got).To(SatisfyAll(HaveField("Code", 0), HaveField("Err", BeEmpty()), HaveField("Out", And(
			MatchRegexp(`(?s)node/%s\n  taint %s:NoExecute removed, which ConditionSet evicting set \S+\n  held: nothing new is done to it until \S+\n  Done again after \S+: by ConditionSet evicting, which matches it\n`, evicted, evictKey),
			MatchRegexp(`(?s)statefulset/ca in namespace shoot\n  scaled from 0 to 1 replica, which ProbeConfig shoot/main took \S+\n  held: `)))))
		Expect(done(ctx)).To(Equal(nothing))
		left := ConsistOf(ContainSubstring("Node/" + evicted)) // the time of its eviction, by which the next is paced
		Eventually(again).WithContext(ctx).Should(left)
		Expect(plugin(ctx, operator, "undo", "--all").Out).To(HavePrefix("node/"+evicted+"\n  nothing is to be undone\n"), "nothing else has a record")

		By("a manager that comes back")
		Expect(h.StartComponent(ctx, harness.Manager)).To(Succeed())
		Eventually(func() (string, error) {
			return h.Kubectl(ctx, "get", "conditionsets", "-o", "jsonpath={.items[*].status.nodes.heldBack}")
		}).Should(Equal("1 1"))
		Eventually(condition).WithContext(ctx).WithArguments("Ready").Should(HaveField("Message", ContainSubstring("hold-until")))
		Consistently(done, "3s").WithContext(ctx).Should(Equal(nothing))

		By("the end of the hold")
		unhold(ctx)
		Eventually(done).WithContext(ctx).WithTimeout(2 * harness.Within).Should(ContainElements("kcm=0", "ca=0", repelled+" "+repelKey+":NoSchedule"))
	})

	It("names who does it again, goes on after one failure, and says what rights it lacks", func(ctx SpecContext) {
		repelled, _ := sick()
		got := plugin(ctx, operator, "undo", "node/none", "no/"+repelled)
		Expect(got).To(SatisfyAll(HaveField("Code", 1), HaveField("Err", Equal("error: node/none: nodes \"none\" not found\n")),
			HaveField("Out", ContainSubstring("Done again soon: by ConditionSet repelling, which matches it."))))
		Eventually(done).WithContext(ctx).Should(ContainElement(repelled+" "+repelKey+":NoSchedule"), "it was done again")

		nobody := account(ctx, "reader", "autohealer-viewer", "system:node-reader", "view")
		got = plugin(ctx, nobody, "undo", "-n", namespace, "deploy/kcm")
		Expect(got).To(SatisfyAll(HaveField("Code", 1), HaveField("Err", And(ContainSubstring("is forbidden: "),
			HaveSuffix("\nNodes take the ClusterRole autohealer-operator, workloads take autohealer-workload-operator.\n")))))
		Expect(plugin(ctx, operator, "undo", "node/"+repelled, "--all")).To(HaveField("Code", 2))
		Expect(plugin(ctx, operator, "undo")).To(HaveField("Code", 2))
		Expect(plugin(ctx, operator, "undo", "--all", "--hold=1000h")).To(SatisfyAll(HaveField("Code", 2), HaveField("Err", ContainSubstring("--hold=1000h0m0s: must be between 0s and 168h0m0s"))))
	})

	It("is not done again under a freeze", func(ctx SpecContext) {
		Expect(plugin(ctx, h.Kubeconfig, "freeze")).To(HaveField("Code", 0))
		DeferCleanup(func(ctx context.Context) { Expect(plugin(ctx, h.Kubeconfig, "thaw")).To(HaveField("Code", 0)) })
		Expect(plugin(ctx, operator, "undo", "--all")).To(SatisfyAll(HaveField("Code", 0),
			HaveField("Out", ContainSubstring("Done again when that ends: by ConditionSet repelling, which matches it; now Guardrail autohealer-freeze freezes everything"))))
		Consistently(done, "3s").WithContext(ctx).Should(Equal(nothing))
	})

	It("--all restores everything when Autohealer's kinds are gone", func(ctx SpecContext) {
		Eventually(done).WithContext(ctx).WithTimeout(2 * harness.Within).Should(ContainElements("kcm=0", "ca=0"))
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		_, err := h.Kubectl(ctx, "delete", "validatingwebhookconfiguration", "autohealer")
		Expect(err).NotTo(HaveOccurred())
		_, err = h.Kubectl(ctx, "delete", "crd", "-l", "app.kubernetes.io/name=autohealer", "--wait=false")
		Expect(err).NotTo(HaveOccurred())
		for _, args := range [][]string{{"conditionset", "repelling"}, {"conditionset", "evicting"}, {"-n", namespace, "probeconfig", "main"}} {
			_, err := h.Kubectl(ctx, append(append([]string{"patch"}, args...), "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)...)
			Expect(err).NotTo(HaveOccurred())
		}
		_, err = h.Kubectl(ctx, "wait", "--for=delete", "crd", "-l", "app.kubernetes.io/name=autohealer", "--timeout=30s")
		Expect(err).NotTo(HaveOccurred())
		Expect(done(ctx)).To(ContainElements("kcm=0", "ca=0"), "nobody undid it")

		Expect(plugin(ctx, operator, "undo", "--all")).To(SatisfyAll(HaveField("Code", 0), HaveField("Err", BeEmpty()), HaveField("Out", Not(ContainSubstring("Done again")))))
		Expect(done(ctx)).To(Equal(nothing))
		Eventually(again).WithContext(ctx).Should(BeEmpty())
		Expect(plugin(ctx, operator, "undo", "--all")).To(Equal(said{0, "Nothing is to be undone: no object has a record.\n", ""}))
	})
})
