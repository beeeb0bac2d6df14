package registration

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/resourcestack/autohealer/internal/domain/celerrors"
)

const (
	varTarget = "target"
	varObject = "object"
	// maxCost of one evaluation, in CEL's units: what a ValidatingAdmissionPolicy may spend on one expression.
	maxCost = 1_000_000
	// assumedSize of each list, map and text: untyped objects have no bounds from which a worst case could be known. What costs more with
	// these is refused; what costs more with the objects that there are ends there. It lets three loops be within each other, as over
	// pools, their zones and the nodes, and not four.
	assumedSize = 30
)

// libraries are the CEL functions that expressions may use. Managers evaluate them, and no API server does.
var libraries = version.MajorMinor(1, 34)

// Expression is a CEL expression that is made ready. It is safe for concurrent use.
type Expression struct {
	program cel.Program
	// reads are the fields that it selects, from its variable on.
	reads [][]string
	// where it is in the spec, for people, and the last name of that.
	where, field string
	text         string
	// result is the type that it has to give.
	result *cel.Type
	// object is the kind that its object is of: none where it has no object, or one of the shoot, where the kind may have other fields.
	object schema.GroupVersionKind
}

// environmentOf gives the environment in which target alone is known, or object as well.
var environmentOf = map[bool]func() (*cel.Env, error){
	false: sync.OnceValues(func() (*cel.Env, error) { return newEnvironment(varTarget) }),
	true:  sync.OnceValues(func() (*cel.Env, error) { return newEnvironment(varTarget, varObject) }),
}

func newEnvironment(variables ...string) (*cel.Env, error) {
	declared := environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0)}
	for _, name := range variables {
		declared.EnvOptions = append(declared.EnvOptions, cel.Variable(name, cel.DynType))
	}
	set, err := environment.MustBaseEnvSet(libraries).Extend(declared)
	if err != nil {
		return nil, fmt.Errorf("extend the CEL environment: %w", err)
	}
	return set.NewExpressionsEnv(), nil
}

