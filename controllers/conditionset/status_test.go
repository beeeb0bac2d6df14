package conditionset

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
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
		{"a set that is about no node says so", "", condition.Summary{},
			"0 of 0 selected nodes match, 0 are tainted; no node is selected: compare nodeSelector with kubectl get nodes --show-labels; control-plane nodes take includeControlPlane."},
		{"what nobody reports on is told of", "", condition.Summary{Selected: 40, Matching: 2, Tainted: 1, Doubtful: 3},
			"2 of 40 selected nodes match, 1 is tainted; conditions of 3 nodes are Unknown, missing or stale: nothing is done and nothing undone there."},
		{"a record that can't be read is told of", "", condition.Summary{Selected: 40, Matching: 2, Tainted: 1, Unreadable: []string{"w1", "w2"}},
			"2 of 40 selected nodes match, 1 is tainted; the record of 2 nodes can't be read: w1, w2, so that nothing is done and nothing undone there; " +
				"repair the annotation autohealer.resourcestack.com/owned-taints, or remove the taint if it is this set's, and then the annotation."},
		{"one that observes, too", "Observe", condition.Summary{},
			"Mode Observe: 0 of 0 selected nodes match, and nothing is touched; no node is selected: compare nodeSelector with kubectl get nodes --show-labels; control-plane nodes take includeControlPlane."},
		{"a set that observes says that it touches nothing", "Observe", condition.Summary{Selected: 40, Matching: 3},
			"Mode Observe: 3 of 40 selected nodes match, and nothing is touched."},
		{"a hold that no other condition shows is shown here", "", condition.Summary{Selected: 40, Matching: 2, Tainted: 2, Holds: map[condition.Reason]condition.HoldCount{
			"SystemPodDoesNotTolerate": {Nodes: 2, Message: "kube-system/npd (condition reporter) would be evicted"},
		}}, "2 of 40 selected nodes match, 2 are tainted; 2 nodes held back: kube-system/npd (condition reporter) would be evicted."},
		{"limits and the breaker have conditions of their own", "", condition.Summary{Selected: 40, Matching: 9, Tainted: 4, Breaker: &limit.Opening{ID: "b"},
			Holds: map[condition.Reason]condition.HoldCount{
				"LimitReached": {Nodes: 4, Message: "a limit"}, "BreakerOpen": {Nodes: 1, Message: "the breaker"},
			}}, "9 of 40 selected nodes match, 4 are tainted; a limit holds nodes back, see LimitReached; the breaker is open and nothing new is done, see BreakerOpen."},
		{"a breaker that was reset holds nothing back", "", condition.Summary{Selected: 40, Matching: 9, Tainted: 4, Breaker: &limit.Opening{ID: "b", Reset: true}},
			"9 of 40 selected nodes match, 4 are tainted."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := statusInput{synced: true, summary: tc.summary}
			st.Verdict.Allowed = true
			status := statusOf(&v1alpha1.ConditionSet{Spec: v1alpha1.ConditionSetSpec{Mode: tc.mode}}, st)
			ready := meta.FindStatusCondition(status.Conditions, "Ready")
			if ready == nil || ready.Status != "True" || ready.Message != tc.want {
				t.Errorf("Ready is %+v, want True with message %q", ready, tc.want)
			}
		})
	}
}

func TestLimitReachedTellsWhichLimit(t *testing.T) {
	hold := func(nodes int, message string) condition.HoldCount {
		return condition.HoldCount{Nodes: nodes, Message: message}
	}
	for _, tc := range []struct {
		name            string
		holds           map[condition.Reason]condition.HoldCount
		reason, message string
	}{
		{"none", map[condition.Reason]condition.HoldCount{"Flapping": hold(1, "f")}, "", ""},
		{"tainted nodes", map[condition.Reason]condition.HoldCount{"LimitReached": hold(2, "m")}, "TooManyTainted", "2 nodes held back: m."},
		{"evicting nodes", map[condition.Reason]condition.HoldCount{"EvictLimitReached": hold(2, "m")}, "TooManyEvicting", "2 nodes held back: m."},
		{"the pace of evictions", map[condition.Reason]condition.HoldCount{"EvictionPace": hold(1, "p")}, "TooManyEvicting", "1 node held back: p."},
		{"the control plane", map[condition.Reason]condition.HoldCount{"OtherControlPlaneNodeTainted": hold(1, "c")}, "ControlPlaneLimit", "1 node held back: c."},
		{"the set's own cap", map[condition.Reason]condition.HoldCount{"MaxNodesReached": hold(3, "o")}, "MaxNodesReached", "3 nodes held back: o."},
		{"two at once", map[condition.Reason]condition.HoldCount{"EvictLimitReached": hold(1, "e"), "LimitReached": hold(2, "t")},
			"TooManyTainted", "2 nodes held back: t; 1 node held back: e."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := limitHolds.Reached(statusInput{summary: condition.Summary{Holds: tc.holds}}.heldBack)
			if c.Reason != tc.reason || c.Message != tc.message {
				t.Errorf("reason %q, message %q; want %q, %q", c.Reason, c.Message, tc.reason, tc.message)
			}
		})
	}
}
