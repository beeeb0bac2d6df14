package guard

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
)

// FuzzCompile: organisations write rules of their own. Whatever they write, it compiles or gives an error with a position;
// what compiles gives a verdict within the budget, at admission and at run time.
func FuzzCompile(f *testing.F) {
	g := newTestGuard(f, &fakeFacts{forecast: condition.Forecast{MatchingNodes: []string{"n1", "n2"}}})
	g.opts.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	kinds := g.Kinds()
	for i, kind := range kinds {
		for _, r := range g.Rules(kind) {
			f.Add(byte(i), r.Expression, r.MessageExpression)
		}
	}
	for _, seed := range []string{
		"", "true", "object.spec.efect == ''", "dyn(object)", "plan.matchingNodes.all(a, plan.matchingNodes.all(b, a != b))", "plan == plan", "size(plan) > 3",
		"object.spec.type.matches('(a+)+$')", "[1, 2].exists(x, x / 0 == 1)", "has(object.spec.__for__)", "'a'.repeat(3)", "limits.maxTaintedNodes.percent > 3",
		"authorizer.serviceAccount('a', 'b').group('').resource('pods').check('delete').allowed()", "plan.exists(k, k == 'nodes')", "'ü\n' + object.spec.efect",
	} {
		f.Add(byte(0), seed, "'x' + object.spec.type")
	}
	objects := map[string]map[string]any{}
	for _, kind := range kinds {
		admitted, _ := specimens(f, kind)
		objects[kind] = made(f, admitted)
	}
	f.Fuzz(func(t *testing.T, which byte, expression, message string) {
		name := kinds[int(which)%len(kinds)]
		compiled := g.kinds[name].compileOwnRule("own", &v1alpha1.GuardrailRule{Name: "x", Expression: expression, MessageExpression: message})
		if compiled.fault != nil {
			if lines := strings.Split(compiled.fault.Message, "\n"); len(lines) != 3 || !strings.HasSuffix(lines[2], "^") {
				t.Errorf("an error without an excerpt: %q", compiled.fault.Message)
			}
			return
		}
		rules := g.rules.Load()
		e, err := g.admission(t.Context(), rules, rules.kinds[name], creating(t, objects[name]))
		if err != nil {
			t.Fatal(err)
		}
		e.add(&Verdict{}, compiled)
		if spent := maxRequestCost - e.remaining.units; spent > 4*maxRuleCost {
			t.Errorf("cost %d, estimated at most %d", spent, compiled.condition.cost)
		}
	})
}
