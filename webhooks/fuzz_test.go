package webhooks

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/resourcestack/autohealer/internal/domain/condition"
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
		reviewOf("WeederConfig", "CREATE", weeder, "null"),
	} {
		f.Add([]byte(seed))
	}
	judged := []string{"ConditionSet", "Guardrail", "GuardrailException", "WeederConfig"}
	h := newWebhook(f, facts{preview: condition.Preview{Limit: 1, UnionLimit: 1}})
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(body)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var answer, asked admissionv1.AdmissionReview
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Response == nil {
			t.Fatalf("no AdmissionReview: %v\n%s", err, w.Body)
		}
		if answer.Response.Result != nil && strings.Contains(answer.Response.Result.Message, "[recovered]") {
			t.Fatalf("panicked: %s", answer.Response.Result.Message)
		}
		if answer.Response.Allowed && (json.Unmarshal(body, &asked) != nil || asked.Request == nil || !slices.Contains(judged, asked.Request.Kind.Kind)) {
			t.Fatalf("admitted what is no review of ours:\n%s", body)
		}
	})
}
