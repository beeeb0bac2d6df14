package admission

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

var _ = Describe("Without webhook and policy", func() {
	It("a dangerous set can be stored, and does nothing but say why", func(ctx SpecContext) {
		node := nodes(ctx, 1, "unguarded")[0]
		report(ctx, "KernelDeadlock", corev1.ConditionFalse, node)
		report(ctx, "UnguardedBroken", corev1.ConditionTrue, node)
		selector := `nodeSelector: {matchLabels: {e2e: unguarded}}`
		withoutGates(ctx, func() {
			create(ctx, "unguarded", `{type: Unguarded, effect: NoSchedule, taintKey: example.com/unguarded, `+selector+`, conditions: {KernelDeadlock: {status: false}}}`)
		})
		const why = "conditionset/matches-healthy-nodes: every condition asks for its healthy status (KernelDeadlock: false)"
		Eventually(ctx, conditionOf("unguarded", "Accepted")).Should(HavePrefix("False RuleViolated: " + why))
		Eventually(ctx, conditionOf("unguarded", "Stalled")).Should(HavePrefix("True RuleViolated: " + why))
		Expect(conditionOf("unguarded", "Ready")(ctx)).To(HavePrefix("False RuleViolated"))
		Eventually(ctx, eventsOn("unguarded")).Should(ContainElement(HavePrefix("Warning RuleViolated: " + why)))

		By("seeing a sound set taint that very node, and the dangerous one match it and taint nothing")
		create(ctx, "guarded", `{type: Guarded, effect: NoSchedule, taintKey: example.com/guarded, `+selector+`, conditions: {UnguardedBroken: {status: true}}}`)
		Eventually(ctx, taintsOf(node)).Should(HaveKey("example.com/guarded"))
		Eventually(ctx, func(g Gomega) {
			set, err := typed(ctx, "unguarded")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(set.Status.Nodes).To(HaveField("Matching", int32(1)))
			g.Expect(set.Status.Nodes).To(HaveField("Tainted", int32(0)))
		}).Should(Succeed())
		Consistently(ctx, taintsOf(node), 2*time.Second).ShouldNot(HaveKey("example.com/unguarded"))
		Expect(condition(ctx, "unguarded", "Accepted").Status).To(BeEquivalentTo("False"))

		By("living with it while the gates are back")
		accepted(ctx, "label", "conditionset", "unguarded", "team=nodes")
		accepted(ctx, "annotate", "conditionset", "unguarded", "example.com/seen=yes")
		Expect(refused(ctx, "patch", "conditionset", "unguarded", "--type=merge", "-p", `{"spec":{"conditions":{"KernelDeadlock":{"status":"False"}}}}`)).To(ContainSubstring(why))
		deleteAndWait(ctx, "unguarded")
	}, NodeTimeout(specTime))
})

