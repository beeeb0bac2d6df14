package admission

import (
	"context"
	"fmt"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// What GitOps tools (Flux, Argo CD's own computation is alike) make of a set in each state.
var _ = Describe("kstatus says", func() {
	const spec = `{type: Kstatus, effect: NoSchedule, taintKey: example.com/kstatus, nodeSelector: {matchLabels: {e2e: kstatus}}, conditions: {KstatusBroken: {status: true}}`
	const sound = spec + `}`
	computed := func(ctx context.Context) string { return kstatusOf(ctx, "kstatus") }

	It("InProgress while nobody has looked at it, Current when it is operative", func(ctx SpecContext) {
		withoutManager(ctx, func() { // which comes back after its webhook: it isn't ready without one
			withoutGates(ctx, func() {
				create(ctx, "kstatus", sound)
				set, err := typed(ctx, "kstatus")
				Expect(err).NotTo(HaveOccurred())
				Expect(set.Status.ObservedGeneration).To(Equal(int64(-1)))
				Expect(set.Status.Conditions).To(BeEmpty())
				Expect(computed(ctx)).To(Equal("InProgress"))
			})
		})
		Eventually(ctx, computed).Should(Equal("Current"))
		Expect(conditionsOf(ctx, "kstatus")).To(Equal(map[string]string{"Accepted": "True Admitted", "Ready": "True Operative"}))
	}, NodeTimeout(specTime))

	It("Current also while a node is sick: the policy works", func(ctx SpecContext) {
		node := nodes(ctx, 1, "kstatus")[0]
		create(ctx, "kstatus", sound)
		report(ctx, "KstatusBroken", corev1.ConditionTrue, node)
		Eventually(ctx, taintsOf(node)).Should(HaveKey("example.com/kstatus"))
		Eventually(ctx, computed).Should(Equal("Current"))
		Expect(conditionsOf(ctx, "kstatus")).To(Equal(map[string]string{"Accepted": "True Admitted", "Ready": "True Operative"}))
	}, NodeTimeout(specTime))

	It("Current when it observes, and the reason says so", func(ctx SpecContext) {
		create(ctx, "kstatus", spec+`, mode: Observe}`)
		Eventually(ctx, computed).Should(Equal("Current"))
		Expect(conditionsOf(ctx, "kstatus")).To(Equal(map[string]string{"Accepted": "True Admitted", "Ready": "True Observing"}))
	}, NodeTimeout(specTime))

	It("Failed when a rule refuses it at run time", func(ctx SpecContext) {
		withoutGates(ctx, func() { create(ctx, "kstatus", spec+`, maxNodes: 0}`) })
		Eventually(ctx, computed).Should(Equal("Failed: conditionset/empty-cap"))
		Expect(conditionsOf(ctx, "kstatus")).To(Equal(map[string]string{"Accepted": "False RuleViolated", "Ready": "False RuleViolated", "Stalled": "True RuleViolated"}))
		By("seeing it work once it is mended")
		accepted(ctx, "patch", "conditionset", "kstatus", "--type=merge", "-p", `{"spec":{"maxNodes":1}}`)
		Eventually(ctx, computed).Should(Equal("Current"))
	}, NodeTimeout(specTime))

	It("Failed when it needs a human: the manager may not change nodes", func(ctx SpecContext) {
		node := nodes(ctx, 1, "kstatus")[0]
		create(ctx, "kstatus", sound)
		Eventually(ctx, computed).Should(Equal("Current"))
		withoutRightToPatchNodes(ctx, func() {
			report(ctx, "KstatusBroken", corev1.ConditionTrue, node)
			Eventually(ctx, computed).Should(HavePrefix("Failed: "))
			Expect(conditionsOf(ctx, "kstatus")).To(Equal(map[string]string{"Accepted": "True Admitted", "Ready": "False Forbidden", "Stalled": "True Forbidden"}))
			Expect(conditionOf("kstatus", "Stalled")(ctx)).To(And(ContainSubstring(node), ContainSubstring("nodes"), ContainSubstring("patch")), "who reads it knows which right is missing")
			Eventually(ctx, eventsOn("kstatus")).Should(ContainElement(HavePrefix("Warning Forbidden: ")))
		})
		Eventually(ctx, taintsOf(node)).Should(HaveKey("example.com/kstatus"))
		Eventually(ctx, computed).Should(Equal("Current"))
	}, NodeTimeout(specTime))

	It("InProgress while writes fail for a time", func(ctx SpecContext) {
		node := nodes(ctx, 1, "kstatus")[0]
		create(ctx, "kstatus", sound)
		Eventually(ctx, computed).Should(Equal("Current"))
		withFailingNodeWrites(ctx, func() {
			report(ctx, "KstatusBroken", corev1.ConditionTrue, node)
			Eventually(ctx, computed).Should(Equal("InProgress"))
			Expect(conditionsOf(ctx, "kstatus")).To(Equal(map[string]string{"Accepted": "True Admitted", "Ready": "Unknown Retrying", "Reconciling": "True Retrying"}))
			Expect(conditionOf("kstatus", "Reconciling")(ctx)).To(ContainSubstring(node))
		})
		Eventually(ctx, taintsOf(node)).Should(HaveKey("example.com/kstatus"))
		Eventually(ctx, computed).Should(Equal("Current"))
	}, NodeTimeout(specTime))

	It("InProgress again for each change of spec, until it is looked at", func(ctx SpecContext) {
		create(ctx, "kstatus", sound)
		Eventually(ctx, computed).Should(Equal("Current"))
		withoutManager(ctx, func() {
			withoutGates(ctx, func() {
				accepted(ctx, "patch", "conditionset", "kstatus", "--type=merge", "-p", `{"spec":{"staleAfter":"20m"}}`)
				Expect(computed(ctx)).To(Equal("InProgress"))
			})
		})
		Eventually(ctx, computed).Should(Equal("Current"))
	}, NodeTimeout(specTime))

	// The states that can't be held still, or don't exist yet, on a running manager.
	DescribeTable("the same of objects in a state that passes", func(observed int64, conditions map[string]string, want string) {
		u := object("constructed", sound)
		u.SetGeneration(1)
		var list []any
		for _, conditionType := range []string{"Accepted", "Ready", "Reconciling", "Stalled", "LimitReached", "BreakerOpen"} {
			if state, there := conditions[conditionType]; there {
				list = append(list, map[string]any{"type": conditionType, "status": state, "reason": "Reason", "message": "", "observedGeneration": observed})
			}
		}
		Expect(unstructured.SetNestedField(u.Object, map[string]any{"observedGeneration": observed, "conditions": list}, "status")).To(Succeed())
		result, err := status.Compute(u)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.Status.String()).To(Equal(want))
	},
		Entry("starting", int64(1), map[string]string{"Accepted": "True", "Ready": "Unknown", "Reconciling": "True"}, "InProgress"),
		Entry("paused", int64(1), map[string]string{"Accepted": "True", "Ready": "True"}, "Current"),
		Entry("held back by a limit", int64(1), map[string]string{"Accepted": "True", "Ready": "True", "LimitReached": "True"}, "Current"),
		Entry("its breaker is open", int64(1), map[string]string{"Accepted": "True", "Ready": "True", "BreakerOpen": "True"}, "Current"),
		Entry("operative at an older generation", int64(0), map[string]string{"Accepted": "True", "Ready": "True"}, "InProgress"),
	)
})

