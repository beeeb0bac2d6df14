package weederconfig

import (
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

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
		{"nothing recovered", "", weeder.Summary{Services: 1, Named: 2, Deleted: 7},
			"1 of 2 Services are there, 0 recovered lately, 7 pods were deleted so far."},
		{"a config that observes says that it deletes nothing", "Observe", weeder.Summary{Services: 2, Named: 2, Active: 1, Held: map[weeder.Reason]weeder.HoldCount{"Observing": hold(3, "m")}},
			"Mode Observe: 2 of 2 Services are there, 1 recovered lately; 3 pods would be deleted now, and none is."},
		{"a hold that no other condition shows is shown here", "", weeder.Summary{Services: 1, Named: 1, Active: 1, Held: map[weeder.Reason]weeder.HoldCount{"NoController": hold(2, "ns/a: nothing replaces it")}},
			"1 of 1 Services are there, 1 recovered lately, 0 pods were deleted so far; 2 held back, ns/a: nothing replaces it."},
		{"limits have a condition of their own", "", weeder.Summary{Services: 1, Named: 1, Active: 1, Held: map[weeder.Reason]weeder.HoldCount{"MaxDeletionsPerWatch": hold(2, "m")}},
			"1 of 1 Services are there, 1 recovered lately, 0 pods were deleted so far; a limit holds pods back, see LimitReached."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := state{synced: true, summary: tc.summary}
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
		{"the minute", map[weeder.Reason]weeder.HoldCount{"MaxPodDeletionsPerMinute": {Pods: 2, Message: "m"}}, "TooManyPodDeletions", "2 held back, m."},
		{"the window", map[weeder.Reason]weeder.HoldCount{"MaxDeletionsPerWatch": {Pods: 2, Message: "w"}}, "BudgetSpent", "2 held back, w."},
		{"the workload", map[weeder.Reason]weeder.HoldCount{"MaxRepeatsPerOwner": {Pods: 1, Message: "r"}}, "BudgetSpent", "1 held back, r."},
		{"two at once", map[weeder.Reason]weeder.HoldCount{"MaxRepeatsPerOwner": {Pods: 1, Message: "r"}, "MaxPodDeletionsPerMinute": {Pods: 2, Message: "m"}},
			"TooManyPodDeletions", "2 held back, m; 1 held back, r."},
		{"a budget, in the API server's words", map[weeder.Reason]weeder.HoldCount{"MaxRepeatsPerOwner": {Pods: 1, Message: "it would violate the budget."}}, "BudgetSpent", "1 held back, it would violate the budget."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := limitReached(state{summary: weeder.Summary{Held: tc.held}})
			if c.Reason != tc.reason || c.Message != tc.message {
				t.Errorf("reason %q, message %q; want %q, %q", c.Reason, c.Message, tc.reason, tc.message)
			}
		})
	}
}

func TestTheStatusIsWhatWasCountedAndWrittenOnce(t *testing.T) {
	opened := noon.Add(123 * time.Millisecond)
	window := weeder.Window{Namespace: "ns", Service: "etcd", Opened: opened, Ends: opened.Add(time.Minute), Deleted: 2, LastDeletion: opened.Add(time.Second)}
	st := state{synced: true, summary: weeder.Summary{
		Services: 3, Active: 1, Deleted: 5, Windows: []weeder.Window{window}, Last: window, Skipped: map[weeder.Reason]int64{"Paused": 2, "Cooldown": 1},
		Recent: []weeder.Record{{At: opened.Add(time.Hour), Server: opened, Namespace: "ns", Pod: "api-1", UID: "u", Owner: "Deployment/api", Service: "etcd", Before: []time.Time{opened, opened}}},
		Spent:  weeder.Spent{LastMinute: 4, LastDeletion: opened, Unlisted: weeder.Unlisted{From: opened.Add(-time.Minute), To: opened, Repeats: 2}},
	}}
	st.Verdict.Allowed = true
	wc := stored("wc", nil)
	wc.Status = statusOf(wc, st)
	s := wc.Status
	if s.ObservedGeneration != 1 || s.Services != 3 || s.ActiveWindows != 1 || s.Deleted != 5 {
		t.Errorf("counts %+v", s)
	}
	if len(s.Windows) != 1 || !s.Windows[0].Time.Equal(&s.LastTriggered.Time) || !s.Windows[0].Time.Time.Equal(noon) || !s.Windows[0].Until.Time.Equal(noon.Add(time.Minute)) ||
		s.Windows[0].Deleted != 2 || !s.Windows[0].LastDeletion.Time.Equal(noon.Add(time.Second)) {
		t.Errorf("windows %+v, last %+v", s.Windows, s.LastTriggered)
	}
	if d := s.RecentDeletions; len(d) != 1 || d[0].Pod != "api-1" || d[0].PodUID != "u" || d[0].Owner != "Deployment/api" || d[0].Repeats != 2 || !d[0].Time.Time.Equal(noon) {
		t.Errorf("deletions %+v", d)
	}
	if p := s.Spent; p == nil || p.LastMinute != 4 || !p.LastDeletion.Time.Equal(noon) || p.Unlisted == nil || p.Unlisted.Repeats != 2 ||
		!p.Unlisted.From.Time.Equal(noon.Add(-time.Minute)) || !p.Unlisted.To.Time.Equal(noon) {
		t.Errorf("spent %+v", p)
	}
	if len(s.Skipped) != 2 || s.Skipped[0].Reason != "Cooldown" || s.Skipped[1].Count != 2 {
		t.Errorf("skipped %+v", s.Skipped)
	}
	if again := statusOf(wc, st); !reflect.DeepEqual(again, s) {
		t.Error("the same state gives another status: it would be written again and again")
	}
	if before := statusOf(wc, state{storedConfig: st.storedConfig}); before.Deleted != 5 || len(before.RecentDeletions) != 1 {
		t.Error("before everything is known the status forgets what was done")
	}
}
