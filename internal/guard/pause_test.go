package guard

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

func TestNoRuleRefusesWhatOnlyPauses(t *testing.T) {
	const (
		strict = `{rules: [{name: never, kinds: [Guardrail], expression: "!has(object.spec.paused) || has(object.spec.limits) && has(object.spec.rules)"}]}`
		broken = `{rules: [{name: never, kinds: [Guardrail], expression: "object.spec.pausd"}]}`
		limits = "limits: {maxTaintedNodes: 20%}"
	)
	for name, c := range map[string]struct {
		rule, name, old, spec string
		allowed               bool
	}{
		"an update that only pauses":                                 {strict, "x", "{" + limits + "}", "{" + limits + ", paused: true}", true},
		"one from paused: false":                                     {strict, "x", "{paused: false, " + limits + "}", "{" + limits + ", paused: true}", true},
		"one where the rule can't be evaluated":                      {broken, "x", "{}", "{paused: true}", true},
		"one of a Guardrail whose name a built-in rule refuses":      {strict, "conditionset", "{}", "{paused: true}", true},
		"an update that pauses and raises a limit":                   {strict, "x", "{" + limits + "}", "{limits: {maxTaintedNodes: 90%}, paused: true}", false},
		"one that pauses and says something new":                     {strict, "x", "{}", "{" + limits + ", paused: true}", false},
		"one that pauses and says something no more":                 {strict, "x", "{" + limits + "}", "{paused: true}", false},
		"one of a paused Guardrail":                                  {strict, "x", "{paused: true}", "{" + limits + ", paused: true}", false},
		"a Guardrail that only pauses":                               {strict, "x", "", "{paused: true}", true},
		"such a one where the rule can't be evaluated":               {broken, "x", "", "{paused: true}", true},
		"a Guardrail that pauses and sets limits":                    {strict, "x", "", "{" + limits + ", paused: true}", false},
		"a Guardrail that only pauses, with a name that is reserved": {strict, "conditionset", "", "{paused: true}", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTestGuard(t, nil)
			g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "strict", c.rule)})
			of := func(spec string) map[string]any {
				content := object(t, "{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: Guardrail, metadata: {name: "+c.name+"}}")
				content["spec"] = object(t, spec)
				return content
			}
			req := creating(t, of(c.spec))
			if c.old != "" {
				req.Operation, req.OldObject = admissionv1.Update, jsonOf(t, of(c.old))
			}
			v := g.Review(t.Context(), req)
			if v.Allowed != c.allowed {
				t.Errorf("allowed %v: %s", v.Allowed, v.Message())
			}
			if said := strings.Join(append(v.Warnings(), v.Message()), "\n"); !strings.Contains(said, "strict/never: ") {
				t.Errorf("nobody is told of the rule: %s", said)
			}
		})
	}
}
