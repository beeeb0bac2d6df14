package overview

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kinds"
)

func is(conditionType, status, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: metav1.ConditionStatus(status), Reason: reason, Message: message}
}

// TestWhatEachKindsRowSays: each kind tells what it does in its own words, and the message that matters most to who must act.
func TestWhatEachKindsRowSays(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "p", Namespace: "shop", Generation: 2}
	operative := []metav1.Condition{is("Accepted", "True", "Admitted", "a"), is("Ready", "True", "Operative", "r")}
	for name, c := range map[string]struct {
		object kinds.Object
		want   Policy
		well   bool
	}{
		"ConditionSet": {&v1alpha1.ConditionSet{ObjectMeta: meta, Status: v1alpha1.ConditionSetStatus{
			ObservedGeneration: 2, Conditions: append(operative, is("BreakerOpen", "True", "TooManyMatchAtOnce", "b")),
			Nodes: &v1alpha1.NodeCounts{Selected: 40, Tainted: 4, HeldBack: 2},
		}}, Policy{Accepted: "True", Ready: "True", Reason: "Operative", Acting: "4 of 40 nodes tainted", HeldBack: 2, BreakerOpen: true, Message: "b"}, false},
		"WeederConfig": {&v1alpha1.WeederConfig{ObjectMeta: meta, Status: v1alpha1.WeederConfigStatus{
			ObservedGeneration: 2, Conditions: operative, ActiveWindows: 1, Deleted: 7, Skipped: []v1alpha1.SkippedPods{{Reason: "A", Count: 2}, {Reason: "B", Count: 3}},
		}}, Policy{Accepted: "True", Ready: "True", Reason: "Operative", Acting: "1 windows open, 7 pods deleted so far, 5 spared", Message: "r"}, true},
		"HealthCheckRegistration": {&v1alpha1.HealthCheckRegistration{ObjectMeta: meta, Status: v1alpha1.HealthCheckRegistrationStatus{
			ObservedGeneration: 2, Conditions: operative, Targets: 5, Healthy: 4, Unhealthy: 1,
		}}, Policy{Accepted: "True", Ready: "True", Reason: "Operative", Acting: "4 of 5 targets healthy", Message: "r"}, true},
		"ProbeConfig": {&v1alpha1.ProbeConfig{ObjectMeta: meta, Status: v1alpha1.ProbeConfigStatus{
			ObservedGeneration: 1, Conditions: append(operative, is("Stalled", "True", "Forbidden", "s")), Targets: &v1alpha1.TargetCounts{Total: 5, ScaledDown: 1},
		}}, Policy{Accepted: "True", Ready: "True", Reason: "Operative", Acting: "1 of 5 targets scaled down", Outdated: true, Message: "s"}, false},
		"OutlierPolicy": {&v1alpha1.OutlierPolicy{ObjectMeta: meta, Status: v1alpha1.OutlierPolicyStatus{
			ObservedGeneration: 2, Conditions: operative, Clusters: 3, Hosts: 9,
		}}, Policy{Accepted: "True", Ready: "True", Reason: "Operative", Acting: "3 clusters with 9 hosts", Message: "r"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := policyOf(name, c.object)
			c.want.Kind, c.want.Namespace, c.want.Name, c.want.resource = name, "shop", "p", got.resource
			if got != c.want {
				t.Errorf("got\n%+v, want\n%+v", got, c.want)
			}
			if got.Healthy() != c.well || got.Ref() != strings.ToLower(name)+".autohealer.resourcestack.com/p" {
				t.Errorf("well %t, reference %s", got.Healthy(), got.Ref())
			}
		})
	}
}

func TestWhatNobodyTakesOffIsForSomebodyToLookAt(t *testing.T) {
	well := Overview{Manager: Manager{Leads: true, Leader: "m", Renewed: &metav1.Time{}, Ready: -1, Replicas: -1}}
	if !well.Healthy() {
		t.Fatal("it isn't well to begin with")
	}
	for says, change := range map[string]func(*Overview){
		"Orphaned: taint example.com/k:NoSchedule on node/a, of ConditionSet kernel, which does not exist. To take it off: kubectl autohealer undo node/a\n": func(o *Overview) {
			o.Orphans = []Orphan{{Object: "node/a", Taint: "example.com/k:NoSchedule", Policy: "kernel"}}
		},
		"Unreadable: the annotation autohealer.resourcestack.com/owned-taints of node/a, so that nothing is done and nothing undone there. To fix it, repair it\n": func(o *Overview) {
			o.BrokenRecords = []BrokenRecord{{Object: "node/a", Mend: "repair it"}}
		},
	} {
		o, text := well, strings.Builder{}
		change(&o)
		if err := o.Text(&text, TextOptions{}); err != nil {
			t.Fatal(err)
		}
		if o.Healthy() || !strings.Contains(text.String(), says) {
			t.Errorf("well %t, says\n%s, want\n%s", o.Healthy(), text.String(), says)
		}
	}
}

func TestColorsAreForTerminalsAndTheWorstComesFirst(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	o := &Overview{FrozenBy: []string{"stop"}, Limits: []Limit{{Name: "maxTaintedNodes", Value: "10%", Used: 4, Allowed: 4, Of: 40}}, Manager: Manager{Ready: 0, Replicas: 2}}
	var plain, colored strings.Builder
	if err := o.Text(&plain, TextOptions{Now: now}); err != nil {
		t.Fatal(err)
	}
	want := `Frozen by Guardrail stop: nothing is done and nothing undone.
Manager: none leads, so nothing is done; 0 of 2 replicas are ready
maxTaintedNodes: 4 of 4 used (10% of 40)

There are no policies.
`
	if plain.String() != want || o.Healthy() {
		t.Errorf("well %t, got\n%s", o.Healthy(), plain.String())
	}
	if err := o.Text(&colored, TextOptions{Now: now, Colors: true}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(colored.String(), "\x1b[31mFrozen by ") {
		t.Errorf("got %q", colored.String())
	}
}
