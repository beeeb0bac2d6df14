package health_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

func ok(name string) health.Result { return health.Result{Check: name, Status: "True"} }

func bad(name string) health.Result {
	return health.Result{Check: name, Status: "False", Detail: name + " is broken", Codes: []string{"ERR_" + name}}
}

func failed(name string) health.Result {
	r := health.Error(errors.New("no answer"))
	r.Check = name
	return r
}

func rolling(name string, timeout time.Duration) health.Result {
	return health.Result{Check: name, Status: "Progressing", Detail: name + " rolls", Timeout: timeout}
}

func TestAggregation(t *testing.T) {
	minute := time.Minute
	since := func(ago time.Duration) health.History { return health.History{Since: start.Add(-ago)} }
	wasFalse := health.History{Failed: true}
	for name, tt := range map[string]struct {
		results []health.Result
		past    health.History
		want    health.Status
		reason  string
		message string
		next    health.History
		again   time.Duration // from now; 0 for none
	}{
		"one success": {
			[]health.Result{ok("a")}, health.History{}, "True", "HealthCheckSuccessful", "(1/1) Health checks successful", health.History{}, 0},
		"two successes": {
			[]health.Result{ok("a"), ok("b")}, health.History{}, "True", "HealthCheckSuccessful", "(2/2) Health checks successful", health.History{}, 0},
		"success ends a failure": {
			[]health.Result{ok("a")}, wasFalse, "True", "HealthCheckSuccessful", "(1/1) Health checks successful", health.History{}, 0},
		"success ends progress": {
			[]health.Result{ok("a")}, since(minute), "True", "HealthCheckSuccessful", "(1/1) Health checks successful", health.History{}, 0},
		"a failure among successes": {
			[]health.Result{ok("b"), bad("a")}, health.History{}, "False", "HealthCheckUnsuccessful", "(1/2) Health checks successful: 1) a: a is broken", wasFalse, 0},
		"failures are sorted by check": {
			[]health.Result{bad("c"), ok("b"), bad("a")}, health.History{}, "False", "HealthCheckUnsuccessful", "(1/3) Health checks successful: 1) a: a is broken; 2) c: c is broken", wasFalse, 0},
		"a failure outweighs progress": {
			[]health.Result{rolling("a", minute), bad("b")}, health.History{}, "False", "HealthCheckUnsuccessful", "(0/2) Health checks successful: 1) b: b is broken; 2) a: a rolls", wasFalse, 0},
		"a failure ends progress": {
			[]health.Result{bad("b")}, since(minute), "False", "HealthCheckUnsuccessful", "(0/1) Health checks successful: 1) b: b is broken", wasFalse, 0},
		"a failure goes on": {
			[]health.Result{bad("b")}, wasFalse, "False", "HealthCheckUnsuccessful", "(0/1) Health checks successful: 1) b: b is broken", wasFalse, 0},
		"progress beside a success after a failure is a failure": {
			[]health.Result{ok("a"), rolling("b", 5*minute)}, wasFalse, "False", "HealthCheckUnsuccessful", "(1/2) Health checks successful: 1) b: b rolls; progressing for too long, or after a failure", wasFalse, 0},
		"a failure among all others outweighs them": {
			[]health.Result{ok("a"), bad("b"), rolling("c", minute), failed("d")}, since(minute), "False", "HealthCheckUnsuccessful", "(1/4) Health checks successful: 1) b: b is broken; 2) d: no answer; 3) c: c rolls", wasFalse, 0},
		"errors are sorted by check": {
			[]health.Result{failed("b"), failed("a")}, health.History{}, "Unknown", "ConditionCheckError", "(0/2) Health checks successful: 1) a: no answer; 2) b: no answer", health.History{}, 0},
		"an error outweighs success": {
			[]health.Result{ok("a"), failed("b")}, health.History{}, "Unknown", "ConditionCheckError", "(1/2) Health checks successful: 1) b: no answer", health.History{}, 0},
		"a failure outweighs an error": {
			[]health.Result{bad("b"), failed("a")}, health.History{}, "False", "HealthCheckUnsuccessful", "(0/2) Health checks successful: 1) b: b is broken; 2) a: no answer", wasFalse, 0},
		"an error outweighs progress, which goes on": {
			[]health.Result{rolling("a", minute), failed("b")}, health.History{New: true}, "Unknown", "ConditionCheckError", "(0/2) Health checks successful: 1) b: no answer; 2) a: a rolls", health.History{New: true, Since: start}, minute},
		"progress that is over outweighs an error": {
			[]health.Result{rolling("a", minute), failed("b")}, since(minute), "False", "HealthCheckUnsuccessful", "(0/2) Health checks successful: 1) b: no answer; 2) a: a rolls; progressing for too long, or after a failure", wasFalse, 0},
		"progress after a failure outweighs an error": {
			[]health.Result{rolling("a", minute), failed("b")}, wasFalse, "False", "HealthCheckUnsuccessful", "(0/2) Health checks successful: 1) b: no answer; 2) a: a rolls; progressing for too long, or after a failure", wasFalse, 0},
		"success says more": {
			[]health.Result{ok("b"), {Check: "a", Status: "True", Detail: "not shown", Note: "it is paused"}}, health.History{}, "True", "HealthCheckSuccessful", "(2/2) Health checks successful: 1) a: it is paused", health.History{}, 0},
		"an error keeps when progress began": {
			[]health.Result{failed("b")}, since(minute), "Unknown", "ConditionCheckError", "(0/1) Health checks successful: 1) b: no answer", since(minute), 0},
		"an error keeps that it failed": {
			[]health.Result{failed("b")}, wasFalse, "Unknown", "ConditionCheckError", "(0/1) Health checks successful: 1) b: no answer", wasFalse, 0},
		"progress begins": {
			[]health.Result{ok("a"), rolling("b", 5*minute)}, health.History{}, "Progressing", "HealthCheckProgressing", "(1/2) Health checks successful: 1) b: b rolls", since(0), 5 * minute},
		"progress goes on": {
			[]health.Result{rolling("b", 5*minute)}, since(4 * minute), "Progressing", "HealthCheckProgressing", "(0/1) Health checks successful: 1) b: b rolls", since(4 * minute), minute},
		"the smallest timeout counts": {
			[]health.Result{rolling("a", 9*minute), rolling("b", 5*minute), rolling("c", 7*minute)}, since(4 * minute), "Progressing", "HealthCheckProgressing", "(0/3) Health checks successful: 1) a: a rolls; 2) b: b rolls; 3) c: c rolls", since(4 * minute), minute},
		"progress is over at its timeout": {
			[]health.Result{rolling("b", 5*minute)}, since(5 * minute), "False", "HealthCheckUnsuccessful", "(0/1) Health checks successful: 1) b: b rolls; progressing for too long, or after a failure", wasFalse, 0},
		"the smallest timeout is over": {
			[]health.Result{rolling("a", 9*minute), rolling("b", 5*minute)}, since(5 * minute), "False", "HealthCheckUnsuccessful", "(0/2) Health checks successful: 1) a: a rolls; 2) b: b rolls; progressing for too long, or after a failure", wasFalse, 0},
		"progress after a failure is a failure": {
			[]health.Result{rolling("b", 5*minute)}, wasFalse, "False", "HealthCheckUnsuccessful", "(0/1) Health checks successful: 1) b: b rolls; progressing for too long, or after a failure", wasFalse, 0},
		"progress without a timeout is a failure": {
			[]health.Result{rolling("b", 0)}, health.History{}, "False", "HealthCheckUnsuccessful", "(0/1) Health checks successful: 1) b: b rolls", wasFalse, 0},
		"progress with a negative timeout is a failure": {
			[]health.Result{rolling("b", -minute)}, health.History{}, "False", "HealthCheckUnsuccessful", "(0/1) Health checks successful: 1) b: b rolls", wasFalse, 0},
		"a start that lies ahead begins now": {
			[]health.Result{rolling("b", 5*minute)}, since(-time.Hour), "Progressing", "HealthCheckProgressing", "(0/1) Health checks successful: 1) b: b rolls", since(0), 5 * minute},
		"a status that is none": {
			[]health.Result{{Check: "a", Status: "Fine"}}, health.History{}, "Unknown", "ConditionCheckError", `(0/1) Health checks successful: 1) a: the check gave status "Fine", which is none of True, False, Progressing and Unknown`, health.History{}, 0},
		"no result": {
			nil, since(minute), "Unknown", "ConditionCheckError", "no check gave a result", since(minute), 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := health.Aggregate(tt.results, tt.past, start)
			if v.Status != tt.want || v.Reason != tt.reason || v.Message != tt.message {
				t.Errorf("got %s %s %q", v.Status, v.Reason, v.Message)
			}
			if v.History != tt.next {
				t.Errorf("history %+v, want %+v", v.History, tt.next)
			}
			var again time.Time
			if tt.again > 0 {
				again = start.Add(tt.again)
			}
			if !v.RequeueAt.Equal(again) {
				t.Errorf("look again at %s, want %s", v.RequeueAt, again)
			}
		})
	}
}

