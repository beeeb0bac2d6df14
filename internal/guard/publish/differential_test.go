package publish_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/guard/publish"
)

// TestThePolicyAndTheEngineGiveTheSameVerdicts asks a real API server that runs the generated policy, and the engine, about
// the same random objects, and wants the same rules with the same words.
func TestThePolicyAndTheEngineGiveTheSameVerdicts(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("AUTOHEALER_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d; set AUTOHEALER_TEST_SEED to repeat", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t)
	for _, of := range subjects {
		t.Run(of.kind, func(t *testing.T) { s.compare(of).run(t, g, random) })
	}
}

func (c *comparison) run(t *testing.T, g *guard.Guard, random *rand.Rand) {
	stored := c.storeBeforePolicy(t, random, 40)
	c.installPolicy(t, g, c.badOne(t, g, random))
	c.checkTypes(t)
	compared := 0
	for i := range 400 {
		if c.agree(t, g, c.object(random, "new", i), nil) {
			compared++
		}
	}
	for range 200 {
		old := stored[random.IntN(len(stored))]
		if c.agree(t, g, c.mutate(random, old), old) {
			compared++
		}
	}
	t.Logf("%d of 600 objects passed the schema; refused by %v, left alone by an update %d times, an annotated rule %d times", compared, c.denied, c.unchanged, c.annotated)
	if compared < 250 || len(c.denied) != c.rules || c.unchanged == 0 {
		t.Error("the random objects don't reach every rule")
	}
}

// badOne is an object that one rule of the policy refuses, and the schema doesn't.
func (c *comparison) badOne(t *testing.T, g *guard.Guard, random *rand.Rand) *unstructured.Unstructured {
	t.Helper()
	for i := range 1000 {
		object := c.object(random, "bad", i)
		if _, err := c.ask(t, object, nil); err == nil && len(c.portableRefusals(g, object, nil)) == 1 {
			return object
		}
	}
	t.Fatal("no random object is refused by one rule")
	return nil
}

var (
	policyPrefix = regexp.MustCompile(`^Validation failed for ValidatingAdmissionPolicy 'autohealer-[a-z]+' with binding 'warning-[a-z]+': `)
	// moment is a time in a message: the server's clock and ours differ by the time of a request.
	moment = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,12}(Z|[+-][0-9:]{5})`)
)

// agree compares the verdicts; false when the object didn't even pass the schema.
func (c *comparison) agree(t *testing.T, g *guard.Guard, object, old *unstructured.Unstructured) bool {
	t.Helper()
	texts, err := c.ask(t, object, old)
	if apierrors.IsInvalid(err) || apierrors.IsAlreadyExists(err) {
		return false
	}
	if err != nil && !apierrors.IsForbidden(err) {
		t.Fatalf("unexpected error: %v\n%v", err, object)
	}
	for i := range texts {
		texts[i] = moment.ReplaceAllString(policyPrefix.ReplaceAllString(texts[i], ""), "<time>")
	}
	want := c.portableRefusals(g, object, old)
	whole := moment.ReplaceAllString(strings.Join(want, "; "), "<time>") // every violated rule has the lines of all, and equal warnings come once
	if strings.Join(texts, "\n") != whole || (err != nil) != (len(want) > 0) {
		t.Errorf("the API server says\n  %s\n  (error %v)\nthe engine says\n  %s\nof %v\nbefore %v",
			strings.Join(texts, "\n  "), err, strings.Join(want, "\n  "), object.Object["spec"], old)
	}
	if err != nil && !strings.HasSuffix(moment.ReplaceAllString(err.Error(), "<time>"), " denied request: "+whole) {
		t.Errorf("the refusal says something else: %v", err)
	}
	return true
}

// portableRefusals are the engine's lines for the rules that the policy has.
func (c *comparison) portableRefusals(g *guard.Guard, object, old *unstructured.Unstructured) []string {
	portable := map[string]bool{}
	for _, rule := range g.Rules(c.kind) { // the policy leaves to the webhook what may be lifted and is annotated
		annotated := strings.Contains(object.GetAnnotations()[exceptedRules], rule.ID)
		portable[rule.ID] = rule.Portable && (!rule.Exceptable || !annotated)
		if annotated && rule.Exceptable {
			c.annotated++
		}
	}
	request := guard.Request{Operation: admissionv1.Create, Object: object.Object}
	if old != nil {
		request.Operation, request.OldObject = admissionv1.Update, old.Object
	}
	verdict := g.Review(context.Background(), request)
	var lines []string
	for _, v := range verdict.Violations {
		if v.Unchanged {
			c.unchanged++
		}
		if portable[v.Rule] && v.Severity == guard.Deny {
			c.denied[v.Rule]++
			lines = append(lines, v.String())
		}
	}
	return lines
}

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
		"conditionset/matches-healthy-nodes", "conditionset/obsolete-condition", "conditionset/unknown-only-evicts",
		"conditionset/node-ready-belongs-to-kcm", "conditionset/reserved-taint-key", "conditionset/empty-cap",
	}
	if !slices.Equal(ids, want) || *policy.Spec.FailurePolicy != admissionregistrationv1.Fail || len(policy.Spec.MatchConditions) != 2 {
		t.Errorf("rules %v, failure policy %s, %d match conditions", ids, *policy.Spec.FailurePolicy, len(policy.Spec.MatchConditions))
	}
}
