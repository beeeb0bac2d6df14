package health_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

func plan(t *testing.T, status string, results map[string][]health.Result, more func(*health.Input)) health.Plan {
	t.Helper()
	in := health.Input{Target: worker(t, status), Shape: "Gardener", Results: results}
	if more != nil {
		more(&in)
	}
	return health.PlanTarget(in, start)
}

func TestTheExampleOfAWorker(t *testing.T) {
	p := plan(t, "", map[string][]health.Result{
		"SystemComponentsHealthy": {ok("shoot-mcm")}, "EveryNodeReady": {ok("nodes"), ok("mcm")},
	}, nil)
	if len(p.Steps) != 2 {
		t.Fatalf("%+v", p.Steps)
	}
	for i, want := range []string{"EveryNodeReady (2/2) Health checks successful", "SystemComponentsHealthy (1/1) Health checks successful"} {
		c := p.Steps[i].Condition
		if got := c.Type + " " + c.Message; got != want || c.Status != "True" || c.Reason != "HealthCheckSuccessful" {
			t.Errorf("%+v", c)
		}
	}
}

func TestWhatIsAsItShouldBeIsNotWritten(t *testing.T) {
	results := map[string][]health.Result{"X": {ok("a")}}
	const is = "status: {conditions: [{type: X, status: 'True', reason: HealthCheckSuccessful, message: (1/1) Health checks successful}]}"
	if p := plan(t, is, results, nil); len(p.Steps) != 0 || p.Verdicts["X"].Status != "True" {
		t.Errorf("%+v", p)
	}
}

func TestThePlanLooksAgainAtTheFirstDeadline(t *testing.T) {
	p := plan(t, "", map[string][]health.Result{
		"X": {rolling("a", 9*time.Minute)}, "Y": {rolling("b", 5*time.Minute)}, "Z": {ok("c")},
	}, nil)
	if !p.RequeueAt.Equal(start.Add(5 * time.Minute)) {
		t.Errorf("looks again at %s", p.RequeueAt)
	}
}

func TestTheBreakerHoldsWhatTurnsFalse(t *testing.T) {
	asked := 0
	var doubted []string
	refuse := func(in *health.Input) {
		in.AllowFalse = func(t string, inDoubt bool) bool {
			if asked++; inDoubt {
				doubted = append(doubted, t)
			}
			return false
		}
	}
	both := map[string][]health.Result{"X": {bad("a")}, "Y": {bad("b")}, "Z": {ok("c")}}
	p := plan(t, "status: {conditions: [{type: X, status: 'True', reason: HealthCheckSuccessful}, {type: 'Y', status: 'True', reason: HealthCheckSuccessful}]}", both, refuse)
	if asked != 2 || len(p.Steps) != 3 {
		t.Fatalf("asked %d times: %+v", asked, p.Steps)
	}
	for _, s := range p.Steps[:2] {
		if s.Condition.Status != "Unknown" || s.Condition.Reason != "HealthCheckInDoubt" || !s.Held {
			t.Errorf("%+v", s)
		}
	}
	if s := p.Steps[2]; s.Condition.Status != "True" || s.Held {
		t.Errorf("%+v", s)
	}

	asked = 0
	was := "status: {conditions: [{type: X, status: 'False', reason: HealthCheckUnsuccessful, message: old}]}"
	if p := plan(t, was, map[string][]health.Result{"X": {bad("a")}}, refuse); asked != 0 || len(p.Steps) != 1 || p.Steps[0].Condition.Status != "False" {
		t.Errorf("what is False already: asked %d times: %+v", asked, p.Steps)
	}

	if len(doubted) != 0 {
		t.Errorf("%v is in doubt before anything is", doubted)
	}
	plan(t, "status: {conditions: [{type: X, status: Unknown, reason: ConditionCheckError}, {type: 'Y', status: Unknown, reason: HealthCheckInDoubt}]}", both, refuse)
	if len(doubted) != 1 || doubted[0] != "Y" {
		t.Errorf("%v is in doubt, not Y alone", doubted)
	}
}

func TestWhatWasNeverTrueIsNotAskedFor(t *testing.T) {
	const starts = "status: {conditions: [{type: X, status: Progressing, reason: HealthCheckProgressing, message: 'Not seen healthy yet. Progressing since 2026-03-01T02:00:00Z: (0/1) Health checks successful'}]}"
	for _, status := range []string{"", starts} {
		p := plan(t, status, map[string][]health.Result{"X": {bad("a")}}, func(in *health.Input) {
			in.AllowFalse = func(string, bool) bool { t.Errorf("%q: the breaker is asked", status); return false }
		})
		if len(p.Steps) != 1 || p.Steps[0].Condition.Status != health.False || p.Steps[0].Counted {
			t.Errorf("%q: %+v", status, p.Steps)
		}
	}
}

