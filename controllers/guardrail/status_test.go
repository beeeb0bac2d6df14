package guardrail

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/probing"
)

func stored(t *testing.T, spec string) *v1alpha1.Guardrail {
	t.Helper()
	g := &v1alpha1.Guardrail{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autohealer.resourcestack.com/v1alpha1", Kind: "Guardrail"},
		ObjectMeta: metav1.ObjectMeta{Name: "platform", Generation: 2},
		Status:     v1alpha1.GuardrailStatus{ObservedGeneration: -1},
	}
	if err := yaml.UnmarshalStrict([]byte(spec), &g.Spec); err != nil {
		t.Fatal(err)
	}
	return g
}

// A manager that takes over hasn't looked at witnesses yet, and one of a Guardrail may not be named any more.
func TestSilentWitnessesStayToldUntilSomebodyLooked(t *testing.T) {
	g := stored(t, "{witnesses: [{name: a, address: 'a.example.com:443'}]}")
	fine := guard.GuardrailResult{Verdict: guard.Verdict{Allowed: true}}
	silent := []probing.SilentWitness{{Name: "a", Address: "a.example.com:443", Reason: "Dial: the connection was refused"}}
	told := func(st state) bool {
		st.result = fine
		g.Status = statusOf(g, st)
		return meta.IsStatusConditionTrue(g.Status.Conditions, "WitnessSilent")
	}
	if !told(state{looked: true, silent: silent}) || !told(state{}) {
		t.Error("it isn't told, or no more by a manager that has just begun")
	}
	if told(state{looked: true}) {
		t.Error("it is told of one that answers")
	}
	told(state{looked: true, silent: silent})
	g.Spec.Witnesses[0].Address = "b.example.com:443"
	if told(state{looked: true, silent: silent}) {
		t.Error("it is told of an address that isn't named any more")
	}
	told(state{looked: true, silent: silent})
	g.Spec.Witnesses = nil
	if told(state{}) {
		t.Error("it is told of a Guardrail without witnesses")
	}
}

