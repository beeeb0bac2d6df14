package webhooks

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/guard"
)

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard())
	m.Run()
}

// facts answer with one forecast, or break.
type facts struct {
	unsynced, panics bool
	forecast         condition.Forecast
}

func (f facts) Synced() bool                { return !f.unsynced }
func (f facts) Age(time.Time) time.Duration { return 0 }
func (f facts) Nodes() int                  { return 40 }
func (f facts) ForecastConditionSet(*v1alpha1.ConditionSet, limit.Limits, time.Time) condition.Forecast {
	if f.panics {
		panic("the planner broke")
	}
	return f.forecast
}

const (
	badSet  = `{"apiVersion":"autohealer.resourcestack.com/v1alpha1","kind":"ConditionSet","metadata":{"name":"bad"},"spec":{"type":"Ready","effect":"NoSchedule","taintKey":"k8s.io/ready","conditions":{"Ready":{"status":true}}}}`
	goodSet = `{"apiVersion":"autohealer.resourcestack.com/v1alpha1","kind":"ConditionSet","metadata":{"name":"good"},"spec":{"type":"KernelDeadlock","effect":"NoExecute","taintKey":"example.com/kernel","conditions":{"KernelDeadlock":{"status":true}}}}`
)

// review is an AdmissionReview of a ConditionSet as the API server writes it.
func review(operation, object, oldObject string) string {
	return reviewOf("ConditionSet", operation, object, oldObject)
}

func reviewOf(kind, operation, object, oldObject string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1","operation":"` + operation +
		`","kind":{"group":"autohealer.resourcestack.com","version":"v1alpha1","kind":"` + kind + `"},"name":"x","object":` + object + `,"oldObject":` + oldObject + `}}`
}

const (
	badRail = `{"apiVersion":"autohealer.resourcestack.com/v1alpha1","kind":"Guardrail","metadata":{"name":"typing-error"},"spec":{"rules":[{"name":"no-eviction","kinds":["ConditionSet"],"expression":"object.spec.efect != 'NoExecute'"}]}}`
	pause   = `{"apiVersion":"autohealer.resourcestack.com/v1alpha1","kind":"Guardrail","metadata":{"name":"stop"},"spec":{"paused":true}}`
	badXcpt = `{"apiVersion":"autohealer.resourcestack.com/v1alpha1","kind":"GuardrailException","metadata":{"name":"x","creationTimestamp":"2026-03-01T12:00:00Z"},"spec":{"ruleIDs":["conditionset/reserved-taint-key"],"targetRef":{"kind":"ConditionSet","name":"bad"},"specHash":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","reason":"it is so, OPS-1","expiresAt":"2026-04-01T12:00:00Z"}}`
	weedCfg = `{"apiVersion":"autohealer.resourcestack.com/v1alpha1","kind":"WeederConfig","metadata":{"name":"w","namespace":"prod"},"spec":{"servicesAndDependantSelectors":{"etcd":{"podSelectors":[{"matchLabels":{"app":"api"}}]}}}}`
	prober  = `{"apiVersion":"autohealer.resourcestack.com/v1alpha1","kind":"ProbeConfig","metadata":{"name":"p","namespace":"prod"},"spec":{"internalKubeConfigSecretName":"in","externalKubeConfigSecretName":"out","dependentResourceInfos":[{"ref":{"apiVersion":"apps/v1","kind":"Deployment","name":"kcm"},"scaleUp":{"level":0},"scaleDown":{"level":0}}]}}`
)

func newWebhook(t testing.TB, f facts) *admission.Webhook {
	t.Helper()
	g, err := guard.New(guard.Options{Facts: f, Planners: map[string]guard.Planner{"ConditionSet": guard.PlannerOf(f.ForecastConditionSet)}})
	if err != nil {
		t.Fatal(err)
	}
	return New(g)
}

// ask posts a body and reads the answer.
func ask(t testing.TB, h http.Handler, path, body string) admissionv1.AdmissionResponse {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Response == nil {
		t.Fatalf("status %d, no AdmissionReview: %v\n%s", w.Code, err, w.Body)
	}
	return *answer.Response
}

