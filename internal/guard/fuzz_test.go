package guard

import (
	"context"
	"reflect"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/resourcestack/autohealer/crds"
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
	definitions, err := readCRDs(crds.FS)
	if err != nil {
		f.Fatal(err)
	}
	declared, err := objectType(definitions["ConditionSet"])
	if err != nil {
		f.Fatal(err)
	}
	env, err := newEnvironments(declared, reflect.TypeFor[condition.Preview]())
	if err != nil {
		f.Fatal(err)
	}
	g := newTestGuard(f, &fakeFacts{preview: condition.Preview{MatchingNodes: []string{"n1", "n2"}}})
	set := conditionSet(f, goodSpec)
	f.Fuzz(func(t *testing.T, expression, message string) {
		rule, err := compileRule(env, Rule{ID: "x", Severity: Deny, Expression: expression, MessageExpression: message}, "false", nil)
		if err != nil {
			return
		}
		e := g.evaluation(context.Background(), &kindRules{kind: "ConditionSet"}, set)
		e.request = admissionRequest(Request{Operation: admissionv1.Create}, unstructured.Unstructured{Object: set})
		e.verdict([]*compiledRule{rule})
		if spent := maxRequestCost - e.budget; spent > 4*maxRuleCost {
			t.Errorf("cost %d, estimated at most %d", spent, rule.condition.cost)
		}
	})
}
