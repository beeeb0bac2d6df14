package guard

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	apicel "k8s.io/apiserver/pkg/apis/cel"
	decl "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

const (
	// maxRuleCost is what one expression, its message or a variable may cost by the static estimate, in CEL cost units:
	// about 10 ms at worst.
	maxRuleCost = 100_000
	// maxRequestCost is what all rules of a request may really cost together: about 0.1 s.
	maxRequestCost = 1_000_000
)

// program is a compiled expression.
type program struct {
	run   cel.Program
	reads reads
	cost  uint64
}

// compile checks an expression's types, result type and static cost, and plans it over dynamic values. Errors carry the
// position and the cause.
func (e *environments) compile(expression string, want *cel.Type) (program, error) {
	checked, issues := e.typed.Compile(expression)
	if issues.Err() != nil {
		return program{}, issues.Err()
	}
	if !compatible(want, checked.OutputType()) {
		return program{}, fmt.Errorf("returns %s, want %s:\n | %s\n | ^", checked.OutputType(), want, expression)
	}
	if err := refuseEscapes(checked.NativeRep()); err != nil {
		return program{}, fmt.Errorf("%w:\n | %s\n | ^", err, expression)
	}
	estimate, err := e.typed.EstimateCost(checked, &library.CostEstimator{SizeEstimator: e})
	if err != nil {
		return program{}, fmt.Errorf("estimate cost: %w", err)
	}
	if estimate.Max > maxRuleCost {
		return program{}, fmt.Errorf("may cost %d, at most %d allowed; bound its loops and texts:\n | %s\n | ^", estimate.Max, maxRuleCost, expression)
	}
	run, err := e.plan(expression)
	if err != nil {
		return program{}, err
	}
	isRoot := func(name string) bool { return e.roots[name] != nil }
	return program{run: run, reads: readsOf(checked.NativeRep(), isRoot), cost: estimate.Max}, nil
}

// refuseEscapes finds fields written as __for__: they pass the type check, and no object ever has them.
func refuseEscapes(checked *celast.AST) error {
	var err error
	celast.PreOrderVisit(checked.Expr(), celast.NewExprVisitor(func(expr celast.Expr) {
		if expr.Kind() != celast.SelectKind {
			return
		}
		name := expr.AsSelect().FieldName()
		if plain, ok := decl.Unescape(name); ok && plain != name {
			err = fmt.Errorf("write %s instead of %s", plain, name)
		}
	}))
	return err
}

// plan makes the program that runs over dynamic values.
func (e *environments) plan(expression string) (cel.Program, error) {
	loose, issues := e.loose.Compile(expression)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	run, err := e.loose.Program(loose, cel.InterruptCheckFrequency(apicel.CheckFrequency))
	if err != nil {
		return nil, fmt.Errorf("plan evaluation: %w", err)
	}
	return run, nil
}

// compileRule compiles a rule's condition, which must also depend on something.
func (e *environments) compileRule(expression string) (program, error) {
	p, err := e.compile(expression, cel.BoolType)
	if err != nil {
		return p, err
	}
	constant, err := e.isConstant(expression)
	if err != nil {
		return p, err
	}
	if constant || len(p.reads) == 0 {
		return p, fmt.Errorf("is constant, so it admits all objects or none:\n | %s\n | ^", expression)
	}
	return p, nil
}

// isConstant finds also `x || true`, by folding constants.
func (e *environments) isConstant(expression string) (bool, error) {
	folding, err := cel.NewConstantFoldingOptimizer()
	if err != nil {
		return false, fmt.Errorf("prepare constant folding: %w", err)
	}
	checked, issues := e.typed.Compile(expression)
	if issues.Err() != nil {
		return false, issues.Err()
	}
	optimizer, err := cel.NewStaticOptimizer(folding)
	if err != nil {
		return false, fmt.Errorf("prepare constant folding: %w", err)
	}
	folded, issues := optimizer.Optimize(e.typed, checked)
	if issues.Err() != nil {
		// A constant that has no literal, such as format.qualifiedName(), stops the folding: nothing more can be told.
		return false, nil //nolint:nilerr // explained above
	}
	return folded.NativeRep().Expr().Kind() == celast.LiteralKind, nil
}

// compatible says whether a checked type may stand for the wanted one. Elements may be dyn, because a kind's untyped
// fields are; the whole may not: a rule that returns dyn is no bool.
func compatible(want, got *cel.Type) bool {
	if want.Kind() != got.Kind() || len(want.Parameters()) != len(got.Parameters()) {
		return false
	}
	for i, p := range want.Parameters() {
		if inner := got.Parameters()[i]; inner.Kind() != cel.DynKind && !compatible(p, inner) {
			return false
		}
	}
	return true
}

// unchangedExpression is CEL that says whether an update leaves alone everything that a rule reads. A rule that reads only
// the object is a function of these fields, so the old object then broke it too, and the update makes nothing worse.
// A rule that reads more has none: "" means that every update is judged like a creation.
func unchangedExpression(r reads, recheck string) string {
	if recheck == "" || r.anyOf(rootOldObject, rootRequest, rootPlan, rootFacts) {
		return ""
	}
	terms := []string{"oldObject != null", "!(" + recheck + ")"}
	seen := map[string]bool{}
	for _, path := range r.list() {
		steps := strings.Split(path, ".")
		if len(steps) > 3 { // object.spec.field: what lies deeper is compared with it
			steps = steps[:3]
		}
		if len(steps) == 3 {
			steps[2] = "?" + steps[2] // the field may be absent on either side
		}
		tail := strings.Join(steps[1:], ".")
		if tail == "" {
			return ""
		}
		if !seen[tail] {
			seen[tail] = true
			terms = append(terms, "object."+tail+" == oldObject."+tail)
		}
	}
	return strings.Join(terms, " && ")
}