func TestOnlyAReviewOfAKnownKindIsJudged(t *testing.T) {
	h := newWebhook(t, facts{unsynced: true})
	whole := review("CREATE", goodSet, "null")
	for name, c := range map[string]struct{ body, want string }{
		"no body":                  {"", "no request"},
		"an empty object":          {"{}", "no request"},
		"null":                     {"null", "no request"},
		"a list":                   {"[]", "cannot unmarshal"},
		"no JSON":                  {"\x00\x01", "control characters are not allowed"},
		"a review without request": {`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, "no request"},
		"a null request":           {`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":null}`, "no request"},
		"another kind of object":   {`{"kind":"Pod","apiVersion":"v1"}`, "no request"},
		"no uid":                   {strings.Replace(whole, `"uid":"u1"`, `"uid":""`, 1), "no request"},
		"no operation":             {strings.Replace(whole, "CREATE", "", 1), "no request"},
		"a foreign kind":           {strings.Replace(whole, `"kind":"ConditionSet"}`, `"kind":"Pod"}`, 1), "no rules for Pod"},
		"a foreign group":          {strings.Replace(whole, `"group":"autohealer.resourcestack.com"`, `"group":"example.com"`, 1), "no rules for ConditionSet in example.com"},
		"an unknown version":       {strings.Replace(whole, `"version":"v1alpha1"`, `"version":"v9"`, 1), "no rules for ConditionSet in autohealer.resourcestack.com/v9"},
		"no object":                {review("CREATE", "null", "null"), "the request's object"},
		"a number for an object":   {review("CREATE", "5", "null"), "object has a number where a map belongs"},
		"an object of other kind":  {review("CREATE", `{"kind":"Pod"}`, "null"), "the request's object is no ConditionSet"},
		"an update from nothing":   {review("UPDATE", goodSet, "null"), "the request's oldObject"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := ask(t, h, "/", c.body)
			if answer.Allowed || answer.Result.Code != http.StatusBadRequest || !strings.Contains(answer.Result.Message, c.want) {
				t.Errorf("allowed %v, code %d, message %q; want 400 with %q", answer.Allowed, answer.Result.Code, answer.Result.Message, c.want)
			}
		})
	}
}

func TestARefusalNamesEveryRuleOnALineOfItsOwn(t *testing.T) {
	answer := ask(t, newWebhook(t, facts{forecast: condition.Forecast{Limit: 1, UnionLimit: 1}}), "/", review("CREATE", badSet, "null"))
	lines := strings.Split(answer.Result.Message, "\n")
	if answer.Allowed || answer.Result.Code != 403 || answer.Result.Reason != "Forbidden" || len(lines) != 2 ||
		!strings.HasPrefix(lines[0], "conditionset/matches-healthy-nodes: ") || !strings.HasPrefix(lines[1], "conditionset/reserved-taint-key: ") {
		t.Errorf("allowed %v, code %d, reason %s, message\n%s", answer.Allowed, answer.Result.Code, answer.Result.Reason, answer.Result.Message)
	}
	if got := answer.AuditAnnotations["violated"]; got != "conditionset/matches-healthy-nodes,conditionset/reserved-taint-key" {
		t.Errorf("audit annotation violated is %q", got)
	}
	if answer.UID != "u1" || len(answer.AuditAnnotations["rule-set"]) != 16 {
		t.Errorf("uid %q, annotations %v", answer.UID, answer.AuditAnnotations)
	}
}

func TestAnAdmissionCarriesWarnings(t *testing.T) {
	answer := ask(t, newWebhook(t, facts{forecast: condition.Forecast{Limit: 1, UnionLimit: 1}}), "/", review("CREATE", goodSet, "null"))
	if !answer.Allowed || len(answer.Warnings) != 1 || !strings.HasPrefix(answer.Warnings[0], "conditionset/sticky-evicts: KernelDeadlock: true stays so") {
		t.Errorf("allowed %v, warnings %q", answer.Allowed, answer.Warnings)
	}
	if got := answer.AuditAnnotations["violated"]; got != "conditionset/sticky-evicts" {
		t.Errorf("audit annotation violated is %q", got)
	}
}

func TestWithoutFactsWhatCannotBeCheckedIsNamed(t *testing.T) {
	answer := ask(t, newWebhook(t, facts{unsynced: true, panics: true}), "/", review("CREATE", goodSet, "null"))
	skipped := answer.AuditAnnotations["skipped"]
	if !answer.Allowed || !strings.Contains(skipped, "conditionset/would-exceed-limit") || len(answer.Warnings) != 2 {
		t.Errorf("allowed %v, skipped %q, %d warnings", answer.Allowed, skipped, len(answer.Warnings))
	}
	answer = ask(t, newWebhook(t, facts{unsynced: true}), "/", review("CREATE", badSet, "null"))
	if answer.Allowed {
		t.Error("the rules over the object alone were skipped too")
	}
}