var _ = Describe("While no manager serves the webhook", func() {
	It("the policy refuses what it can judge, with the webhook's words, and nothing else gets stored", func(ctx SpecContext) {
		path := file(manifest("outage", `{type: Outage, effect: NoExecute, taintKey: karpenter.sh/outage, conditions: {OutOfDisk: {status: false}}}`))
		byBoth := refused(ctx, "apply", "-f", path)
		var byWebhook string
		withoutPolicy(ctx, func() { byWebhook = refused(ctx, "apply", "-f", path) })
		sound := file(manifest("outage", `{type: Outage, effect: NoSchedule, taintKey: example.com/outage, conditions: {KernelDeadlock: {status: true}}}`))
		withoutManager(ctx, func() {
			byPolicy := refused(ctx, "apply", "-f", path)
			Expect(byPolicy).To(ContainSubstring("ValidatingAdmissionPolicy"))
			Expect(verdict(byPolicy)).To(Equal(verdict(byWebhook)))
			Expect(verdict(byPolicy)).To(HaveLen(3), byPolicy)
			Expect(refused(ctx, "apply", "-f", path, "--dry-run=server")).To(Equal(byPolicy))

			By("refusing a sound one too, since most rules can't be asked")
			message := refused(ctx, "apply", "-f", sound)
			Expect(message).To(ContainSubstring(`failed calling webhook "policies.autohealer.resourcestack.com"`))
			Expect(message).To(ContainSubstring("connection refused"))
		})
		Expect(verdict(byBoth)).To(Equal(verdict(byWebhook)))
		removedAfterwards("outage")
		accepted(ctx, "apply", "-f", sound)
	}, NodeTimeout(specTime))

	It("stored sets can be labelled, deleted and let go", func(ctx SpecContext) {
		const sound = `{type: Outage, effect: NoSchedule, taintKey: example.com/outage, conditions: {KernelDeadlock: {status: true}}}`
		create(ctx, "stays", sound)
		create(ctx, "goes", sound)
		withoutGates(ctx, func() { // bad ones aren't kept either
			create(ctx, "bad", `{type: Outage, effect: NoSchedule, taintKey: example.com/outage, conditions: {Ready: {status: true}}}`)
		})
		for _, name := range []string{"stays", "goes", "bad"} {
			Eventually(ctx, conditionOf(name, "Accepted")).ShouldNot(Equal("absent"))
		}
		withoutManager(ctx, func() {
			accepted(ctx, "label", "conditionset", "stays", "team=nodes")
			for _, name := range []string{"goes", "bad"} {
				accepted(ctx, "delete", "conditionset", name, "--wait=false")
				set, err := get(ctx, name)
				Expect(err).NotTo(HaveOccurred(), "the finalizer holds %s", name)
				Expect(set.GetDeletionTimestamp()).NotTo(BeNil())
				accepted(ctx, "patch", "conditionset", name, "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)
				_, err = get(ctx, name)
				Expect(client.IgnoreNotFound(err)).To(Succeed())
				Expect(err).To(HaveOccurred(), "%s is let go", name)
			}
		})
	}, NodeTimeout(specTime))

	It("a manager that the API server can't reach still writes status and lets go of what is deleted", func(ctx SpecContext) {
		node := nodes(ctx, 1, "unreached")[0]
		create(ctx, "unreached", `{type: Unreached, effect: NoSchedule, taintKey: example.com/unreached, mode: Observe, conditions: {UnreachedBroken: {status: true}}}`)
		Eventually(ctx, conditionOf("unreached", "Ready")).Should(HavePrefix("True"))
		withUnreachableWebhook(ctx, func() {
			report(ctx, "UnreachedBroken", corev1.ConditionTrue, node)
			Eventually(ctx, func(ctx context.Context) (*v1alpha1.NodeCounts, error) {
				set, err := typed(ctx, "unreached")
				return set.Status.Nodes, err
			}).Should(HaveField("Matching", int32(1)))
			deleteAndWait(ctx, "unreached")
		})
	}, NodeTimeout(specTime))
})

var ruleText = regexp.MustCompile(`conditionset/[a-z-]+: .*?\(https://[^)]*\)`)

// verdict gives what each rule says in a refusal, sorted. How they are strung together differs: policies can't break lines.
func verdict(message string) []string {
	texts := ruleText.FindAllString(message, -1)
	slices.Sort(texts)
	return slices.Compact(texts)
}

func deleteAndWait(ctx context.Context, name string) {
	GinkgoHelper()
	accepted(ctx, "delete", "conditionset", name, fmt.Sprintf("--timeout=%s", 20*time.Second))
}

// eventsOn tells the Events on a set, as "type reason: note".
func eventsOn(name string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		set, err := get(ctx, name)
		if err != nil {
			return nil, err
		}
		var list corev1.EventList
		err = h.Client.List(ctx, &list, client.MatchingFields{"involvedObject.uid": string(set.GetUID())})
		var lines []string
		for _, e := range list.Items {
			lines = append(lines, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message))
		}
		return lines, err
	}
}
