package guardrails

import (
	"context"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/internal/guard"
)

// newException lifts rules for a set as it is now.
func newException(name string, set *v1alpha1.ConditionSet, holds time.Duration, rules ...string) *v1alpha1.GuardrailException {
	GinkgoHelper()
	hash, err := guard.SpecHash(set)
	Expect(err).NotTo(HaveOccurred())
	return &v1alpha1.GuardrailException{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.GuardrailExceptionSpec{
			RuleIDs: rules, TargetRef: v1alpha1.ExceptionTarget{Kind: "ConditionSet", Name: set.Name}, SpecHash: hash,
			Reason:    "end-to-end test, nobody is woken",
			ExpiresAt: v1alpha1.Timestamp(time.Now().Add(holds).UTC().Format(time.RFC3339)),
		},
	}
}

// except stores an exception and waits until it is in force. It goes with the spec.
func except(ctx context.Context, x *v1alpha1.GuardrailException) {
	GinkgoHelper()
	Expect(w.Client.Create(ctx, x)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(w.Client.Delete(ctx, x))).To(Succeed()) })
	Eventually(exceptionSays(ctx, x.Name, "Ready")).ShouldNot(BeEmpty())
}

func exceptionSays(ctx context.Context, name, conditionType string) func() (string, error) {
	return func() (string, error) {
		x := &v1alpha1.GuardrailException{}
		err := w.Client.Get(ctx, types.NamespacedName{Name: name}, x)
		return says(x, x.Status.Conditions, conditionType), err
	}
}

