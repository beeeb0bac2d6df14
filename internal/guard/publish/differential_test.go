package publish_test

import (
	"bytes"
	"context"
	"fmt"
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
	s.denied = map[string]int{}
	stored := s.storeBeforePolicy(t, random, 40)
	s.installPolicy(t, g)
	s.checkTypes(t)

	compared := 0
	for i := range 400 {
		object := randomSet(random, fmt.Sprintf("new-%d", i))
		if s.agree(t, g, object, nil) {
			compared++
		}
	}
	for range 200 {
		old := stored[random.IntN(len(stored))]
		if s.agree(t, g, mutate(random, old), old) {
			compared++
		}
	}
	t.Logf("%d of 600 objects passed the schema; refused by %v, left alone by an update %d times", compared, s.denied, s.unchanged)
	if compared < 450 || len(s.denied) != 6 || s.unchanged == 0 {
		t.Error("the random objects don't reach every rule")
	}
}

var policyPrefix = regexp.MustCompile(`^Validation failed for ValidatingAdmissionPolicy 'autohealer-conditionset' with binding 'warning': `)

// agree compares the verdicts; false when the object didn't even pass the schema.
func (s *server) agree(t *testing.T, g *guard.Guard, object, old *unstructured.Unstructured) bool {
	t.Helper()
	texts, err := s.ask(t, object, old)
	if apierrors.IsInvalid(err) {
		return false
	}
	if err != nil && !apierrors.IsForbidden(err) {
		t.Fatalf("unexpected error: %v\n%v", err, object)
	}
	for i := range texts {
		texts[i] = policyPrefix.ReplaceAllString(texts[i], "")
	}
	want := s.portableRefusals(g, object, old)
	whole := strings.Join(want, "; ") // every violated rule has the lines of all, and equal warnings come once
	if strings.Join(texts, "\n") != whole || (err != nil) != (len(want) > 0) {
		t.Errorf("the API server says\n  %s\n  (error %v)\nthe engine says\n  %s\nof %v\nbefore %v",
			strings.Join(texts, "\n  "), err, strings.Join(want, "\n  "), object.Object["spec"], old)
	}
	if err != nil && !strings.HasSuffix(err.Error(), " denied request: "+whole) {
		t.Errorf("the refusal says something else: %v", err)
	}
	return true
}

// portableRefusals are the engine's lines for the rules that the policy has.
func (s *server) portableRefusals(g *guard.Guard, object, old *unstructured.Unstructured) []string {
	portable := map[string]bool{}
	for _, rule := range g.Rules("ConditionSet") {
		portable[rule.ID] = rule.Portable
	}
	request := guard.Request{Operation: admissionv1.Create, Object: object.Object}
	if old != nil {
		request.Operation, request.OldObject = admissionv1.Update, old.Object
	}
	var lines []string
	for _, v := range g.Review(context.Background(), request).Violations {
		if v.Unchanged {
			s.unchanged++
		}
		if portable[v.Rule] && v.Severity == guard.Deny {
			s.denied[v.Rule]++
			lines = append(lines, v.String())
		}
	}
	return lines
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
