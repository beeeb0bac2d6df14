package health

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestWhatChecksWriteIsOfTheirForm(t *testing.T) {
	at := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	results := []Result{
		{Check: "a", Status: True}, {Check: "b", Status: False, Detail: "broken"}, {Check: "c", Status: Unknown, Detail: "what: ever"},
		{Check: "d", Status: Progressing, Timeout: time.Hour}, {Check: "e", Status: Progressing}, {Check: "f", Status: "Odd"},
	}
	for _, shape := range []Shape{Gardener, Conditions} {
		var previous *Condition
		seen := map[string]bool{}
		for round := range 4 * 64 { // every set of results, after every other kind of condition
			var some []Result
			for i := range results {
				if round&(1<<i) != 0 {
					some = append(some, results[i])
				}
			}
			v := Aggregate(some, previous.Past(), at)
			if round >= 128 && v.Status == False {
				v = inDoubt(v, previous.Past())
			}
			next, _ := Next(previous, "X", v, Layout{Shape: shape}, 1, at)
			if !next.WrittenByChecks() {
				t.Fatalf("%s: a check's own condition isn't known as one: %+v", shape, next)
			}
			seen[next.Reason] = true
			previous = &next
		}
		if len(seen) != 5 {
			t.Errorf("%s: only %v were written", shape, seen)
		}
	}
}

// having is a target with one condition.
func having(condition map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{condition}}}}
}

func TestWhatOthersWriteIsNot(t *testing.T) {
	const message = "(1/1) Health checks successful"
	for name, c := range map[string]*Condition{
		"none":                        nil,
		"another reason":              {Status: True, Reason: "KubeletReady", Message: message},
		"no reason":                   {Status: True, Message: message},
		"another message":             {Status: True, Reason: "HealthCheckSuccessful", Message: "all is well"},
		"a message that goes on":      {Status: True, Reason: "HealthCheckSuccessful", Message: message + "ly"},
		"a message that is within":    {Status: True, Reason: "HealthCheckSuccessful", Message: "not " + message},
		"no message":                  {Status: True, Reason: "HealthCheckSuccessful"},
		"progressing since who knows": {Status: Progressing, Reason: "HealthCheckProgressing", Message: "Progressing since ever: " + message},
	} {
		if c.WrittenByChecks() {
			t.Errorf("%s counts as written by health checks", name)
		}
	}
	foreign := having(map[string]any{"type": "X", "status": "True", "reason": "R", "message": "m"})
	if plan := PlanTarget(Input{Target: foreign, Remove: []string{"X"}}, time.Time{}); len(plan.Steps) > 0 {
		t.Errorf("what others wrote is removed: %+v", plan.Steps)
	}
	if edited := (&Condition{Status: False, Reason: "HealthCheckSuccessful", Message: message}); !edited.WrittenByChecks() {
		t.Error("a status that somebody edited makes the condition theirs")
	}
	ours := having(map[string]any{"type": "X", "status": "True", "reason": "HealthCheckSuccessful", "message": message})
	if plan := PlanTarget(Input{Target: ours, Remove: []string{"X"}}, time.Time{}); !slices.ContainsFunc(plan.Steps, func(s Step) bool { return s.Remove }) {
		t.Error("what checks wrote isn't removed")
	}
}
