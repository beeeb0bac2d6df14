package guardrailexception

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
)

var (
	noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	made = noon.Add(-12 * time.Hour)
	fine = guard.Verdict{Allowed: true, RuleSetHash: "abc"}
)

const (
	admitted = "Accepted=True Admitted: All rules admit it (rule set abc)."
	hash     = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

func stored() *v1alpha1.GuardrailException {
	return &v1alpha1.GuardrailException{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autohealer.resourcestack.com/v1alpha1", Kind: "GuardrailException"},
		ObjectMeta: metav1.ObjectMeta{Name: "x", Generation: 1, CreationTimestamp: metav1.NewTime(made)},
		Spec: v1alpha1.GuardrailExceptionSpec{
			RuleIDs: []string{"platform/team", "platform/size"}, SpecHash: hash,
			TargetRef: v1alpha1.ExceptionTarget{Kind: "ConditionSet", Name: "a"},
		},
		Status: v1alpha1.GuardrailExceptionStatus{ObservedGeneration: -1},
	}
}

func TestWhatEachExceptionsStatusSays(t *testing.T) {
	ends := noon.Add(time.Hour)
	asMeant := target{found: true, hash: hash}
	for name, c := range map[string]struct {
		before  string // reason of Ready
		state   state
		want    []string
		kstatus status.Status
	}{
		"it lifts what the target breaks": {"", state{verdict: fine, now: noon, ends: ends, target: target{found: true, hash: hash, lifted: []guard.Lifted{{Rule: "platform/team", Exception: "x"}}}, atRunTime: []string{"platform/team"}}, []string{
			admitted, "Ready=True Active: It holds for ConditionSet a until 2026-03-01T13:00:00Z. It lifts platform/team.",
		}, status.CurrentStatus},
		"another exception lifts it": {"", state{verdict: fine, now: noon, ends: ends, target: target{found: true, hash: hash, lifted: []guard.Lifted{{Rule: "platform/team", Exception: "y"}}}, atRunTime: []string{"platform/team"}}, []string{
			admitted, "Ready=True Active: It holds for ConditionSet a until 2026-03-01T13:00:00Z. It isn't needed for platform/team.",
		}, status.CurrentStatus},
		"what its rules say now can't be told": {"", state{verdict: fine, now: noon, ends: ends, target: asMeant}, []string{
			admitted, "Ready=True Active: It holds for ConditionSet a until 2026-03-01T13:00:00Z.",
		}, status.CurrentStatus},
		"the target isn't there yet": {"", state{verdict: fine, now: noon, ends: ends}, []string{
			admitted, "Ready=True Waiting: Until 2026-03-01T13:00:00Z it waits for ConditionSet a with spec hash 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef, which now isn't stored.",
		}, status.CurrentStatus},
		"the target isn't changed yet": {"Waiting", state{verdict: fine, now: noon, ends: ends, target: target{found: true, hash: "ffff"}}, []string{
			admitted, "Ready=True Waiting: Until 2026-03-01T13:00:00Z it waits for ConditionSet a with spec hash 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef, which now has spec hash ffff.",
		}, status.CurrentStatus},
		"the target changed": {"Active", state{verdict: fine, now: noon, ends: ends, target: target{found: true, hash: "ffff"}}, []string{
			admitted, "Ready=False SpecChanged: It lifts nothing: it is for ConditionSet a with spec hash 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef, which now has spec hash ffff.",
			"Stalled=True SpecChanged: It lifts nothing: it is for ConditionSet a with spec hash 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef, which now has spec hash ffff.",
		}, status.FailedStatus},
		"the target changed back": {"SpecChanged", state{verdict: fine, now: noon, ends: ends, target: asMeant}, []string{
			admitted, "Ready=True Active: It holds for ConditionSet a until 2026-03-01T13:00:00Z.",
		}, status.CurrentStatus},
		"the target is gone": {"SpecChanged", state{verdict: fine, now: noon, ends: ends}, []string{
			admitted, "Ready=False TargetMissing: It lifts nothing: ConditionSet a is gone.",
			"Stalled=True TargetMissing: It lifts nothing: ConditionSet a is gone.",
		}, status.FailedStatus},
		"its time is over, and a rule judges changes only": {"Active", state{verdict: fine, now: ends, ends: ends, target: asMeant, atRunTime: []string{"platform/team"}}, []string{
			admitted, "Ready=True Expired: It has lifted nothing since 2026-03-01T13:00:00Z. Delete it, or make another one. ConditionSet a goes on as it was admitted: platform/size judges changes only.",
		}, status.CurrentStatus},
		"its time is over": {"Active", state{verdict: fine, now: ends, ends: ends, target: asMeant, atRunTime: []string{"platform/team", "platform/size"}}, []string{
			admitted, "Ready=True Expired: It has lifted nothing since 2026-03-01T13:00:00Z. Delete it, or make another one.",
		}, status.CurrentStatus},
		"its time is over, and a rule couldn't be lifted all the while": {"", state{verdict: fine, now: ends, ends: ends, target: asMeant, fixed: []string{"platform/size"}}, []string{
			admitted, "Ready=True Expired: It has lifted nothing since 2026-03-01T13:00:00Z. Delete it, or make another one. ConditionSet a goes on as it was admitted: platform/team, platform/size judges changes only.",
		}, status.CurrentStatus},
		"its time was over before it was made, as in a new cluster": {"", state{verdict: fine, now: ends, ends: made.Add(-time.Hour)}, []string{
			admitted, "Ready=True Expired: It has lifted nothing since 2026-02-28T23:00:00Z. Delete it, or make another one.",
		}, status.CurrentStatus},
		"a rule isn't there yet": {"", state{verdict: fine, now: noon, ends: ends, target: asMeant, unknown: []string{"platform/size"}}, []string{
			admitted, "Ready=True Waiting: Until 2026-03-01T13:00:00Z it waits for a rule platform/size for a ConditionSet, and lifts nothing before there is one.",
		}, status.CurrentStatus},
		"a rule is gone": {"Active", state{verdict: fine, now: noon, ends: ends, target: asMeant, unknown: []string{"platform/size"}}, []string{
			admitted, "Ready=False RuleNotExceptable: It lifts nothing: there is no rule platform/size for a ConditionSet any more.",
			"Stalled=True RuleNotExceptable: It lifts nothing: there is no rule platform/size for a ConditionSet any more.",
		}, status.FailedStatus},
		"a rule can't be lifted": {"", state{verdict: fine, now: noon, ends: ends, target: asMeant, fixed: []string{"platform/size"}}, []string{
			admitted, "Ready=False RuleNotExceptable: It lifts nothing: platform/size can't be lifted.",
			"Stalled=True RuleNotExceptable: It lifts nothing: platform/size can't be lifted.",
		}, status.FailedStatus},
		"a rule refuses the exception": {"", state{verdict: guard.Verdict{Violations: []guard.Violation{{Rule: "guardrailexception/too-long", Severity: guard.Deny, Message: "no", Docs: "d"}}}, now: noon, ends: ends, target: asMeant}, []string{
			"Accepted=False RuleViolated: guardrailexception/too-long: no (d)",
			"Ready=False RuleViolated: It lifts nothing while the rules refuse it; see Accepted.",
			"Stalled=True RuleViolated: guardrailexception/too-long: no (d)",
		}, status.FailedStatus},
	} {
		t.Run(name, func(t *testing.T) {
			x := stored()
			if got := computed(t, x); got != status.InProgressStatus {
				t.Errorf("before the first look it is %s", got)
			}
			if c.before != "" {
				x.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: c.before, ObservedGeneration: 1}}
			}
			x.Status = statusOf(x, c.state)
			slices.Sort(c.want)
			if got := lines(x); !slices.Equal(got, c.want) {
				t.Errorf("got\n%q, want\n%q", got, c.want)
			}
			if got := computed(t, x); got != c.kstatus {
				t.Errorf("kstatus is %s, want %s", got, c.kstatus)
			}
			if again := statusOf(x, c.state); !equality.Semantic.DeepEqual(again, x.Status) {
				t.Error("the same state gives another status")
			}
		})
	}
}

func TestAnExceptionThatIsChangedWaitsAnew(t *testing.T) {
	x := stored()
	x.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Active", ObservedGeneration: 1}}
	x.Generation = 2
	x.Status = statusOf(x, state{verdict: fine, now: noon, ends: noon.Add(time.Hour), target: target{found: true, hash: "ffff"}})
	if c := meta.FindStatusCondition(x.Status.Conditions, "Ready"); c.Status != "True" || c.Reason != "Waiting" || c.ObservedGeneration != 2 {
		t.Errorf("it says %q", lines(x))
	}
}

// lines are the conditions, sorted.
func lines(x *v1alpha1.GuardrailException) []string {
	var all []string
	for _, c := range x.Status.Conditions {
		all = append(all, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	slices.Sort(all)
	return all
}

// computed is what GitOps tools make of it.
func computed(t *testing.T, x *v1alpha1.GuardrailException) status.Status {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(x)
	if err != nil {
		t.Fatal(err)
	}
	result, err := status.Compute(&unstructured.Unstructured{Object: content})
	if err != nil {
		t.Fatal(err)
	}
	return result.Status
}
