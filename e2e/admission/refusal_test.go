package admission

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("A dangerous set", Label("versions"), func() {
	DescribeTable("is refused with the rule, the reason and what to write instead, also by a dry run",
		func(ctx SpecContext, spec string, want ...string) {
			removedAfterwards("dangerous")
			path := file(manifest("dangerous", spec))
			message := refused(ctx, "apply", "-f", path)
			Expect(message).To(ContainSubstring("Error from server (Forbidden): "))
			for _, part := range want {
				Expect(message).To(ContainSubstring(part))
			}
			Expect(refused(ctx, "apply", "-f", path, "--dry-run=server")).To(Equal(message))
			Expect(refused(ctx, "create", "-f", path)).To(Equal(message))
			_, err := get(ctx, "dangerous")
			Expect(err).To(MatchError(ContainSubstring("not found")))
		},
		Entry("OutOfDisk false with NoExecute, the seed of it all",
			`{type: OutOfDisk, effect: NoExecute, taintKey: example.com/disk, conditions: {OutOfDisk: {status: false}}}`,
			"conditionset/matches-healthy-nodes: every condition asks for its healthy status (OutOfDisk: false), so all healthy nodes would get the taint",
			"write the status that reports the problem: OutOfDisk: {status: true}",
			"conditionset/obsolete-condition: OutOfDisk: false asks for a condition that Kubernetes no longer reports",
			"or write DiskPressure: {status: true}",
		),
		Entry("Ready true",
			`{type: NodeReady, effect: NoSchedule, taintKey: example.com/ready, conditions: {Ready: {status: true}}}`,
			"conditionset/matches-healthy-nodes: every condition asks for its healthy status (Ready: true)",
			"Ready: {status: false}",
		),
		Entry("a condition of node-problem-detector at false, as a string",
			`{type: Kernel, effect: NoSchedule, taintKey: example.com/kernel, conditions: {KernelDeadlock: {status: "False"}}}`,
			"conditionset/matches-healthy-nodes: every condition asks for its healthy status (KernelDeadlock: false)",
			"KernelDeadlock: {status: true}",
		),
		Entry("a reserved taint key",
			`{type: NotReady, effect: NoSchedule, taintKey: node.kubernetes.io/not-ready, conditions: {KernelDeadlock: {status: true}}}`,
			`conditionset/reserved-taint-key: taintKey "node.kubernetes.io/not-ready" belongs to Kubernetes, which acts on it`,
			"write a key with a domain of your own, such as example.com/NotReady",
		),
		Entry("an eviction by Unknown, with a healthy condition beside it",
			`{type: Runtime, effect: NoExecute, taintKey: example.com/runtime, conditions: {ContainerRuntimeUnhealthy: {status: unknown}, Ready: {status: true}}}`,
			"conditionset/unknown-only-evicts: ContainerRuntimeUnhealthy: unknown, Ready: true would evict, and none of these conditions reports a problem",
			"write effect: NoSchedule",
		),
		Entry("several mistakes, which are all listed",
			`{type: Several, effect: NoExecute, taintKey: karpenter.sh/disrupted, maxNodes: 0, conditions: {Ready: {status: unknown}}}`,
			"conditionset/unknown-only-evicts: Ready: unknown would evict, and none of these conditions reports a problem",
			"write effect: NoSchedule",
			"conditionset/node-ready-belongs-to-kcm: Ready: unknown with NoExecute does again what kube-controller-manager does",
			"conditionset/reserved-taint-key: taintKey \"karpenter.sh/disrupted\" belongs to",
			"conditionset/empty-cap: maxNodes: 0 lets the set taint no node at all; write 1 or more, or mode: Observe",
		),
	)

	It("is refused when it would now taint more nodes than the limit, with their number and five names", func(ctx SpecContext) {
		sick := nodes(ctx, 6, "limit")
		report(ctx, "LimitSpecBroken", corev1.ConditionTrue, sick...)
		total, err := selectable(ctx)
		Expect(err).NotTo(HaveOccurred())
		path := file(manifest("too-many", `{type: TooMany, effect: NoSchedule, taintKey: example.com/too-many, conditions: {LimitSpecBroken: {status: true}}}`))
		want := fmt.Sprintf("conditionset/would-exceed-limit: would now taint 6 of %d nodes (%s, …), and maxTaintedNodes allows 1; write conditions that fewer nodes meet, or watch it first with mode: Observe. "+
			"maxNodes would not help: when more than 20%% of the selected nodes match at once, here 6 of %d, the breaker of the set opens and it does nothing",
			total, strings.Join(sick[:5], ", "), total)
		Eventually(ctx, func(ctx context.Context) string { // the informers may be behind the reporters
			output, _ := kubectl(ctx, "apply", "--dry-run=server", "-f", path)
			return output
		}).Should(ContainSubstring(want))
		Expect(refused(ctx, "apply", "-f", path)).To(ContainSubstring(want))

		By("taking each advice that the refusal gives")
		for _, advice := range []string{"mode: Observe", "nodeSelector: {matchLabels: {kubernetes.io/hostname: " + sick[0] + "}}"} {
			advised := file(manifest("too-many", `{type: TooMany, effect: NoSchedule, taintKey: example.com/too-many, conditions: {LimitSpecBroken: {status: true}}, `+advice+`}`))
			Expect(accepted(ctx, "apply", "--dry-run=server", "-f", advised)).To(ContainSubstring("conditionset.autohealer.resourcestack.com/too-many created (server dry run)"))
		}
	}, NodeTimeout(specTime))
})

