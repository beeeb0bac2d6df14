package guard

import (
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// TestRulesOverWhoAsksAreSkippedWhereNobodyDoes: neither refuses what they say of nobody, nor do they admit it; nobody's
// rights are asked for.
func TestRulesOverWhoAsksAreSkippedWhereNobodyDoes(t *testing.T) {
	for name, expression := range map[string]string{
		"groups":             "request.userInfo.groups.exists(g, g == 'operators')",
		"groups, if any":     "request.?userInfo.?groups.orValue([]).all(g, g != 'interns')",
		"all of the request": "dyn(request) != null",
		"rights":             "authorizer.group('').resource('nodes').check('patch').allowed()",
		"rights of who isn't in a service account": "!authorizer.group('').resource('nodes').check('patch').allowed()",
	} {
		t.Run(name, func(t *testing.T) {
			compiled, err := builtin()
			if err != nil {
				t.Fatal(err)
			}
			asked := &account{name: "jane", decision: authorizer.DecisionAllow}
			g := under(t, compiled, Options{Authorizer: asked})
			results := g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "org", `{rules: [{name: who, kinds: [ConditionSet], expression: "`+expression+`"}]}`)})
			if len(results[0].Errors) > 0 {
				t.Fatal(results[0].Errors)
			}
			v := create(t, g, goodSpec)
			const want = "not checked, because the user who asks isn't known: org/who"
			if last := v.Skipped[len(v.Skipped)-1]; v.Allowed || v.Message() != want || last.Missing != "request" {
				t.Errorf("allowed %v: %s (%+v)", v.Allowed, v.Message(), last)
			}
			if len(asked.asked) > 0 {
				t.Errorf("asked what nobody may do: %q", asked.asked)
			}
			v = g.Review(t.Context(), Request{
				Operation: admissionv1.Create, Kind: "ConditionSet", Object: jsonOf(t, conditionSet(t, goodSpec)), UserInfo: authenticationv1.UserInfo{Username: "jane", Groups: []string{"operators"}},
			})
			for _, skip := range v.Skipped {
				if skip.Missing == "request" {
					t.Errorf("skipped although jane asks: %+v", skip)
				}
			}
		})
	}
}

// TestARuleOverTheRequestAloneIsAsked: of a request without a user the operation is known.
func TestARuleOverTheRequestAloneIsAsked(t *testing.T) {
	g := newTestGuard(t, nil)
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "org", `{rules: [{name: never, kinds: [ConditionSet], expression: "request.operation != 'CREATE'"}]}`)})
	if v := create(t, g, goodSpec); v.Allowed || len(v.Violations) != 1 || v.Violations[0].Rule != "org/never" {
		t.Errorf("got %+v", v)
	}
}