func TestWhatEachGuardrailsStatusSays(t *testing.T) {
	fine := guard.Verdict{Allowed: true, RuleSetHash: "abc"}
	const admitted = "Accepted=True Admitted: All rules admit it (rule set abc)."
	const stricter = "See Accepted. Until it is repaired it only makes things stricter: a rule that can't be evaluated refuses all of its kinds, and no limit is raised. "
	for name, c := range map[string]struct {
		spec    string
		state   state
		want    []string
		kstatus status.Status
	}{
		"empty": {"{}", state{result: guard.GuardrailResult{Verdict: fine}}, []string{
			admitted, "Ready=True Operative: The Guardrail sets nothing.",
		}, status.CurrentStatus},
		"with all that there is": {
			"{limits: {maxTaintedNodes: 5%, maxEvictingNodes: 2, maxPodDeletionsPerMinute: 30}, conditionTypes: [{type: A, healthyStatus: 'True'}], conditionSetPrecedence: Node}",
			state{result: guard.GuardrailResult{Rules: 2, Verdict: fine}, rejected: []string{"ConditionSet/a"}},
			[]string{admitted, "Ready=True Operative: The Guardrail sets 2 rules, maxTaintedNodes 5%, maxEvictingNodes 2, maxPodDeletionsPerMinute 30, 1 condition type, precedence Node. Its rules refuse 1 stored policy; see rejectedPolicies."},
			status.CurrentStatus,
		},
		"with witnesses of which one is silent": {
			"{limits: {maxTargetsFailingTogether: 30%}, witnesses: [{name: a, address: 'a.example.com:443'}, {name: b, address: 'b.example.com:443'}]}",
			state{result: guard.GuardrailResult{Verdict: fine}, looked: true, silent: []probing.SilentWitness{{Name: "b", Address: "b.example.com:443", Reason: "Dial: the connection was refused"}}},
			[]string{
				admitted, "Ready=True Operative: The Guardrail sets maxTargetsFailingTogether 30%, 2 witnesses.",
				"WitnessSilent=True NoAnswer: The TLS handshake with 1 of 2 witnesses failed: b (b.example.com:443): Dial: the connection was refused.",
			}, status.CurrentStatus,
		},
		"with a witness that is silent": {
			"{witnesses: [{name: a, address: 'a.example.com:443'}]}",
			state{result: guard.GuardrailResult{Verdict: fine}, looked: true, silent: []probing.SilentWitness{{Name: "a", Address: "a.example.com:443", Reason: "Dial: the connection was refused"}}},
			[]string{
				admitted, "Ready=True Operative: The Guardrail sets 1 witness.",
				"WitnessSilent=True NoAnswer: The TLS handshake with 1 of 1 witness failed: a (a.example.com:443): Dial: the connection was refused. While none answers, nobody vouches for targets of ProbeConfigs that fail together, and the breaker holds them back.",
			}, status.CurrentStatus,
		},
		"paused": {"{paused: true}", state{result: guard.GuardrailResult{Rules: 1, Verdict: fine}}, []string{
			admitted, "Ready=True Paused: Nothing new is done in the whole cluster; undo goes on. The Guardrail sets 1 rule.",
		}, status.CurrentStatus},
		"a rule that doesn't compile": {"{}", state{result: guard.GuardrailResult{Verdict: fine, Errors: []guard.RuleError{{Rule: "r", Field: "expression", Kind: "ConditionSet", Message: "1:12: undefined field 'efect'"}}}}, []string{
			"Accepted=False InvalidRule: rule r, expression for ConditionSet, 1:12: undefined field 'efect'",
			"Ready=False InvalidRule: " + stricter + "The Guardrail sets nothing.",
			"Stalled=True InvalidRule: rule r, expression for ConditionSet, 1:12: undefined field 'efect'",
		}, status.FailedStatus},
		"a rule refuses it": {"{paused: true}", state{result: guard.GuardrailResult{Verdict: guard.Verdict{Violations: []guard.Violation{{Rule: "guardrail/x", Severity: guard.Deny, Message: "no", Docs: "d"}}}}}, []string{
			"Accepted=False RuleViolated: guardrail/x: no (d)",
			"Ready=False RuleViolated: " + stricter + "Nothing new is done in the whole cluster; undo goes on. The Guardrail sets nothing.",
			"Stalled=True RuleViolated: guardrail/x: no (d)",
		}, status.FailedStatus},
		"a rule can't be asked": {"{}", state{result: guard.GuardrailResult{Verdict: guard.Verdict{Skipped: []guard.Skip{{Rule: "guardrail/x", Severity: guard.Deny, Reason: "why"}}}}}, []string{
			"Accepted=False RulesNotEvaluated: guardrail/x: not checked: why",
			"Ready=False RulesNotEvaluated: " + stricter + "The Guardrail sets nothing.",
			"Stalled=True RulesNotEvaluated: guardrail/x: not checked: why",
		}, status.FailedStatus},
	} {
		t.Run(name, func(t *testing.T) {
			g := stored(t, c.spec)
			if got := computed(t, g); got != status.InProgressStatus {
				t.Errorf("before the first look it is %s", got)
			}
			g.Status = statusOf(g, c.state)
			var got []string
			for _, c := range g.Status.Conditions {
				got = append(got, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
				if c.ObservedGeneration != 2 {
					t.Errorf("%s is of generation %d", c.Type, c.ObservedGeneration)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%q, want\n%q", got, c.want)
			}
			if got := computed(t, g); got != c.kstatus {
				t.Errorf("kstatus is %s, want %s", got, c.kstatus)
			}
			if again := statusOf(g, c.state); !equality.Semantic.DeepEqual(again, g.Status) {
				t.Error("the same state gives another status")
			}
		})
	}
}

func TestRejectedPoliciesAreCountedAndSomeNamed(t *testing.T) {
	var all []string
	for i := range 30 {
		all = append(all, fmt.Sprintf("ConditionSet/%02d", i))
	}
	g := stored(t, "{}")
	g.Status = statusOf(g, state{result: guard.GuardrailResult{Verdict: guard.Verdict{Allowed: true}}, rejected: all})
	if *g.Status.Rejects != 30 || len(g.Status.RejectedPolicies) != 20 || g.Status.RejectedPolicies[19] != "ConditionSet/19" {
		t.Errorf("rejects %d, names %q", *g.Status.Rejects, g.Status.RejectedPolicies)
	}
	if g.Status = statusOf(g, state{}); *g.Status.Rejects != 0 || g.Status.RejectedPolicies != nil {
		t.Errorf("nothing is rejected any more, and still %q", g.Status.RejectedPolicies)
	}
}

// computed is what GitOps tools make of it.
func computed(t *testing.T, g *v1alpha1.Guardrail) status.Status {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(g)
	if err != nil {
		t.Fatal(err)
	}
	result, err := status.Compute(&unstructured.Unstructured{Object: content})
	if err != nil {
		t.Fatal(err)
	}
	return result.Status
}
