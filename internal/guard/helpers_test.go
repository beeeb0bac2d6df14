package guard

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// fakeFacts answer with a forecast laid down beforehand, and count how often they were asked.
type fakeFacts struct {
	unsynced bool
	age      time.Duration
	forecast condition.Forecast
	asked    int
	panics   bool
}

func (f *fakeFacts) Synced() bool                { return !f.unsynced }
func (f *fakeFacts) Age(time.Time) time.Duration { return f.age }
func (f *fakeFacts) Nodes() int                  { return 40 }
func (f *fakeFacts) ForecastConditionSet(*v1alpha1.ConditionSet, limit.Limits, time.Time) condition.Forecast {
	f.asked++
	if f.panics {
		panic("the planner broke")
	}
	return f.forecast
}

func (f *fakeFacts) planners() map[string]Planner {
	return map[string]Planner{"ConditionSet": PlannerOf(f.ForecastConditionSet)}
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// builtin is compiled once for all tests: rule sets are immutable.
var builtin = sync.OnceValues(func() (*Guard, error) { return New(Options{}) })

func newTestGuard(t testing.TB, facts Facts) *Guard {
	t.Helper()
	compiled, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	return under(t, compiled, Options{Facts: facts})
}

// under is a guard with the same built-in rules in another world.
func under(t testing.TB, compiled *Guard, opts Options) *Guard {
	t.Helper()
	if fake, ok := opts.Facts.(*fakeFacts); ok && opts.Planners == nil {
		opts.Planners = fake.planners()
	}
	if opts.Clock == nil {
		opts.Clock = clocktesting.NewFakePassiveClock(noon)
	}
	g, err := startGuard(opts, compiled.kinds)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// object reads YAML as admission reads JSON.
func object(t testing.TB, text string) map[string]any {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var content map[string]any
	if err := utiljson.Unmarshal(asJSON, &content); err != nil {
		t.Fatal(err)
	}
	return content
}

// conditionSet completes a spec to an object.
func conditionSet(t testing.TB, spec string) map[string]any {
	t.Helper()
	content := object(t, "{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: ConditionSet, metadata: {name: x, uid: u1, generation: 1}}")
	content["spec"] = object(t, spec)
	return content
}

// creating and updating are requests as admission has them, of objects whose kind they say.
func creating(t testing.TB, object map[string]any) Request {
	t.Helper()
	kind, _ := object["kind"].(string)
	return Request{Operation: admissionv1.Create, Kind: kind, Object: jsonOf(t, object)}
}

func updating(t testing.TB, old, object map[string]any) Request {
	t.Helper()
	r := creating(t, object)
	r.Operation, r.OldObject = admissionv1.Update, jsonOf(t, old)
	return r
}

func jsonOf(t testing.TB, object map[string]any) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// judgedAs reads an object whose kind it says.
func judgedAs(t testing.TB, object map[string]any) judged {
	t.Helper()
	kind, _ := object["kind"].(string)
	j, err := readJudged(kind, jsonOf(t, object))
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// CheckGuardrail compiles a Guardrail's rules against each of their kinds, and gives what is wrong with them.
func (g *Guard) CheckGuardrail(gr *v1alpha1.Guardrail) []RuleError {
	set := g.rules.Load()
	return g.check(set, gr, set.compiled.recompile(compiledRules{})).errors
}