var _ = Describe("A doubtful set", func() {
	It("is accepted with a warning a rule, also by a dry run", func(ctx SpecContext) {
		removedAfterwards("doubtful")
		path := file(manifest("doubtful", `{type: Doubtful, effect: NoExecute, taintKey: example.com/doubtful, for: 0s, conditions: {KernelDeadlock: {status: true}, NobodyReportsThis: {status: true}}}`))
		wanted := []string{
			"Warning: conditionset/evicts-without-hold: for: 0s with NoExecute evicts on one flap of KernelDeadlock: true, \"NobodyReportsThis\": true; write for: 1m or evictAfter: 10m",
			"Warning: conditionset/sticky-evicts: KernelDeadlock: true stays so until node-problem-detector restarts",
			"Warning: conditionset/unsupported-condition-type: no node reports NobodyReportsThis and Autohealer does not know it",
		}
		dry := accepted(ctx, "apply", "-f", path, "--dry-run=server")
		wet := accepted(ctx, "apply", "-f", path)
		for _, want := range wanted {
			Expect(strings.Count(dry, want)).To(Equal(1), dry)
			Expect(strings.Count(wet, want)).To(Equal(1), wet)
		}
		Expect(warnings(wet)).To(HaveLen(len(wanted)), wet)
		Expect(wet).To(HaveSuffix("/doubtful created"))
	}, NodeTimeout(specTime))

	It("whose key is somebody else's on some nodes says so", func(ctx SpecContext) {
		owned := nodes(ctx, 1, "foreign")
		accepted(ctx, "taint", "node", owned[0], "example.com/foreign=theirs:PreferNoSchedule")
		path := file(manifest("foreign", `{type: Foreign, effect: NoSchedule, taintKey: example.com/foreign, conditions: {KernelDeadlock: {status: true}}}`))
		Eventually(ctx, func(ctx context.Context) string {
			output, _ := kubectl(ctx, "apply", "--dry-run=server", "-f", path)
			return output
		}).Should(ContainSubstring(`Warning: conditionset/same-key-other-owner: taintKey "example.com/foreign" is on 1 node by somebody else (` + owned[0] + `)`))
	}, NodeTimeout(specTime))
})

func warnings(output string) []string {
	var found []string
	for _, line := range strings.Split(output, "\n") {
		if strings.HasPrefix(line, "Warning: ") {
			found = append(found, line)
		}
	}
	return found
}