// kstatusOf is the status, and for Failed the rule that the message begins with.
func kstatusOf(ctx context.Context, name string) string {
	GinkgoHelper()
	u, err := get(ctx, name)
	Expect(err).NotTo(HaveOccurred())
	result, err := status.Compute(u)
	Expect(err).NotTo(HaveOccurred())
	if result.Status != status.FailedStatus {
		return result.Status.String()
	}
	return fmt.Sprintf("%s: %s", result.Status, firstWord(result.Message))
}

func firstWord(message string) string {
	for i, letter := range message {
		if letter == ':' || letter == ' ' {
			return message[:i]
		}
	}
	return message
}

// conditionsOf gives all conditions as "status reason", whatever their generation.
func conditionsOf(ctx context.Context, name string) map[string]string {
	GinkgoHelper()
	set, err := typed(ctx, name)
	Expect(err).NotTo(HaveOccurred())
	all := map[string]string{}
	for _, c := range set.Status.Conditions {
		all[c.Type] = string(c.Status) + " " + c.Reason
	}
	return all
}

// withoutRightToPatchNodes runs f while the manager's role lacks that verb.
func withoutRightToPatchNodes(ctx context.Context, f func()) {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{}
	Expect(h.Client.Get(ctx, types.NamespacedName{Name: "autohealer-manager"}, role)).To(Succeed())
	full := role.DeepCopy()
	changed := false
	for i, rule := range role.Rules {
		if len(rule.Resources) == 1 && rule.Resources[0] == "nodes" {
			role.Rules[i].Verbs, changed = []string{"get", "list", "watch"}, true
		}
	}
	Expect(changed).To(BeTrue(), "the manager's role has a rule for nodes")
	Expect(h.Client.Update(ctx, role)).To(Succeed())
	defer func() {
		GinkgoHelper()
		ctx, cancel := toRestore(ctx)
		defer cancel()
		full.ResourceVersion = ""
		Expect(h.Client.Update(ctx, full)).To(Succeed())
	}()
	Eventually(ctx, func(ctx context.Context) bool { return may(ctx, manager, "patch", "", "nodes", "", "") }).Should(BeFalse())
	f()
}

// withFailingNodeWrites runs f while the manager's writes to nodes meet a webhook of somebody else that doesn't answer.
func withFailingNodeWrites(ctx context.Context, f func()) {
	GinkgoHelper()
	broken := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "somebody-elses"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "nodes.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy: ptr.To(admissionregistrationv1.Fail), TimeoutSeconds: ptr.To[int32](1),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://" + cluster.Unserved() + "/")},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
			}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "manager-or-dry-run", Expression: "request.userInfo.username == '" + harness.Username + "' || request.dryRun",
			}},
		}},
	}
	Expect(h.Client.Create(ctx, broken)).To(Succeed())
	defer func() {
		GinkgoHelper()
		ctx, cancel := toRestore(ctx)
		defer cancel()
		Expect(h.Client.Delete(ctx, broken)).To(Succeed())
	}()
	Eventually(ctx, func(ctx context.Context) string {
		output, _ := kubectl(ctx, "label", "node", "fleet-0", "example.com/tried=yes", "--dry-run=server")
		return output
	}).Should(ContainSubstring("failed calling webhook"))
	f()
}
