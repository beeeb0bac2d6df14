package conditionset

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/guard"
)

func TestReadySaysInNumbersWhatTheSetDoes(t *testing.T) {
	for _, tc := range []struct {
		name    string
		mode    v1alpha1.Mode
		summary condition.Summary
		want    string
	}{
		{"nothing matches", "", condition.Summary{Selected: 40},
			"0 of 40 selected nodes match, 0 are tainted."},
		{"a set that observes says that it touches nothing", "Observe", condition.Summary{Selected: 40, Matching: 3},
			"Mode Observe: 3 of 40 selected nodes match, and nothing is touched."},
		{"a hold that no other condition shows is shown here", "", condition.Summary{Selected: 40, Matching: 2, Tainted: 2, Holds: map[condition.Reason]condition.HoldCount{
			"SystemPodDoesNotTolerate": {Nodes: 2, Message: "kube-system/npd (condition reporter) would be evicted"},
		}}, "2 of 40 selected nodes match, 2 are tainted; 2 held back: kube-system/npd (condition reporter) would be evicted."},
		{"limits and the breaker have conditions of their own", "", condition.Summary{Selected: 40, Matching: 9, Tainted: 4, Breaker: &condition.OpenBreaker{ID: "b"},
			Holds: map[condition.Reason]condition.HoldCount{
				"LimitReached": {Nodes: 4, Message: "a limit"}, "BreakerOpen": {Nodes: 1, Message: "the breaker"},
			}}, "9 of 40 selected nodes match, 4 are tainted; a limit holds nodes back, see LimitReached; the breaker is open and nothing new is done, see BreakerOpen."},
		{"a breaker that was reset holds nothing back", "", condition.Summary{Selected: 40, Matching: 9, Tainted: 4, Breaker: &condition.OpenBreaker{ID: "b", Reset: true}},
			"9 of 40 selected nodes match, 4 are tainted."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := state{synced: true, summary: tc.summary}
			st.verdict.Allowed = true
			status := statusOf(&v1alpha1.ConditionSet{Spec: v1alpha1.ConditionSetSpec{Mode: tc.mode}}, st)
			ready := find(status.Conditions, "Ready")
			if ready == nil || ready.Status != "True" || ready.Message != tc.want {
				t.Errorf("Ready is %+v, want True with message %q", ready, tc.want)
			}
		})
	}
}

func TestARefusedSetIsToldOfOnce(t *testing.T) {
	refused := state{synced: true}
	refused.verdict.Violations = []guard.Violation{{Rule: "r", Severity: guard.Deny, Message: "no"}}
	status := statusOf(&v1alpha1.ConditionSet{}, refused)
	if got := told(t, status.Conditions); len(got) != 1 || got[0] != "Warning RuleViolated" {
		t.Errorf("Events are %q, want one that says RuleViolated", got)
	}
}

func TestASetThatIsStuckForAnotherReasonIsToldOfAsWell(t *testing.T) {
	conditions := []metav1.Condition{
		{Type: "Accepted", Status: "True", Reason: "Admitted", Message: "fine"},
		{Type: "Stalled", Status: "True", Reason: "Forbidden", Message: "nodes is forbidden"},
	}
	if got := told(t, conditions); len(got) != 2 || got[1] != "Warning Forbidden" {
		t.Errorf("Events are %q, want Admitted and Forbidden", got)
	}
}

// told are the Events on a set whose conditions are new, as "type reason".
func told(t *testing.T, conditions []metav1.Condition) (got []string) {
	t.Helper()
	recorder := recorderFunc(func(kind, reason string) { got = append(got, kind+" "+reason) })
	NewReporter(recorder).changed(&v1alpha1.ConditionSet{}, nil, conditions)
	return got
}

// recorderFunc takes Events in the API server's place.
type recorderFunc func(kind, reason string)

// Eventf implements events.EventRecorder.
func (f recorderFunc) Eventf(_, _ runtime.Object, kind, reason, _, _ string, _ ...any) {
	f(kind, reason)
}
