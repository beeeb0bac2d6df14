package guard

import (
	"errors"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// TestWhatDoesNotFitIsSaidInWords: an object that a schema let through and its Go type can't hold.
func TestWhatDoesNotFitIsSaidInWords(t *testing.T) {
	for given, want := range map[string]string{
		`{"metadata": {"labels": {"a": 1}}}`:                         "metadata.labels has a number where a string belongs",
		`{"spec": {"effect": ["NoExecute"]}}`:                        "spec.effect has a list where a string belongs",
		`{"spec": {"conditions": "Ready"}}`:                          "spec.conditions has a string where a map belongs",
		`{"spec": {"includeControlPlane": "yes"}}`:                   "spec.includeControlPlane has a string where true or false belongs",
		`{"metadata": {"generation": 99999999999999999999}}`:         "metadata.generation has number 99999999999999999999, which is too large or has a fraction; write an integer",
		`{"metadata": {"name": {"first": "a"}}, "spec": {"for": 5}}`: "metadata.name has a map where a string belongs",
	} {
		_, err := readObject("ConditionSet", []byte(given))
		if want = "the ConditionSet can't be read: " + want; err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", given, err, want)
		}
	}
	if what, isMisfit := TypeMismatch(errors.New("another"), "spec"); isMisfit {
		t.Error(what)
	}
}

// TestATestsPlanThatDoesNotFitIsSaidInWords.
func TestATestsPlanThatDoesNotFitIsSaidInWords(t *testing.T) {
	g, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	test := Test{GuardrailRuleTest: v1alpha1.GuardrailRuleTest{Object: runtime.RawExtension{Raw: []byte(`{"spec": {"type": "A", "effect": "NoSchedule", "taintKey": "a", "conditions": {"A": {"status": true}}}}`)}, Plan: &runtime.RawExtension{Raw: []byte(`{"matching": "all"}`)}}}
	if _, err := g.RunTest(t.Context(), "ConditionSet", test); err == nil || err.Error() != "read plan: matching has a string where an integer belongs" {
		t.Error(err)
	}
	if v := g.Review(t.Context(), Request{Operation: admissionv1.Create, Kind: "ConditionSet", Object: []byte(`{"spec": {"type": 7}}`)}); v.Message() != "guard/object: not checked: the ConditionSet can't be read: spec.type has a number where a string belongs" {
		t.Error(v.Message())
	}
}