func TestCodesAreThoseOfAllThatIsNotTrue(t *testing.T) {
	healthy := ok("c")
	healthy.Codes = []string{"ERR_c"}
	v := health.Aggregate([]health.Result{bad("b"), bad("a"), bad("b"), healthy}, health.History{}, start)
	if got := strings.Join(v.Codes, " "); got != "ERR_a ERR_b" {
		t.Errorf("codes %s", got)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	var results []health.Result
	for i := range 200 {
		results = append(results, health.Result{Check: fmt.Sprintf("check-%03d", i), Status: "False", Detail: strings.Repeat("é\n", 5000)})
	}
	v := health.Aggregate(results, health.History{}, start)
	if len(v.Message) > 16<<10 || strings.Contains(v.Message, "\n") || !strings.HasSuffix(v.Message, "; and 180 more") {
		t.Errorf("%d bytes that end with %q", len(v.Message), v.Message[len(v.Message)-40:])
	}
}

func TestAnOddMomentIsNeverEarly(t *testing.T) {
	now := start.Add(300 * time.Millisecond)
	v := health.Aggregate([]health.Result{rolling("a", time.Minute)}, health.History{}, now)
	if want := start.Add(61 * time.Second); !v.RequeueAt.Equal(want) {
		t.Errorf("ends at %s, want %s", v.RequeueAt, want)
	}
}

// TestAnyAggregate: the order of results doesn't matter, and what is believed is what the worst of them says.
func TestAnyAggregate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		results := rapid.SliceOfN(rapid.SampledFrom([]health.Result{ok("a"), bad("b"), failed("c"), rolling("d", time.Minute), rolling("e", time.Hour), rolling("f", 0)}), 1, 6).Draw(t, "results")
		past := rapid.SampledFrom([]health.History{{}, {Failed: true}, {Since: start.Add(-time.Second)}, {Since: start.Add(-10 * time.Minute)}}).Draw(t, "past")
		v := health.Aggregate(results, past, start)
		turned := slices.Clone(results)
		slices.Reverse(turned)
		if w := health.Aggregate(turned, past, start); w.Status != v.Status || w.Message != v.Message || w.History != v.History {
			t.Fatalf("in another order %+v becomes %+v", v, w)
		}
		has := func(s health.Status) bool {
			return slices.ContainsFunc(results, func(r health.Result) bool { return r.Status == s })
		}
		switch {
		case has("False") && v.Status != "False", v.Status == "Unknown" && !has("Unknown"):
			t.Fatalf("%+v gives %+v", results, v)
		case v.Status == "True" && (has("False") || has("Progressing") || has("Unknown")), v.Status == "False" && !has("False") && !has("Progressing"):
			t.Fatalf("%+v gives %+v", results, v)
		case v.Status == "Progressing" && past.Failed, (v.Status == "Progressing" || v.Status == "Unknown" && has("Progressing")) != !v.RequeueAt.IsZero():
			t.Fatalf("%+v gives %+v", results, v)
		}
	})
}
