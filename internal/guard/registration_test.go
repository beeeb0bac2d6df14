package guard

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

func TestWhatChoosesObjectsMustBeReadable(t *testing.T) {
	g := newTestGuard(t, nil)
	for where, problem := range map[string]string{
		"has(object.spec.class)":              "",
		"has(object.spec.class":               "check a: object.where: Syntax error: it ends too early",
		"'1 > 0'":                             "check a: object.where: it is the same for every object",
		"object.spec.clazz + string(1)":       "check a: object.where: it gives a string, not a bool",
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