func TestTypesToRemove(t *testing.T) {
	remove := func(in *health.Input) { in.Remove = []string{"Old", "X", "Never", "Theirs"} }
	const byChecks = "status: 'True', reason: HealthCheckSuccessful, message: (1/1) Health checks successful}"
	p := plan(t, "status: {conditions: [{type: Old, "+byChecks+", {type: Kept, "+byChecks+", {type: Theirs, status: 'True'}]}", map[string][]health.Result{"X": {ok("a")}}, remove)
	if len(p.Steps) != 2 || p.Steps[0].Remove || !p.Steps[1].Remove || p.Steps[1].Condition.Type != "Old" {
		t.Errorf("%+v", p.Steps)
	}
}

// TestWhatASchemaLacksIsNotWritten has an API server store conditions without the fields that their kind's schema lacks.
func TestWhatASchemaLacksIsNotWritten(t *testing.T) {
	for name, tt := range map[string]struct {
		shape health.Shape
		lacks health.Unsupported
		// known: the schema was read.
		known bool
		want  string
	}{
		"metav1.Condition without observedGeneration":  {"Conditions", health.Unsupported{Codes: true, ObservedGeneration: true, LastUpdateTime: true}, true, ""},
		"which only the API server knows":              {"Conditions", health.Unsupported{ObservedGeneration: true}, false, "observedGeneration"},
		"metav1.Condition":                             {"Conditions", health.Unsupported{Codes: true, LastUpdateTime: true}, true, "observedGeneration"},
		"Gardener's without codes":                     {"Gardener", health.Unsupported{Codes: true}, true, "lastUpdateTime"},
		"Gardener's written to conditions of metav1's": {"Gardener", health.Unsupported{Codes: true, LastUpdateTime: true}, true, ""},
		"Gardener's": {"Gardener", health.Unsupported{}, true, "codes lastUpdateTime"},
	} {
		t.Run(name, func(t *testing.T) {
			target := object(t, "{apiVersion: example.org/v1, kind: Gadget, metadata: {name: g, uid: u, resourceVersion: '1', generation: 3}}")
			in := health.Input{Target: target, Shape: tt.shape, Results: map[string][]health.Result{
				"X": {{Check: "a", Status: "False", Detail: "quota", Codes: []string{"ERR_INFRA_QUOTA_EXCEEDED"}}},
			}}
			if tt.known {
				in.Unsupported = tt.lacks
			}
			var writes []string
			for i := range 3 {
				for _, step := range health.PlanTarget(in, start.Add(time.Duration(i)*time.Minute)).Steps {
					status := health.ApplyObject(target, step.Condition, step.Shape).Object["status"].(map[string]any)
					entry := status["conditions"].([]any)[0].(map[string]any)
					var more []string
					for field, pruned := range map[string]bool{"codes": tt.lacks.Codes, "observedGeneration": tt.lacks.ObservedGeneration, "lastUpdateTime": tt.lacks.LastUpdateTime} {
						if _, has := entry[field]; has {
							more = append(more, field)
						}
						if pruned {
							delete(entry, field)
						}
					}
					slices.Sort(more)
					writes = append(writes, strings.Join(more, " "))
					target.Object["status"] = status
				}
			}
			if !slices.Equal(writes, []string{tt.want}) {
				t.Errorf("three looks write %q", writes)
			}
		})
	}
}

func TestEachConditionHasTheShapeThatIsAskedForIt(t *testing.T) {
	of := func(status health.Status) []health.Result { return []health.Result{{Check: "a", Status: status}} }
	p := plan(t, "", map[string][]health.Result{"X": of("True"), "Y": of("True")}, func(in *health.Input) {
		in.Shapes = map[string]health.Shape{"Y": "Conditions"}
	})
	if len(p.Steps) != 2 || p.Steps[0].Shape != "Gardener" || p.Steps[1].Shape != "Conditions" {
		t.Errorf("%+v", p.Steps)
	}
}

func TestWhatWasFalseBeforeAnUnknownIsNotHeldBack(t *testing.T) {
	unknown := "status: {conditions: [{type: X, status: Unknown, reason: ConditionCheckError, message: 'Unsuccessful, then unknown: (0/1) Health checks successful: 1) a: no answer'}]}"
	doubted := "status: {conditions: [{type: X, status: Unknown, reason: HealthCheckInDoubt, message: 'held at Unknown, because too many targets turn False at once: (0/1) Health checks successful: 1) a: m'}]}"
	for status, want := range map[string]health.Status{unknown: "False", doubted: "Unknown", "": "False"} {
		p := plan(t, status, map[string][]health.Result{"X": {{Check: "a", Status: "False", Detail: "m"}}}, func(in *health.Input) {
			in.AllowFalse = func(string, bool) bool { return false }
		})
		if got := p.Verdicts["X"].Status; got != want {
			t.Errorf("%s turns %s", status, got)
		}
	}
}
