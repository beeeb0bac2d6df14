package guardrails

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("A rule of one's own", func() {
	DescribeTable("is refused where it couldn't be evaluated, with the position", func(ctx SpecContext, expression, more, want string) {
		fields := []string{}
		if more != "" {
			fields = append(fields, more)
		}
		got := create(ctx, newRail("broken", rule("the-rule", expression, fields...)))
		Expect(got.refusal).To(MatchRegexp(want))
		Expect(got.refusal).To(ContainSubstring("the-rule"))
		_, err := readRail(ctx, "broken")
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		Expect(err).To(HaveOccurred(), "nothing is stored")
	},
		Entry("a misspelt field", `object.spec.efect != 'NoExecute'`, "", `(?s)1:12.*undefined field 'efect'`),
		Entry("a missing parenthesis", `size(object.spec.type > 3`, "", `(?s)1:\d+.*Syntax error`),
		Entry("no boolean", `object.spec.effect`, "", `(?s)returns string, want bool.*\^`),
		Entry("a constant", `1 < 2`, "", `(?s)is constant.*\^`),
		Entry("over budget", `object.spec.conditions.all(a, object.spec.conditions.all(b, object.spec.conditions.all(c, object.spec.conditions.all(d, a + b + c + d != ''))))`, "", `may cost \d+, at most \d+ allowed`),
		Entry("a variable that there isn't", `objekt.spec.effect != 'NoExecute'`, "", `(?s)1:1.*undeclared reference to 'objekt'`),
		Entry("a message that is none", `object.spec.effect != 'NoExecute'`, `messageExpression: "1 + 1"`, `(?s)messageExpression.*returns int, want string`),
	)

	It("is refused for kinds that there aren't, and by the policy alone while the webhook is away", func(ctx SpecContext) {
		rail := newRail("broken", `{rules: [{name: r, kinds: [ConditionSets], expression: "has(object.metadata.labels)"}]}`)
		const want = "guardrail/unknown-kind: kinds of rule r: not all of them are kinds of Autohealer"
		Expect(create(ctx, rail).refusal).To(ContainSubstring(want))
		Expect(w.StopComponent(harness.Manager)).To(Succeed())
		DeferCleanup(w.RestartManager)
		Expect(create(ctx, rail).refusal).To(And(ContainSubstring(want), ContainSubstring("ValidatingAdmissionPolicy 'autohealer-guardrail'")))
	})

	It("refuses and warns with its id, alike in a dry run and in earnest", func(ctx SpecContext) {
		put(ctx, "org", `{rules: [
			{name: no-eviction, kinds: [ConditionSet], expression: "object.spec.effect != 'NoExecute'", messageExpression: "'evicting is not done here; write effect: NoSchedule'"},
			{name: team, kinds: [ConditionSet], severity: Warn, expression: "has(object.metadata.labels) && 'team' in object.metadata.labels", rationale: Somebody must be asked.}]}`)
		evicting := fixture.NewSet("own-rule", w.Key("own-rule"), evict, "OwnRuleBroken")
		evicting.Spec.For = "1m"
		dry := create(ctx, evicting, client.DryRunAll)
		Expect(dry.refusal).To(ContainSubstring("org/no-eviction: evicting is not done here; write effect: NoSchedule (Guardrail org)"))
		Expect(create(ctx, evicting)).To(Equal(dry))

		repelling := fixture.NewSet("own-rule", w.Key("own-rule"), repel, "OwnRuleBroken")
		dry = create(ctx, repelling, client.DryRunAll)
		Expect(dry.refusal).To(BeEmpty())
		Expect(dry.warnings).To(ContainElement("org/team: Somebody must be asked. (Guardrail org)"))
		DeferCleanup(w.Discard, repelling)
		Expect(create(ctx, repelling)).To(Equal(dry))
		Expect(w.Client.Get(ctx, client.ObjectKeyFromObject(repelling), repelling)).To(Succeed())
		Eventually(setSays(ctx, "own-rule", "Accepted")).Should(HavePrefix("True Admitted"), "a warning refuses nothing at run time either")
	})

	It("sees what a built-in one sees: plan, facts, limits and who asks", func(ctx SpecContext) {
		put(ctx, "sees", `{rules: [
			{name: plan, kinds: [ConditionSet], severity: Warn, expression: "plan.selected < 3"},
			{name: facts, kinds: [ConditionSet], severity: Warn, expression: "!facts.synced"},
			{name: limits, kinds: [ConditionSet], severity: Warn, expression: "limits.maxTaintedNodes.percent != 10"},
			{name: request, kinds: [ConditionSet], severity: Warn, expression: "request.userInfo.username == 'nobody'"},
			{name: rights, kinds: [ConditionSet], severity: Warn, expression: "!authorizer.group('').resource('nodes').check('patch').allowed()"}]}`)
		got := create(ctx, fixture.NewSet("sees", w.Key("sees"), repel, "SeesBroken"), client.DryRunAll)
		Expect(got.refusal).To(BeEmpty())
		for _, name := range []string{"plan", "facts", "limits", "request", "rights"} {
			Expect(got.warnings).To(ContainElement(HavePrefix("sees/"+name+": ")), "the rule sees that it isn't so")
		}
	})

	It("warns when it refuses what is stored, and says how much", func(ctx SpecContext) {
		w.Create(ctx, fixture.NewSet("refused-later", w.Key("refused-later"), repel, "RefusedLater"))
		got := create(ctx, newRail("later", rule("r", "object.metadata.name != 'refused-later'")), client.DryRunAll)
		Expect(got.refusal).To(BeEmpty())
		Expect(got.warnings).To(ContainElement(And(HavePrefix("guardrail/refuses-stored: "), ContainSubstring("refused-later"))))
	})

	It("can be deleted and paused around while no manager serves the webhook", func(ctx SpecContext) {
		put(ctx, "goes", rule("r", "object.metadata.name != 'nobody'"))
		Expect(w.StopComponent(harness.Manager)).To(Succeed())
		DeferCleanup(w.RestartManager)
		Expect(w.Client.Delete(ctx, &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "goes"}})).To(Succeed())
		_, err := readRail(ctx, "goes")
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		Expect(err).To(HaveOccurred(), "no finalizer holds it")
	})

	It("leaves alone what is stored and unchanged, as a GitOps tool applies it again and again", func(ctx SpecContext) {
		manifest := fmt.Sprintf("apiVersion: autohealer.resourcestack.com/v1alpha1\nkind: ConditionSet\nmetadata: {name: ratchet}\nspec: {type: Ratchet, effect: NoSchedule, taintKey: %s, for: 0s, conditions: {RatchetBroken: {status: true}}}\n", w.Key("ratchet"))
		apply := []string{"--server-side", "--field-manager=argocd-controller"}
		_, err := w.Apply(ctx, manifest, apply...)
		Expect(err).NotTo(HaveOccurred())
		set := fixture.NewSet("ratchet", "", repel)
		Expect(w.Client.Get(ctx, client.ObjectKeyFromObject(set), set)).To(Succeed())
		DeferCleanup(w.Discard, set)
		Eventually(setSays(ctx, "ratchet", "Accepted")).Should(HavePrefix("True"))
		put(ctx, "strict", rule("r", "object.spec.effect == 'PreferNoSchedule'"))
		Eventually(setSays(ctx, "ratchet", "Accepted")).Should(HavePrefix("False RuleViolated: strict/r"))

		_, err = w.Apply(ctx, manifest, append(apply, "--dry-run=server")...)
		Expect(err).NotTo(HaveOccurred(), "a diff must not fail")
		_, err = w.Apply(ctx, manifest, apply...)
		Expect(err).NotTo(HaveOccurred())
		_, err = w.Apply(ctx, strings.Replace(manifest, "for: 0s", "for: 0s, staleAfter: 20m", 1), apply...)
		Expect(err).NotTo(HaveOccurred(), "what the rule doesn't read may change")
		_, err = w.Apply(ctx, strings.Replace(manifest, "NoSchedule", "NoExecute", 1), append(apply, "--dry-run=server")...)
		Expect(err).To(MatchError(ContainSubstring("strict/r")))
	})
})