func TestADryRunTakesTheSamePath(t *testing.T) {
	h := newWebhook(t, facts{unsynced: true})
	body := review("CREATE", badSet, "null")
	wet, dry := ask(t, h, "/", body), ask(t, h, "/", strings.Replace(body, `"name":"x"`, `"name":"x","dryRun":true`, 1))
	if dry.Allowed || dry.Result.Message != wet.Result.Message {
		t.Errorf("allowed %v\n got %s\nwant %s", dry.Allowed, dry.Result.Message, wet.Result.Message)
	}
}

func TestAFinalizerCanBeRemovedFromABadObject(t *testing.T) {
	deleting := strings.Replace(badSet, `"name":"bad"`, `"name":"bad","deletionTimestamp":"2026-11-21T12:00:00Z","finalizers":["a/b"]`, 1)
	if answer := ask(t, newWebhook(t, facts{unsynced: true}), "/", review("UPDATE", badSet, deleting)); !answer.Allowed {
		t.Error(answer.Result.Message)
	}
	if answer := ask(t, newWebhook(t, facts{unsynced: true}), "/", review("DELETE", "null", badSet)); !answer.Allowed {
		t.Error(answer.Result.Message)
	}
}

func TestAPanicRefusesAndTheNextReviewIsAnswered(t *testing.T) {
	h := newWebhook(t, facts{panics: true})
	answer := ask(t, h, "/", review("CREATE", goodSet, "null"))
	if answer.Allowed || answer.UID != "u1" || !strings.Contains(answer.Result.Message, "the planner broke") {
		t.Errorf("allowed %v, uid %q, message %q", answer.Allowed, answer.UID, answer.Result.Message)
	}
	if answer := ask(t, h, "/", review("UPDATE", goodSet, goodSet)); !answer.Allowed {
		t.Error(answer.Result.Message)
	}
}

func TestAPolicyThatIsTooLargeIsRefusedUnlessItBecomesSmaller(t *testing.T) {
	padded := func(size int) string {
		return strings.Replace(goodSet, `"name":"good"`, `"name":"good","annotations":{"a":"`+strings.Repeat("x", size)+`"}`, 1)
	}
	const tooLarge = "guard/object: not checked: the object has 307460 bytes as JSON, and a policy may have at most 262144: split it"
	other, h := strings.Replace(goodSet, "NoExecute", "NoSchedule", 1), newWebhook(t, facts{unsynced: true})
	for name, c := range map[string]struct{ body, want string }{
		"as large as it may be":     {review("CREATE", padded(255<<10), "null"), ""},
		"larger":                    {review("CREATE", padded(300<<10), "null"), tooLarge},
		"an update to that":         {review("UPDATE", padded(300<<10), other), tooLarge},
		"an update that makes less": {review("UPDATE", padded(300<<10), strings.Replace(padded(1<<20), "NoExecute", "NoSchedule", 1)), ""},
		"of one that stays it":      {review("UPDATE", padded(300<<10), padded(300<<10)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if answer := ask(t, h, "/", c.body); answer.Allowed != (c.want == "") || !answer.Allowed && answer.Result.Message != c.want {
				t.Errorf("allowed %v: %s", answer.Allowed, answer.Result.Message)
			}
		})
	}
}

func TestTheAPIServersDeadlineIsKept(t *testing.T) {
	for query, want := range map[string]time.Duration{
		"?timeout=2s":    1800 * time.Millisecond,
		"?timeout=10s":   4500 * time.Millisecond, // not what whoever asks would like, but what the webhook's configuration says
		"":               4500 * time.Millisecond,
		"?timeout=later": 4500 * time.Millisecond,
		"?timeout=-1s":   4500 * time.Millisecond,
		"?timeout=1h":    4500 * time.Millisecond,
	} {
		parent, cancel := context.WithCancel(context.Background())
		r := httptest.NewRequest(http.MethodPost, "/"+query, http.NoBody).WithContext(parent)
		before := time.Now()
		ctx := withDeadline(r.Context(), r)
		deadline, ok := ctx.Deadline()
		if off := deadline.Sub(before.Add(want)); !ok || off < 0 || off > time.Second {
			t.Errorf("%q: deadline %v off by %s", query, ok, off)
		}
		cancel()
		if <-ctx.Done(); ctx.Err() == nil {
			t.Errorf("%q: outlives the request", query)
		}
	}
}

