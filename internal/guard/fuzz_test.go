package guard

import (
	"context"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/guard/catalog"
)

// FuzzCompile: organisations will write rules of their own. Whatever they write, it compiles or gives an error; what
// compiles gives a verdict within the budget.
func FuzzCompile(f *testing.F) {
	built, err := parseCatalogue(catalog.FS, "conditionset.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, r := range built.Rules {
		f.Add(r.Expression, r.MessageExpression)
	}
	for _, seed := range []string{
		"", "true", "object.spec.efect == ''", "dyn(object)", "plan.matchingNodes.all(a, plan.matchingNodes.all(b, a != b))",
		"object.spec.type.matches('(a+)+$')", "[1, 2].exists(x, x / 0 == 1)", "has(object.spec.__for__)", "'a'.repeat(3)",
	} {
		f.Add(seed, "'x' + object.spec.type")
	}
	g := newTestGuard(f, &fakeFacts{preview: condition.Preview{MatchingNodes: []string{"n1", "n2"}}})
	set := conditionSet(f, goodSpec)
	f.Fuzz(func(t *testing.T, expression, message string) {
		kind := g.kinds["ConditionSet"]
		compiled := kind.compileOwnRule("own", &v1alpha1.GuardrailRule{Name: "x", Expression: expression, MessageExpression: message})
		if compiled.err != nil {
			return
		}
		e := g.admission(context.Background(), g.rules.Load(), g.rules.Load().kinds["ConditionSet"], Request{Operation: admissionv1.Create, Object: set})
		e.add(&Verdict{}, compiled.rule)
		if spent := maxRequestCost - e.left.units; spent > 4*maxRuleCost {
			t.Errorf("cost %d, estimated at most %d", spent, compiled.rule.condition.cost)
		}
	})
}
