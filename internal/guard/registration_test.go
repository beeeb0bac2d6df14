package guard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

func TestWhatChoosesObjectsMustBeReadable(t *testing.T) {
	g := newTestGuard(t, nil)
	for where, problem := range map[string]string{
		"has(object.spec.class)":              "",
		"has(object.spec.class":               "check a: object.where: Syntax error: it ends too early",
		"'1 > 0'":                             "check a: object.where: it is the same for every object",
		"object.spec.clazz + string(1)":       "check a: object.where: it gives string, not bool",
		"subject.spec.class == 'seed'":        "check a: object.where: undeclared reference to 'subject'; it may read target and object",
		"size(target.status.conditions) == 0": "check a: object.where: it reads target.status.conditions, which checks write, or all of what they are in; name the field that it is about",
	} {
		t.Run(where, func(t *testing.T) {
			o := object(t, "{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: HealthCheckRegistration, metadata: {name: x, uid: u1, generation: 1}, "+
				"spec: {target: {apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, type: aws}, checks: [{name: a, conditionType: X, "+
				"object: {apiVersion: apps/v1, kind: Deployment, selector: {}, where: "+where+"}, evaluate: {builtin: {}}}]}}")
			v := g.Review(t.Context(), creating(t, o))
			if v.Allowed != (problem == "") || !strings.Contains(v.Message(), problem) {
				t.Errorf("refused by %v: %s", v.RuleIDs(), v.Message())
			}
		})
	}
}

func TestACostlyExpressionIsRefusedOnlyWhereItIsNew(t *testing.T) {
	const readable = "healthcheckregistration/readable"
	registration := func(spec string) map[string]any {
		o := object(t, "{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: HealthCheckRegistration, metadata: {name: x, uid: u1, generation: 1}}")
		o["spec"] = object(t, "{"+spec+", target: {apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, type: aws}, "+
			"checks: [{name: a, conditionType: X, object: {apiVersion: apps/v1, kind: Deployment, name: \"'d'\"}, evaluate: {builtin: {}}}]}")
		return o
	}
	const costly = "suspendWhen: 'target.spec.a.all(x, target.spec.b.all(y, target.spec.c.all(z, target.spec.d.all(w, x + y == z + w))))'"
	const another = "suspendWhen: 'target.spec.a.all(x, target.spec.b.all(y, target.spec.c.all(z, target.spec.d.all(w, x + z == y + w))))'"
	g := newTestGuard(t, nil)
	for name, c := range map[string]struct {
		old, new string
		refused  bool
	}{
		"created":                   {"", costly, true},
		"changed to it":             {"syncPeriod: 30s", costly, true},
		"changed to another":        {costly, another, true},
		"of one that now observes":  {costly, costly + ", mode: Observe", false},
		"of one that now enforces":  {costly + ", mode: Observe", costly, false},
		"of another period":         {costly, costly + ", syncPeriod: 1m", false},
		"of one that becomes cheap": {costly, "suspendWhen: target.spec.a", false},
	} {
		t.Run(name, func(t *testing.T) {
			req := creating(t, registration(c.new))
			if c.old != "" {
				req.Operation, req.OldObject = admissionv1.Update, jsonOf(t, registration(c.old))
			}
			if v := g.Review(t.Context(), req); slices.Contains(v.RuleIDs(), readable) != c.refused {
				t.Errorf("refused by %v: %s", v.RuleIDs(), v.Message())
			}
		})
	}
	rules := g.rules.Load()
	stored := g.evaluation(t.Context(), rules, rules.kinds["HealthCheckRegistration"], judgedAs(t, registration(costly)))
	if v := stored.atRunTime(); !v.Allowed {
		t.Errorf("where it is stored it is refused by %v: %s", v.RuleIDs(), v.Message())
	}
}

// TestFieldsOfAForecastMayNotBeKnown: rules that read these wait for facts, and the others judge.
func TestFieldsOfAForecastMayNotBeKnown(t *testing.T) {
	compiled, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	request := creating(t, object(t, `{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: HealthCheckRegistration, metadata: {name: x}, spec: {
  target: {apiVersion: example.org/v1, kind: Gadget, type: a}, checks: [{name: a, conditionType: X, object: {apiVersion: apps/v1, kind: Deployment, name: "'d'"}, evaluate: {cel: {healthy: object.spec.ok}}}]}}`))
	unknown := fmt.Errorf("%w: no schema", ErrNotKnown)
	for name, tt := range map[string]struct {
		forecast registration.Forecast
		refused  []string
		skipped  []string
	}{
		"types are known":     {registration.Forecast{}, nil, nil},
		"they aren't":         {registration.Forecast{Items: registration.Items{Untyped: unknown}}, nil, []string{"type-error", "undefined-field"}},
		"some tell a failure": {registration.Forecast{Items: registration.Items{Untyped: unknown}, TypeErrors: []string{"a: it gives a int"}}, []string{"type-error"}, []string{"undefined-field"}},
	} {
		t.Run(name, func(t *testing.T) {
			planner := PlannerThatReads(func(context.Context, *v1alpha1.HealthCheckRegistration, limit.Limits, time.Time) (registration.Forecast, error) {
				return tt.forecast, nil
			})
			v := under(t, compiled, Options{Facts: &plainFacts{}, Planners: map[string]Planner{"HealthCheckRegistration": planner}}).Review(t.Context(), request)
			short := func(id string) string { return strings.TrimPrefix(id, "healthcheckregistration/") }
			var refused, skipped []string
			for _, violation := range v.Violations {
				refused = append(refused, short(violation.Rule))
			}
			for _, s := range v.Skipped {
				if skipped = append(skipped, short(s.Rule)); s.Missing != MissingFacts || !strings.Contains(s.Reason, "no schema") {
					t.Errorf("%+v", s)
				}
			}
			if !slices.Equal(refused, tt.refused) || !slices.Equal(skipped, tt.skipped) || v.Allowed != (tt.refused == nil) {
				t.Errorf("allowed %v; refused by %q, skipped %q", v.Allowed, refused, skipped)
			}
		})
	}
}