// compile makes an expression ready that gives a result of this type. Of a new one more is asked.
func compile(text string, result *cel.Type, object, isNew bool) (*Expression, error) {
	env, err := environmentOf[object]()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		may := "it may read " + varTarget
		if object {
			may += " and " + varObject
		}
		return nil, errors.New(celerrors.OfCompilation(issues.Errors()[0].Message, may))
	}
	if t := ast.OutputType(); !t.IsExactType(result) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("it gives %s, not %s", t, result)
	}
	if err := checkReads(ast.NativeRep().Expr(), result); err != nil {
		return nil, err
	}
	if isNew {
		if err := checkNew(env, ast); err != nil {
			return nil, err
		}
	}
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost), cel.CostLimit(maxCost), cel.CostTracking(&library.CostEstimator{}))
	if err != nil {
		return nil, fmt.Errorf("plan it: %w", err)
	}
	e := &Expression{program: program, reads: readsOf(ast.NativeRep().Expr(), keepAll), text: text, result: result}
	if isNew {
		if err := typedWell(e); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// checkNew refuses what is more likely a mistake than not. A registration that is stored must stay readable all the same, for
// without it nothing is written to its targets; what an expression costs is limited when it runs, too.
func checkNew(env *cel.Env, ast *cel.Ast) error {
	if slices.ContainsFunc(readsOf(ast.NativeRep().Expr(), asksForStatus), func(path []string) bool { return overlaps(path, ownConditions) }) {
		return errCircular
	}
	return checkCost(env, ast)
}

// checkCost refuses loops within loops within loops.
func checkCost(env *cel.Env, ast *cel.Ast) error {
	cost, err := env.EstimateCost(ast, &library.CostEstimator{SizeEstimator: assumedSizes{}})
	if err != nil {
		return fmt.Errorf("estimate what it costs: %w", err)
	}
	if cost.Max > maxCost {
		return fmt.Errorf("it may cost %d with lists of %d items, and %d is the most; loop less often within loops", cost.Max, assumedSize, maxCost)
	}
	return nil
}

// assumedSizes estimates what is in objects.
type assumedSizes struct{}

// EstimateSize is called for what has no size of its own, as a literal has.
func (assumedSizes) EstimateSize(checker.AstNode) *checker.SizeEstimate {
	return &checker.SizeEstimate{Max: assumedSize}
}

// EstimateCallCost leaves calls to Kubernetes' and CEL's own estimates.
func (assumedSizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// ownConditions are what checks write.
var ownConditions = []string{varTarget, "status", "conditions"}

// errCircular: its answer is changed by the checks themselves. A new one may not read all of something that the conditions are in,
// either. Whether there is a status at all may be asked.
var errCircular = errors.New("it reads target.status.conditions, which checks write, or all of what they are in; name the field that it is about")

// checkReads refuses a question whose answer never changes, and one about the target's conditions.
func checkReads(expression celast.Expr, result *cel.Type) error {
	paths := readsOf(expression, keepAll)
	switch {
	case slices.ContainsFunc(paths, func(path []string) bool { return len(path) >= len(ownConditions) && overlaps(path, ownConditions) }):
		return errCircular
	case len(paths) == 0 && result.IsExactType(cel.BoolType):
		return errors.New("it is the same for every object")
	}
	return nil
}

// overlaps says whether one of two paths leads to the other, or into it.
func overlaps(a, b []string) bool {
	n := min(len(a), len(b))
	return slices.Equal(a[:n], b[:n])
}

// asksForStatus is has(target.status), which stands before many a question about the status.
func asksForStatus(e celast.Expr) bool {
	return e.Kind() == celast.SelectKind && e.AsSelect().IsTestOnly() && slices.Equal(pathOf(e), ownConditions[:2])
}

func keepAll(celast.Expr) bool { return false }

// readsOf are the fields that an expression selects, each as far as it goes, but those that are left out.
func readsOf(expression celast.Expr, skip func(celast.Expr) bool) [][]string {
	by := map[int64][]string{}
	celast.PostOrderVisit(expression, celast.NewExprVisitor(func(e celast.Expr) {
		path := pathOf(e)
		if len(path) == 0 {
			return
		}
		switch by[e.ID()] = path; e.Kind() {
		case celast.SelectKind:
			delete(by, e.AsSelect().Operand().ID())
		case celast.CallKind:
			delete(by, e.AsCall().Args()[0].ID())
		}
		if skip(e) {
			delete(by, e.ID())
		}
	}))
	var paths [][]string
	for _, path := range by {
		paths = append(paths, path)
	}
	slices.SortFunc(paths, slices.Compare)
	return slices.CompactFunc(paths, slices.Equal)
}

// mayRead says whether an expression reads a field, something in it, or something that it is in.
func (e *Expression) mayRead(field ...string) bool {
	return e != nil && slices.ContainsFunc(e.reads, func(path []string) bool { return overlaps(path, field) })
}

// pathOf gives the fields that an expression selects, from its variable on; nil for any other expression.
func pathOf(e celast.Expr) []string {
	switch e.Kind() {
	case celast.IdentKind:
		if name := e.AsIdent(); name == varTarget || name == varObject {
			return []string{name}
		}
	case celast.SelectKind:
		if of := pathOf(e.AsSelect().Operand()); of != nil {
			return append(of, e.AsSelect().FieldName())
		}
	case celast.CallKind:
		call := e.AsCall()
		if !slices.Contains([]string{operators.Index, operators.OptIndex, operators.OptSelect}, call.FunctionName()) || len(call.Args()) != 2 {
			return nil
		}
		if of, field := pathOf(call.Args()[0]), call.Args()[1]; of != nil && field.Kind() == celast.LiteralKind {
			return append(of, fmt.Sprint(field.AsLiteral().Value()))
		}
	}
	return nil
}

// expressionError is why an expression can't be evaluated: its check is faulty, and nothing is known of what it looks at.
type expressionError struct{ error }

// failure is an error of the expression for an object, where it is about one.
func (e *Expression) failure(object *unstructured.Unstructured, err error) error {
	of := ""
	if object != nil {
		of = " of " + object.GetKind() + " " + object.GetName()
	}
	return expressionError{fmt.Errorf("evaluate %s%s: %w", e.field, of, err)}
}

// eval gives the value for a target, and an object where the expression is about one.
func (e *Expression) eval(target, object *unstructured.Unstructured) (any, error) {
	variables := map[string]any{varTarget: target.Object}
	if object != nil {
		variables[varObject] = object.Object
	}
	value, _, err := e.program.Eval(variables)
	if err != nil {
		return nil, errors.New(celerrors.OfEvaluation(err.Error(), "the expression", "there is no %s where the expression reads it; let it ask by has() or .? whether there is"))
	}
	return value.Value(), nil
}

// evalAs gives the value, if it is a T; the default where there is no expression.
func evalAs[T any](e *Expression, target, object *unstructured.Unstructured, byDefault T) (typed T, err error) {
	if e == nil {
		return byDefault, nil
	}
	value, err := e.eval(target, object)
	if err != nil {
		return typed, e.failure(object, err)
	}
	typed, ok := value.(T)
	if !ok {
		return typed, e.failure(object, fmt.Errorf("it gave a %T, not a %T", value, typed))
	}
	return typed, nil
}
