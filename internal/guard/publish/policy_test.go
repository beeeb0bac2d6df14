package publish_test

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/guard/publish"
)

// The webhook serves all kinds: an object that one of them doesn't judge must not need it, either.
func TestTheWebhookHasTheConditionsOfThePolicies(t *testing.T) {
	text, err := os.ReadFile("../../../config/webhook/configuration/validating.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var webhook admissionregistrationv1.ValidatingWebhookConfiguration
	if err := yaml.UnmarshalStrict(text, &webhook); err != nil {
		t.Fatal(err)
	}
	if got, want := webhook.Webhooks[0].MatchConditions, publish.MatchConditions("Guardrail"); !slices.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

func TestEveryKindsPolicyIsReadStrictly(t *testing.T) {
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range g.Kinds() {
		text, err := publish.Policy(g, kind)
		if err != nil {
			t.Fatal(err)
		}
		documents := bytes.Split(text, []byte("---\n"))
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
		if err := errors.Join(yaml.UnmarshalStrict(documents[1], &policy), yaml.UnmarshalStrict(documents[2], &binding)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		// A deletion is in nobody's way: a rule that is a mistake, and a policy that does harm, can always be deleted.
		for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
			if !slices.Equal(rule.Operations, []admissionregistrationv1.OperationType{"CREATE", "UPDATE"}) {
				t.Errorf("%s: the policy is asked about %v", kind, rule.Operations)
			}
		}
		conditions := 2
		if kind == "Guardrail" {
			conditions = 4 // neither a pause nor the freeze is judged
		}
		if len(policy.Spec.Validations) == 0 || *policy.Spec.FailurePolicy != admissionregistrationv1.Fail || len(policy.Spec.MatchConditions) != conditions || binding.Spec.PolicyName != policy.Name {
			t.Errorf("%s: %d rules, failure policy %s, %d match conditions, bound to %s", kind, len(policy.Spec.Validations), *policy.Spec.FailurePolicy, len(policy.Spec.MatchConditions), binding.Spec.PolicyName)
		}
	}
}

// TestThePolicyNamesWhatTheServerKnows decodes the policy strictly: an unknown field would be dropped in silence.
func TestThePolicyNamesWhatTheServerKnows(t *testing.T) {
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := publish.Policy(g, "ConditionSet")
	if err != nil {
		t.Fatal(err)
	}
	documents := bytes.Split(text, []byte("---\n"))
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	if err := yaml.UnmarshalStrict(documents[1], &policy); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, v := range policy.Spec.Validations {
		id, _, _ := strings.Cut(v.Message, ":")
		ids = append(ids, id)
		if *v.Reason != metav1.StatusReasonForbidden {
			t.Errorf("%s: reason %s", id, *v.Reason)
		}
	}
	want := []string{
		"conditionset/matches-healthy-nodes", "conditionset/sounds-healthy-evicts", "conditionset/malformed-condition-type", "conditionset/obsolete-condition", "conditionset/unknown-only-evicts",
		"conditionset/node-ready-belongs-to-kcm", "conditionset/reserved-taint-key", "conditionset/always-stale", "conditionset/empty-cap",
	}
	if !slices.Equal(ids, want) || *policy.Spec.FailurePolicy != admissionregistrationv1.Fail || len(policy.Spec.MatchConditions) != 2 {
		t.Errorf("rules %v, failure policy %s, %d match conditions", ids, *policy.Spec.FailurePolicy, len(policy.Spec.MatchConditions))
	}
}