func TestOutOfTimeTheAnswerIsARefusal(t *testing.T) {
	answer := ask(t, newWebhook(t, facts{unsynced: true}), "/?timeout=1ns", review("CREATE", goodSet, "null"))
	if answer.Allowed || !strings.Contains(answer.Result.Message, "not checked: out of time") {
		t.Errorf("allowed %v, message %q", answer.Allowed, answer.Result.Message)
	}
	is := &apierrors.StatusError{ErrStatus: *answer.Result}
	if seconds, again := apierrors.SuggestsClientDelay(is); !again || seconds != 1 || is.ErrStatus.Code != http.StatusInternalServerError {
		t.Errorf("clients ask %v again, after %d s, for a %d", again, seconds, is.ErrStatus.Code)
	}
}

func TestEveryKindIsJudged(t *testing.T) {
	h := newWebhook(t, facts{forecast: condition.Forecast{Limit: 1, UnionLimit: 1}})
	for name, c := range map[string]struct {
		body, refusal, warning string
	}{
		"a Guardrail whose rule has a typing error": {
			body:    reviewOf("Guardrail", "CREATE", badRail, "null"),
			refusal: "guardrail/rules-compile: rule no-eviction, expression for ConditionSet, 1:12: undefined field 'efect'\n | object.spec.efect != 'NoExecute'\n | ...........^\n",
		},
		"a Guardrail that pauses": {body: reviewOf("Guardrail", "CREATE", pause, "null"), warning: "guardrail/paused: paused: true means that no policy in the cluster does anything new"},
		"an exception for ever from what can't be lifted": {
			body:    reviewOf("GuardrailException", "CREATE", badXcpt, "null"),
			refusal: "guardrailexception/too-long: expiresAt 2026-04-01T12:00:00Z is more than 7 days after 2026-03-01T12:00:00Z; write 2026-03-08T12:00:00Z or earlier",
		},
		"a Guardrail under another name": {body: reviewOf("ConditionSet", "CREATE", pause, "null"), refusal: "the request's object is no ConditionSet"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := ask(t, h, "/", c.body)
			if answer.Allowed != (c.refusal == "") || c.refusal != "" && !strings.HasPrefix(answer.Result.Message, c.refusal) {
				t.Errorf("allowed %v: %s", answer.Allowed, answer.Result.Message)
			}
			if c.warning != "" && !strings.HasPrefix(answer.Warnings[0], c.warning) {
				t.Errorf("warnings %q", answer.Warnings)
			}
		})
	}
}

func TestTheAuditLogNamesTheException(t *testing.T) {
	const ready = `{"apiVersion":"autohealer.resourcestack.com/v1alpha1","kind":"ConditionSet","metadata":{"name":"ready"},"spec":{"type":"Ready","effect":"NoSchedule","taintKey":"example.com/ready","conditions":{"Ready":{"status":true}}}}`
	g, err := guard.New(guard.Options{Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC))})
	if err != nil {
		t.Fatal(err)
	}
	set := &unstructured.Unstructured{}
	if err := set.UnmarshalJSON([]byte(ready)); err != nil {
		t.Fatal(err)
	}
	x := &v1alpha1.GuardrailException{Spec: v1alpha1.GuardrailExceptionSpec{
		RuleIDs: []string{"conditionset/matches-healthy-nodes"}, TargetRef: v1alpha1.ExceptionTarget{Kind: "ConditionSet", Name: "ready"},
		Reason: "a drill, OPS-1", ExpiresAt: "2026-03-02T12:00:00Z",
	}}
	x.Name, x.CreationTimestamp.Time = "drill", time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if x.Spec.SpecHash, err = guard.SpecHash(set); err != nil {
		t.Fatal(err)
	}
	g.SetExceptions([]*v1alpha1.GuardrailException{x})
	answer := ask(t, New(g), "/", review("CREATE", ready, "null"))
	if got := answer.AuditAnnotations["lifted"]; !answer.Allowed || got != "conditionset/matches-healthy-nodes=drill" {
		t.Errorf("allowed %v, audit annotation lifted is %q", answer.Allowed, got)
	}
	if !strings.HasSuffix(answer.Warnings[0], "; GuardrailException drill lifts this rule until 2026-03-02T12:00:00Z") {
		t.Errorf("warnings %q", answer.Warnings)
	}
}