var _ = Describe("An exception", func() {
	const exceptable = "exceptable: true"

	It("lets one object be stored that a rule refuses, and no other", func(ctx SpecContext) {
		put(ctx, "lift", rule("r", "object.spec.effect != 'NoSchedule' || !object.metadata.name.startsWith('lifted')", exceptable))
		set := fixture.NewSet("lifted", w.Key("lifted"), repel, "LiftedBroken")
		other := fixture.NewSet("lifted-not", w.Key("lifted"), repel, "LiftedBroken")
		Expect(create(ctx, set, client.DryRunAll).refusal).To(ContainSubstring("lift/r: "))

		got := create(ctx, newException("lifted", set, time.Hour, "lift/r"))
		DeferCleanup(func(ctx context.Context) {
			Expect(w.Client.Delete(ctx, &v1alpha1.GuardrailException{ObjectMeta: metav1.ObjectMeta{Name: "lifted"}})).To(Succeed())
		})
		Expect(got.refusal).To(BeEmpty())
		Expect(got.warnings).To(ContainElement(HavePrefix("guardrailexception/target-missing: ")))
		Eventually(exceptionSays(ctx, "lifted", "Ready")).Should(HavePrefix("True Waiting: "), "it must come before its target, and who waits for it must not wait for ever")
		got = create(ctx, set, client.DryRunAll)
		Expect(got.refusal).To(BeEmpty())
		Expect(got.warnings).To(ContainElement(And(HavePrefix("lift/r: "), ContainSubstring("GuardrailException lifted lifts this rule until "))))
		Expect(create(ctx, other, client.DryRunAll).refusal).To(ContainSubstring("lift/r: "))
		changed := set.DeepCopy()
		changed.Spec.StaleAfter = "20m"
		Expect(create(ctx, changed, client.DryRunAll).refusal).To(ContainSubstring("lift/r: "), "another spec is another matter")

		w.Create(ctx, set)
		Eventually(setSays(ctx, "lifted", "Accepted")).Should(And(HavePrefix("True Admitted: "), ContainSubstring("GuardrailException lifted lifts lift/r until ")))
		Eventually(exceptionSays(ctx, "lifted", "Ready")).Should(And(HavePrefix("True Active: It holds for ConditionSet lifted until "), HaveSuffix("It lifts lift/r.")))
		Eventually(events(ctx, "lifted")).Should(ContainElement(HavePrefix("Active: ")))
	})

	It("holds for a policy that comes right behind it, and for none right after its deletion, before the manager has heard of either", func(ctx SpecContext) {
		watches, err := faultproxy.StartWatches(w.URL, w.CACert)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(watches.Stop)
		direct, err := w.ServiceAccountKubeconfig(ctx, harness.Namespace, harness.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		proxied := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(watches.Kubeconfig(direct, proxied)).To(Succeed())
		restart := func(ctx context.Context, args ...string) {
			Expect(w.StopComponent(harness.Manager)).To(Succeed())
			Expect(w.StartManager(ctx, args...)).To(Succeed())
		}
		restart(ctx, "--kubeconfig="+proxied)
		DeferCleanup(func(ctx context.Context) { restart(ctx) })

		put(ctx, "behind", rule("r", "object.metadata.name != 'behind'", exceptable))
		set := fixture.NewSet("behind", w.Key("behind"), repel, "BehindBroken")
		x := newException("behind", set, time.Hour, "behind/r")
		const path = "/apis/autohealer.resourcestack.com/v1alpha1/guardrailexceptions"
		watches.Silence(path)
		Expect(w.Client.Create(ctx, x)).To(Succeed())
		Expect(create(ctx, set, client.DryRunAll).refusal).To(BeEmpty())
		watches.Speak(path)
		Eventually(exceptionSays(ctx, x.Name, "Ready")).ShouldNot(BeEmpty())
		watches.Silence(path)
		Expect(w.Client.Delete(ctx, x)).To(Succeed())
		Expect(create(ctx, set, client.DryRunAll).refusal).To(ContainSubstring("behind/r: "))
		watches.Speak(path)
	})

	It("lets a stored set act again, until its date, which needs no event", func(ctx SpecContext) {
		key := w.Key("dated")
		nodes := w.AddNodes(ctx, 2, cluster.NodeOptions{Prefix: "dated"})
		set := w.Create(ctx, fixture.NewSet("dated", key, repel, "DatedBroken"))
		put(ctx, "dates", rule("r", "object.metadata.name != 'dated'", exceptable))
		Eventually(setSays(ctx, "dated", "Accepted"), soon).Should(HavePrefix("False RuleViolated"))
		w.Report(ctx, nodes[0], "DatedBroken", corev1.ConditionTrue)
		Consistently(w.Effect(ctx, nodes[0], key), "1s").Should(BeEmpty())

		x := newException("dated", set, 15*time.Second, "dates/r")
		except(ctx, x)
		Eventually(setSays(ctx, "dated", "Accepted")).Should(HavePrefix("True Admitted"))
		Eventually(w.Effect(ctx, nodes[0], key)).Should(BeEquivalentTo(repel))

		ends, err := x.Spec.ExpiresAt.Time()
		Expect(err).NotTo(HaveOccurred())
		Eventually(setSays(ctx, "dated", "Accepted"), time.Until(ends)+time.Second).Should(HavePrefix("False RuleViolated: dates/r"))
		Expect(time.Now()).To(BeTemporally(">=", ends), "it must not end before")
		Eventually(exceptionSays(ctx, "dated", "Ready")).Should(HavePrefix("True Expired: It has lifted nothing since " + string(x.Spec.ExpiresAt)))
		Expect(exceptionSays(ctx, "dated", "Stalled")()).NotTo(HavePrefix("True"), "what ended as it was meant to is no failure for GitOps tools")
		Eventually(events(ctx, "dated")).Should(ContainElement(HavePrefix("Expired: ")))
		w.Report(ctx, nodes[1], "DatedBroken", corev1.ConditionTrue)
		Consistently(w.Effect(ctx, nodes[1], key), "1s").Should(BeEmpty())
		Expect(w.Effect(ctx, nodes[0], key)()).To(BeEquivalentTo(repel), "its end undoes nothing")
	})

	It("ends when the spec changes, and begins again when that is taken back", func(ctx SpecContext) {
		set := w.Create(ctx, fixture.NewSet("respecified", w.Key("respecified"), repel, "RespecifiedBroken"))
		except(ctx, newException("respecified", set, time.Hour, "conditionset/matches-healthy-nodes"))
		put(ctx, "spec", rule("r", "object.metadata.name != 'respecified'", exceptable))
		Eventually(setSays(ctx, set.Name, "Accepted"), soon).Should(HavePrefix("False RuleViolated"))
		except(ctx, newException("respecified-too", set, time.Hour, "spec/r"))
		Eventually(setSays(ctx, set.Name, "Accepted"), soon).Should(HavePrefix("True Admitted"))
		Eventually(exceptionSays(ctx, "respecified", "Ready")).Should(And(HavePrefix("True Active"), ContainSubstring("isn't needed for conditionset/matches-healthy-nodes")))

		w.Edit(ctx, set.Name, func(s *v1alpha1.ConditionSet) { s.Spec.Mode = v1alpha1.Observe })
		Eventually(setSays(ctx, set.Name, "Accepted"), soon).Should(HavePrefix("False RuleViolated: spec/r"))
		Eventually(exceptionSays(ctx, "respecified-too", "Ready")).Should(HavePrefix("False SpecChanged: "))
		Expect(exceptionSays(ctx, "respecified-too", "Stalled")()).To(HavePrefix("True SpecChanged"))
		w.Edit(ctx, set.Name, func(s *v1alpha1.ConditionSet) { s.Spec.Mode = "" })
		Eventually(setSays(ctx, set.Name, "Accepted"), soon).Should(HavePrefix("True Admitted"))
		Eventually(exceptionSays(ctx, "respecified-too", "Ready")).Should(HavePrefix("True Active"))

		By("deleting the set")
		w.Discard(ctx, set)
		Eventually(exceptionSays(ctx, "respecified-too", "Ready")).Should(HavePrefix("False TargetMissing: "))
	})

	It("from a built-in rule, annotated for the policy, ends by its date without any event, and the annotation alone opens nothing", func(ctx SpecContext) {
		const healthy = "conditionset/matches-healthy-nodes"
		nodes := w.AddNodes(ctx, 2, cluster.NodeOptions{Prefix: "annotated"})
		set := fixture.NewSet("annotated", w.Key("annotated"), repel)
		set.Annotations = map[string]string{v1alpha1.AnnotationExceptedRules: healthy}
		set.Spec.Conditions["KernelDeadlock"] = v1alpha1.MemberCondition{Status: v1alpha1.RequiredStatus{JSON: "false"}}
		Expect(create(ctx, set, client.DryRunAll).refusal).To(And(ContainSubstring("denied the request: "+healthy), Not(ContainSubstring("ValidatingAdmissionPolicy"))), "the policy can't see exceptions, and leaves it to the webhook")
		x := newException("annotated", set, 20*time.Second, healthy)
		except(ctx, x)
		plain := set.DeepCopy()
		plain.Annotations = nil
		Expect(create(ctx, plain, client.DryRunAll).refusal).To(ContainSubstring("ValidatingAdmissionPolicy"))

		w.Create(ctx, set)
		Eventually(setSays(ctx, set.Name, "Accepted")).Should(And(HavePrefix("True Admitted: "), ContainSubstring("GuardrailException annotated lifts "+healthy)))
		w.Report(ctx, nodes[0], "KernelDeadlock", corev1.ConditionFalse)
		Eventually(w.Effect(ctx, nodes[0], set.Spec.TaintKey)).Should(BeEquivalentTo(repel))
		ends, err := x.Spec.ExpiresAt.Time()
		Expect(err).NotTo(HaveOccurred())
		Eventually(setSays(ctx, set.Name, "Accepted"), time.Until(ends)+time.Second).Should(HavePrefix("False RuleViolated: " + healthy))
		w.Report(ctx, nodes[1], "KernelDeadlock", corev1.ConditionFalse)
		Consistently(w.Effect(ctx, nodes[1], set.Spec.TaintKey), "1s").Should(BeEmpty())

		By("changing the spec while another exception holds for it as it was, past the webhook")
		except(ctx, newException("annotated-again", set, time.Hour, healthy))
		Eventually(w.Effect(ctx, nodes[1], set.Spec.TaintKey)).Should(BeEquivalentTo(repel))
		withoutGates(ctx, func() { w.Edit(ctx, set.Name, func(s *v1alpha1.ConditionSet) { s.Spec.StaleAfter = "20m" }) })
		Eventually(setSays(ctx, set.Name, "Accepted")).Should(HavePrefix("False RuleViolated: " + healthy))
		Eventually(exceptionSays(ctx, "annotated-again", "Ready")).Should(HavePrefix("False SpecChanged: "))
	})

	It("has only its target judged again", func(ctx SpecContext) {
		target := w.Create(ctx, fixture.NewSet("judged-target", w.Key("judged"), repel, "JudgedBroken"))
		w.Create(ctx, fixture.NewSet("judged-other", w.Key("judged"), repel, "JudgedToo"))
		put(ctx, "judged", rule("r", "object.metadata.name != 'judged-target'", exceptable))
		Eventually(setSays(ctx, target.Name, "Accepted")).Should(HavePrefix("False"))
		x := newException("judged", target, time.Hour, "judged/r")
		judgedAgain(ctx, 1, "an exception that comes", func() {
			except(ctx, x)
			Eventually(setSays(ctx, target.Name, "Accepted"), soon).Should(HavePrefix("True"))
		})
		judgedAgain(ctx, 1, "one that is taken back", func() {
			Expect(w.Client.Delete(ctx, x)).To(Succeed())
			Eventually(setSays(ctx, target.Name, "Accepted"), soon).Should(HavePrefix("False"), "it lifts nothing any more")
		})
	})

	DescribeTable("is refused", func(ctx SpecContext, modify func(*v1alpha1.GuardrailException), want string) {
		set := fixture.NewSet("unexceptable", "example.com/unexceptable", repel, "UnexceptableBroken")
		x := newException("unexceptable", set, time.Hour, "conditionset/matches-healthy-nodes")
		modify(x)
		Expect(create(ctx, x).refusal).To(ContainSubstring(want))
	},
		Entry("for a rule that can't be lifted", func(x *v1alpha1.GuardrailException) { x.Spec.RuleIDs = []string{"conditionset/reserved-taint-key"} }, "guardrailexception/fixed-rule: conditionset/reserved-taint-key"),
		Entry("for longer than a week", func(x *v1alpha1.GuardrailException) {
			x.Spec.ExpiresAt = v1alpha1.Timestamp(time.Now().Add(8 * 24 * time.Hour).UTC().Format(time.RFC3339))
		}, "guardrailexception/too-long"),
		Entry("for what isn't a policy", func(x *v1alpha1.GuardrailException) { x.Spec.TargetRef.Kind = "Node" }, "guardrailexception/target-kind"),
		Entry("for a Guardrail", func(x *v1alpha1.GuardrailException) { x.Spec.TargetRef.Kind = "Guardrail" }, "guardrailexception/target-kind"),
		Entry("without a reason", func(x *v1alpha1.GuardrailException) { x.Spec.Reason = "why not" }, "spec.reason"),
	)

	It("is stored with a warning when it is over already, and lifts nothing", func(ctx SpecContext) {
		put(ctx, "over", rule("r", "object.metadata.name != 'over'", exceptable))
		set := fixture.NewSet("over", w.Key("over"), repel, "OverBroken")
		x := newException("over", set, time.Hour, "over/r")
		x.Spec.ExpiresAt = "2026-01-01T00:00:00Z"
		Expect(create(ctx, x, client.DryRunAll).warnings).To(ContainElement(ContainSubstring("guardrailexception/expired: ")))
		except(ctx, x)
		Eventually(exceptionSays(ctx, "over", "Ready")).Should(HavePrefix("True Expired: "))
		Expect(create(ctx, set, client.DryRunAll).refusal).To(ContainSubstring("over/r: "))
	})

	It("is stored with a warning before its rule is, and lifts it once it is", func(ctx SpecContext) {
		set := fixture.NewSet("early", w.Key("early"), repel, "EarlyBroken")
		x := newException("early", set, time.Hour, "early/r")
		Expect(create(ctx, x, client.DryRunAll).warnings).To(ContainElement(ContainSubstring(`guardrailexception/unknown-rule: no rule for ConditionSets has the id "early/r", so it lifts none until there is one`)))
		except(ctx, x)
		Eventually(exceptionSays(ctx, "early", "Ready")).Should(MatchRegexp("^True Waiting: Until .* it waits for a rule early/r for a ConditionSet"))
		put(ctx, "early", rule("r", "object.metadata.name != 'early'", exceptable))
		Eventually(exceptionSays(ctx, "early", "Ready")).Should(MatchRegexp("^True Waiting: Until .* it waits for ConditionSet early"))
		Expect(create(ctx, set, client.DryRunAll).refusal).To(BeEmpty())
	})

	It("that names a rule which may no longer be lifted lifts nothing", func(ctx SpecContext) {
		set := w.Create(ctx, fixture.NewSet("fixed", w.Key("fixed"), repel, "FixedBroken"))
		put(ctx, "fixing", rule("r", "object.metadata.name != 'fixed'", exceptable))
		except(ctx, newException("fixed", set, time.Hour, "fixing/r"))
		Eventually(setSays(ctx, "fixed", "Accepted"), soon).Should(HavePrefix("True"))
		put(ctx, "fixing", rule("r", "object.metadata.name != 'fixed'"))
		Eventually(setSays(ctx, "fixed", "Accepted"), soon).Should(HavePrefix("False RuleViolated: fixing/r"))
		Eventually(exceptionSays(ctx, "fixed", "Ready")).Should(HavePrefix("False RuleNotExceptable: It lifts nothing: fixing/r can't be lifted."))
	})
})
