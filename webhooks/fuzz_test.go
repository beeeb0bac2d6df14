package webhooks

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// FuzzHandler: whatever is posted, the answer is an AdmissionReview, nothing panics, and nothing is admitted that isn't a
// review with a request.
func FuzzHandler(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "null", "[]", `{"kind":"Pod","apiVersion":"v1"}`,
		review("CREATE", goodSet, "null"), review("CREATE", badSet, "null"), review("UPDATE", goodSet, badSet), review("DELETE", "null", goodSet),
		review("CREATE", `{"kind":"ConditionSet","spec":{"conditions":{"a":{"status":{}}}}}`, "null"),
		review("CREATE", `{"kind":"ConditionSet","metadata":5,"spec":[]}`, "null"),
		review("UPDATE", goodSet, `{"kind":"ConditionSet","metadata":{"deletionTimestamp":7}}`),
		review("CREATE", strings.Repeat("[", 5000), "null"),
		reviewOf("Guardrail", "CREATE", badRail, "null"), reviewOf("Guardrail", "UPDATE", pause, badRail), reviewOf("Guardrail", "CREATE", `{"kind":"Guardrail","spec":{"rules":7}}`, "null"),
		reviewOf("GuardrailException", "CREATE", badXcpt, "null"), reviewOf("GuardrailException", "UPDATE", `{"kind":"GuardrailException","spec":{"expiresAt":"x"}}`, badXcpt),
		reviewOf("WeederConfig", "CREATE", weedCfg, "null"), reviewOf("WeederConfig", "UPDATE", weedCfg, `{"kind":"WeederConfig","spec":{"servicesAndDependantSelectors":[]}}`),
		reviewOf("ProbeConfig", "CREATE", prober, "null"), reviewOf("ProbeConfig", "CREATE", `{"kind":"ProbeConfig","spec":{"backoffJitterFactor":"x"}}`, "null"),
	} {
		f.Add([]byte(seed))
	}
	judged := []string{"ConditionSet", "Guardrail", "GuardrailException", "ProbeConfig", "WeederConfig"}
	h := New(knowing(f))
	f.Fuzz(func(t *testing.T, body []byte) {
		var asked admissionv1.AdmissionReview
		answer := answered(t, h, string(body))
		if answer.Allowed && (json.Unmarshal(body, &asked) != nil || asked.Request == nil || !slices.Contains(judged, asked.Request.Kind.Kind)) {
			t.Fatalf("admitted what is no review of ours:\n%s", body)
		}
	})
}

// FuzzReview: whatever an object of ours looks like, its review is answered, twice in the same way, and a refusal says why.
// The seeds are the examples of every rule, in each of its verdicts.
func FuzzReview(f *testing.F) {
	g := knowing(f)
	kinds, h := g.Kinds(), New(g)
	for i, kind := range kinds {
		for _, rule := range g.Rules(kind) {
			for _, test := range rule.Tests {
				f.Add(byte(i), test.OldObject != nil, whole(f, kind, &test.Object), whole(f, kind, test.OldObject))
			}
		}
	}
	f.Fuzz(func(t *testing.T, which byte, isUpdate bool, object, oldObject []byte) {
		if !json.Valid(object) || !json.Valid(oldObject) {
			t.Skip("FuzzHandler asks what isn't JSON")
		}
		operation := "CREATE"
		if isUpdate {
			operation = "UPDATE"
		}
		body := reviewOf(kinds[int(which)%len(kinds)], operation, string(object), string(oldObject))
		first, second := answered(t, h, body), answered(t, h, body)
		if first.Allowed != second.Allowed || first.Result.Message != second.Result.Message {
			t.Errorf("one review, two answers:\n%+v\n%+v", first, second)
		}
		if !first.Allowed && strings.TrimSpace(first.Result.Message) == "" {
			t.Error("refused without a reason")
		}
	})
}

// whole is a test's object as the API server sends it.
func whole(f *testing.F, kind string, example *runtime.RawExtension) []byte {
	f.Helper()
	if example == nil {
		return []byte("null")
	}
	var object map[string]any
	if err := json.Unmarshal(example.Raw, &object); err != nil {
		f.Fatal(err)
	}
	object["apiVersion"], object["kind"] = "autohealer.resourcestack.com/v1alpha1", kind
	if object["metadata"] == nil {
		object["metadata"] = map[string]any{"name": "x", "namespace": "prod", "creationTimestamp": "2026-03-01T12:00:00Z"}
	}
	body, err := json.Marshal(object)
	if err != nil {
		f.Fatal(err)
	}
	return body
}

// answered wants an AdmissionReview that no panic wrote.
func answered(t *testing.T, h http.Handler, body string) *admissionv1.AdmissionResponse {
	t.Helper()
	answer := ask(t, h, "/", body)
	if answer.Result == nil {
		t.Fatalf("an answer without a result: %+v", answer)
	}
	if strings.Contains(answer.Result.Message, "[recovered]") {
		t.Fatalf("panicked: %s", answer.Result.Message)
	}
	return &answer
}
