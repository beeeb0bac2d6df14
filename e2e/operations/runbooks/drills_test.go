package runbooks

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

const status, check = "kubectl autohealer status", "kubectl autohealer check"

// series expects one of the manager's with this value.
func series(ctx context.Context, line string) {
	GinkgoHelper()
	name, number, _ := strings.Cut(line, " ")
	want, err := strconv.ParseFloat(number, 64)
	Expect(err).NotTo(HaveOccurred())
	Eventually(value).WithContext(ctx).WithArguments(name).Should(Equal(want), name)
}

var _ = Describe("docs/runbooks", Ordered, ContinueOnFailure, func() {
	AfterEach(func(ctx SpecContext) {
		sick(ctx, 0)
		series(ctx, `autohealer_conditionset_nodes{policy="kernel-deadlock",state="tainted"} 0`)
		first = 0
	})

	It("no-leader.md", func(ctx SpecContext) {
		series(ctx, `leader_election_master_status{name="autohealer-manager"} 1`)
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		expectPage(ctx, "no-leader.md", check)
		Expect(h.StartComponent(ctx, harness.Manager)).To(Succeed())
		series(ctx, `leader_election_master_status{name="autohealer-manager"} 1`)
	})

	It("webhook-failing.md", func(ctx SpecContext) {
		url := kubectl(ctx, "get", "validatingwebhookconfiguration", "autohealer", "-o", "jsonpath={.webhooks[0].clientConfig.url}")
		call := func(url string) {
			kubectl(ctx, "patch", "validatingwebhookconfiguration", "autohealer", "--type=json", "-p", `[{"op":"replace","path":"/webhooks/0/clientConfig/url","value":"`+url+`"}]`)
		}
		call("https://" + cluster.Unserved() + "/validate")
		expectPage(ctx, "webhook-failing.md", check)
		text, err := scrapeServer(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(slices.Collect(strings.Lines(text))).To(ContainElement(SatisfyAll(
			HavePrefix("apiserver_admission_webhook_rejection_count{"), ContainSubstring(`error_type="calling_webhook_error"`), ContainSubstring(`name="policies.autohealer.resourcestack.com"`))))
		call(url)
		expectSound(ctx)
	})

	It("breaker-open.md", func(ctx SpecContext) {
		first = 2
		sick(ctx, 6)
		series(ctx, `autohealer_conditionset_breaker_open{policy="kernel-deadlock"} 1`)
		expectWholePage(ctx, "breaker-open.md")
		series(ctx, `autohealer_conditionset_breaker_open{policy="kernel-deadlock"} 0`)
	})

	It("limit-reached.md", func(ctx SpecContext) {
		first = 4
		sick(ctx, 2)
		series(ctx, `autohealer_conditionset_limit_reached{policy="kernel-deadlock"} 1`)
		expectPage(ctx, "limit-reached.md", status)
		sick(ctx, 1)
		series(ctx, `autohealer_conditionset_limit_reached{policy="kernel-deadlock"} 0`)
	})

	It("frozen.md", func(ctx SpecContext) {
		Expect(run(ctx, "kubectl autohealer freeze --reason=INC-4711")).To(ContainSubstring("The manager confirms"))
		series(ctx, "autohealer_guardrail_frozen 1")
		expectWholePage(ctx, "frozen.md")
		series(ctx, "autohealer_guardrail_frozen 0")
	})

	It("policy-refused.md", func(ctx SpecContext) {
		first = 6
		_, err := h.Apply(ctx, `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: Guardrail
metadata: {name: org}
spec:
  rules:
  - name: names-its-team
    kinds: [ConditionSet]
    severity: Deny
    expression: "'team' in object.metadata.?labels.orValue({})"
    messageExpression: "'add the label team to ' + object.metadata.name"
    rationale: Whoever is woken by a taint must know whom to ask.
    tests:
    - name: a set with a team
      object: {metadata: {name: a, labels: {team: nodes}}, spec: {type: A, effect: NoSchedule, taintKey: example.com/a, conditions: {KernelDeadlock: {status: true}}}}
      expect: admit
    - name: a set that nobody owns
      object: {metadata: {name: a}, spec: {type: A, effect: NoSchedule, taintKey: example.com/a, conditions: {KernelDeadlock: {status: true}}}}
      expect: deny
`)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { kubectl(ctx, "delete", "guardrail", "org", "--ignore-not-found") })
		series(ctx, `autohealer_guardrail_rejected_policies{guardrail="org"} 1`)
		expectPage(ctx, "policy-refused.md", status)
		sick(ctx, 1)
		kubectl(ctx, "label", "conditionset", "kernel-deadlock", "team=nodes")
		series(ctx, `autohealer_guardrail_rejected_policies{guardrail="org"} 0`)
		series(ctx, `autohealer_conditionset_nodes{policy="kernel-deadlock",state="tainted"} 1`)
		kubectl(ctx, "delete", "guardrail", "org")
		kubectl(ctx, "label", "conditionset", "kernel-deadlock", "team-")
	})

	It("node-conditions-unknown.md", func(ctx SpecContext) {
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		hourAgo := cluster.ConditionOptions{Heartbeat: time.Now().Add(-time.Hour), Transition: time.Now().Add(-time.Hour)}
		for i := range 2 {
			Expect(h.SetCondition(ctx, worker(i), "KernelDeadlock", corev1.ConditionTrue, hourAgo)).To(Succeed())
		}
		Expect(h.StartManager(ctx)).To(Succeed(), "it hasn't seen their heartbeats change")
		series(ctx, `autohealer_conditionset_nodes{policy="kernel-deadlock",state="doubtful"} 2`)
		expectWholePage(ctx, "node-conditions-unknown.md")
		series(ctx, `autohealer_conditionset_nodes{policy="kernel-deadlock",state="tainted"} 0`)
		sick(ctx, 0)
		series(ctx, `autohealer_conditionset_nodes{policy="kernel-deadlock",state="doubtful"} 0`)
	})

	It("changes-failing.md", func(ctx SpecContext) {
		_, err := h.Apply(ctx, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: nodes-are-ours}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [nodes]}]}
  validations: [{expression: "!request.userInfo.username.endsWith(':autohealer-manager')", message: nodes are changed by the fleet team only}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: nodes-are-ours}
spec: {policyName: nodes-are-ours, validationActions: [Deny]}
`)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) {
			kubectl(ctx, "delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "nodes-are-ours", "--ignore-not-found")
		})
		Eventually(func() error {
			_, err := h.Kubectl(ctx, "annotate", "node", "worker-0", "x=y", "--dry-run=server", "--as=system:serviceaccount:autohealer-system:autohealer-manager", "--as-group=system:masters")
			return err
		}).WithContext(ctx).Should(MatchError(ContainSubstring("nodes are changed by the fleet team only")))
		sick(ctx, 1)
		Eventually(value).WithContext(ctx).WithArguments(`autohealer_conditionset_taint_changes_total{policy="kernel-deadlock",result="failed",verb="Taint"}`).Should(BeNumerically(">", 0))
		expectWholePage(ctx, "changes-failing.md")
		kubectl(ctx, "delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "nodes-are-ours")
		series(ctx, `autohealer_conditionset_nodes{policy="kernel-deadlock",state="tainted"} 1`)
	})
})
