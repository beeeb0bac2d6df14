package guard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// account answers for one account, and notes whom it was asked about.
type account struct {
	name     string
	decision authorizer.Decision
	err      error
	asked    []string
	deadline bool
}

func (a *account) Authorize(ctx context.Context, of authorizer.Attributes) (authorizer.Decision, string, error) {
	_, a.deadline = ctx.Deadline()
	a.asked = append(a.asked, strings.Join([]string{of.GetUser().GetName(), of.GetVerb(), of.GetAPIGroup(), of.GetResource(), of.GetNamespace()}, " "))
	if of.GetUser().GetName() == a.name {
		return a.decision, "", a.err
	}
	return authorizer.DecisionNoOpinion, "", nil
}

const (
	accountRule   = `{rules: [{name: account, kinds: [ConditionSet], expression: "authorizer.serviceAccount('prod', 'healer').group('').resource('pods').namespace('prod').check('delete').allowed() || object.spec.type == 'x'"}]}`
	requesterRule = `{rules: [{name: requester, kinds: [ConditionSet], expression: "authorizer.group('').resource('nodes').check('patch').allowed() || object.spec.type == 'x'"}]}`
	bothRule      = `{rules: [{name: both, kinds: [ConditionSet], expression: "authorizer.serviceAccount('prod', 'healer').group('').resource('pods').check('delete').allowed() || authorizer.group('').resource('nodes').check('patch').allowed()"}]}`
	serviceAcc    = "system:serviceaccount:prod:healer"
)

func TestRulesOverRights(t *testing.T) {
	for name, c := range map[string]struct {
		rule                   string
		authorizer             *account
		atAdmission, atRunTime bool
		asked                  []string
	}{
		"the service account may": {accountRule, &account{name: serviceAcc, decision: authorizer.DecisionAllow}, true, true,
			[]string{serviceAcc + " delete  pods prod", serviceAcc + " delete  pods prod"}},
		"it may not":            {accountRule, &account{name: serviceAcc, decision: authorizer.DecisionDeny}, false, false, nil},
		"nobody has an opinion": {accountRule, &account{}, false, false, nil},
		"a requester's rights aren't asked at run time": {requesterRule, &account{name: "jane", decision: authorizer.DecisionAllow}, true, true, []string{"jane patch  nodes "}},
		"the requester may not":                         {requesterRule, &account{}, false, true, []string{"jane patch  nodes "}},
		"a rule over both is asked at admission only": {bothRule, &account{name: "jane", decision: authorizer.DecisionAllow}, true, true,
			[]string{serviceAcc + " delete  pods ", "jane patch  nodes "}},
	} {
		t.Run(name, func(t *testing.T) {
			compiled, err := builtin()
			if err != nil {
				t.Fatal(err)
			}
			g := under(t, compiled, Options{Authorizer: c.authorizer})
			if r := g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", c.rule)}); !r[0].Verdict.Allowed {
				t.Fatal(r[0].Verdict.Message())
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			v := g.Review(ctx, Request{Operation: admissionv1.Create, Kind: "ConditionSet", Object: jsonOf(t, conditionSet(t, goodSpec)), UserInfo: authenticationv1.UserInfo{Username: "jane"}})
			if v.Allowed != c.atAdmission {
				t.Errorf("at admission: allowed %v: %s", v.Allowed, v.Message())
			}
			if len(c.authorizer.asked) > 0 && !c.authorizer.deadline {
				t.Error("asked without the request's deadline")
			}
			_, v = Admit(ctx, g, stored(t, goodSpec))
			if v.Allowed != c.atRunTime {
				t.Errorf("at run time: allowed %v: %s", v.Allowed, v.Message())
			}
			holdsAtRunTime := c.rule == accountRule
			if again := v.RecheckAt.Equal(noon.Add(45 * time.Second)); again != holdsAtRunTime {
				t.Errorf("look again at %s: rights change without an event", v.RecheckAt)
			}
			if c.asked != nil && !slices.Equal(c.authorizer.asked, c.asked) {
				t.Errorf("asked %q, want %q", c.authorizer.asked, c.asked)
			}
		})
	}
}

func TestWithoutAnAuthorizerItsRulesAreSkippedAndRefuse(t *testing.T) {
	g := newTestGuard(t, nil)
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", accountRule)})
	v := create(t, g, goodSpec)
	const want = "not checked, because nothing here can say what an account may do: platform/account"
	if v.Allowed || v.Message() != want || v.Skipped[len(v.Skipped)-1].Missing != "authorizer" {
		t.Errorf("allowed %v: %s", v.Allowed, v.Message())
	}
}

func TestRulesOverRightsArePortable(t *testing.T) {
	g := newTestGuard(t, nil)
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", accountRule)})
	rules := g.Rules("ConditionSet")
	last := rules[len(rules)-1]
	if last.ID != "platform/account" || last.Guardrail != "platform" || !last.Portable || !last.AtRunTime || !slices.Contains(last.Reads, "authorizer") {
		t.Errorf("got %+v", last)
	}
}

// A question without an answer looks like a no to an expression, and its author would look for a missing right.
func TestWithoutAnAnswerARuleIsNotChecked(t *testing.T) {
	const forbids = `{rules: [{name: account, kinds: [ConditionSet], expression: "!authorizer.serviceAccount('prod', 'healer').group('').resource('pods').check('delete').allowed()"}]}`
	for name, rule := range map[string]string{"a rule that asks for a right": accountRule, "a rule that asks for its absence": forbids} {
		t.Run(name, func(t *testing.T) {
			compiled, err := builtin()
			if err != nil {
				t.Fatal(err)
			}
			asked := &account{name: serviceAcc, err: errors.New("connection refused")}
			g := under(t, compiled, Options{Authorizer: asked})
			g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", rule)})
			const want = "platform/account: not checked: ask what system:serviceaccount:prod:healer may do: connection refused"
			if v := create(t, g, goodSpec); !v.Undecided() || v.Message() != want {
				t.Errorf("at admission: undecided %v: %s", v.Undecided(), v.Message())
			}
			validated, v := Admit(t.Context(), g, stored(t, goodSpec))
			if v.Allowed || validated.Valid() || v.Message() != want {
				t.Errorf("at run time: allowed %v: %s", v.Allowed, v.Message())
			}
			if !v.RecheckAt.Equal(noon.Add(10 * time.Second)) {
				t.Errorf("asks again at %s", v.RecheckAt)
			}
		})
	}
}
