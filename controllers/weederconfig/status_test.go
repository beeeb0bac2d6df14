package weederconfig

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

func TestReadySaysInNumbersWhatTheConfigDoes(t *testing.T) {
	hold := func(pods int, message string) weeder.HoldCount { return weeder.HoldCount{Pods: pods, Message: message} }
	for _, tc := range []struct {
		name    string
		mode    v1alpha1.Mode
		summary weeder.Summary
		want    string
	}{
		{"nothing recovered", "", weeder.Summary{WeederConfigStatus: v1alpha1.WeederConfigStatus{Services: 1, Deleted: 7}, Named: 2},
			"1 of 2 Services are there, 0 recovered lately, 7 pods were deleted so far."},
		{"a config that observes says that it deletes nothing", "Observe", weeder.Summary{WeederConfigStatus: v1alpha1.WeederConfigStatus{Services: 2, ActiveWindows: 1}, Named: 2, Held: map[weeder.Reason]weeder.HoldCount{"Observing": hold(3, "m")}},
			"Mode Observe: 2 of 2 Services are there, 1 recovered lately; 3 pods would be deleted now, and none is."},
		{"a hold that no other condition shows is shown here", "", weeder.Summary{WeederConfigStatus: v1alpha1.WeederConfigStatus{Services: 1, ActiveWindows: 1}, Named: 1, Held: map[weeder.Reason]weeder.HoldCount{"NoController": hold(2, "ns/a: nothing replaces it")}},
			"1 of 1 Services are there, 1 recovered lately, 0 pods were deleted so far; 2 pods held back, such as ns/a: nothing replaces it."},
		{"limits have a condition of their own", "", weeder.Summary{WeederConfigStatus: v1alpha1.WeederConfigStatus{Services: 1, ActiveWindows: 1}, Named: 1, Held: map[weeder.Reason]weeder.HoldCount{"MaxDeletionsPerWatch": hold(2, "m")}},
			"1 of 1 Services are there, 1 recovered lately, 0 pods were deleted so far; a limit holds pods back, see LimitReached."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := statusInput{synced: true, summary: tc.summary}
			st.Verdict.Allowed = true
			status := statusOf(&v1alpha1.WeederConfig{Spec: v1alpha1.WeederConfigSpec{Mode: tc.mode}}, st)
			ready := meta.FindStatusCondition(status.Conditions, "Ready")
			if ready == nil || ready.Status != "True" || ready.Message != tc.want {
				t.Errorf("Ready is %+v, want True with message %q", ready, tc.want)
			}
		})
	}
}

func TestLimitReachedTellsWhichLimit(t *testing.T) {
	for _, tc := range []struct {
		name            string
		held            map[weeder.Reason]weeder.HoldCount
		reason, message string
	}{
		{"none", map[weeder.Reason]weeder.HoldCount{"Cooldown": {Pods: 1, Message: "c"}}, "", ""},
		{"the minute", map[weeder.Reason]weeder.HoldCount{"MaxPodDeletionsPerMinute": {Pods: 2, Message: "m"}}, "TooManyPodDeletions", "2 pods held back, such as m."},
		{"the window", map[weeder.Reason]weeder.HoldCount{"MaxDeletionsPerWatch": {Pods: 2, Message: "w"}}, "BudgetSpent", "2 pods held back, such as w."},
		{"the workload", map[weeder.Reason]weeder.HoldCount{"MaxRepeatsPerOwner": {Pods: 1, Message: "r"}}, "BudgetSpent", "1 pod held back: r."},
		{"two at once", map[weeder.Reason]weeder.HoldCount{"MaxRepeatsPerOwner": {Pods: 1, Message: "r"}, "MaxPodDeletionsPerMinute": {Pods: 2, Message: "m"}},
			"TooManyPodDeletions", "2 pods held back, such as m; 1 pod held back: r."},
		{"a budget, in the API server's words", map[weeder.Reason]weeder.HoldCount{"MaxRepeatsPerOwner": {Pods: 1, Message: "it would violate the budget."}}, "BudgetSpent", "1 pod held back: it would violate the budget."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := limitHolds.Reached(statusInput{summary: weeder.Summary{Held: tc.held}}.heldBack)
			if c.Reason != tc.reason || c.Message != tc.message {
				t.Errorf("reason %q, message %q; want %q, %q", c.Reason, c.Message, tc.reason, tc.message)
			}
		})
	}
}

func TestTheStatusIsWhatWasCountedAndWrittenOnce(t *testing.T) {
	at := metav1.NewTime(noon)
	counted := v1alpha1.WeederConfigStatus{
		Services: 3, ActiveWindows: 1, Deleted: 5, Skipped: []v1alpha1.SkippedPods{{Reason: "Cooldown", Count: 1}, {Reason: "Paused", Count: 2}},
		Windows:         []v1alpha1.RecoveryWindow{{Recovery: v1alpha1.Recovery{Namespace: "ns", Service: "etcd", Time: at}, Until: at, Deleted: 2, LastDeletion: &at}},
		LastTriggered:   &v1alpha1.Recovery{Namespace: "ns", Service: "etcd", Time: at},
		RecentDeletions: []v1alpha1.PodDeletion{{Time: at, Namespace: "ns", Pod: "api-1", PodUID: "u", Owner: "Deployment/api", Service: "etcd", Repeats: 2}},
		Spent:           &v1alpha1.SpentBudgets{LastMinute: 4, LastDeletion: at},
	}
	st := statusInput{synced: true, summary: weeder.Summary{WeederConfigStatus: *counted.DeepCopy()}}
	st.Verdict.Allowed = true
	wc := stored("wc", nil)
	wc.Status = statusOf(wc, st)
	s := wc.Status
	if s.ObservedGeneration != 1 || len(s.Conditions) == 0 {
		t.Errorf("got %+v", s)
	}
	counted.ObservedGeneration, counted.Conditions = s.ObservedGeneration, s.Conditions
	if !reflect.DeepEqual(s, counted) {
		t.Errorf("got %+v, want %+v", s, counted)
	}
	if again := statusOf(wc, st); !reflect.DeepEqual(again, s) {
		t.Error("the same state gives another status: it would be written again and again")
	}
	if before := statusOf(wc, statusInput{storedConfig: st.storedConfig}); before.Deleted != 5 || len(before.RecentDeletions) != 1 {
		t.Error("before everything is known the status forgets what was done")
	}
}
