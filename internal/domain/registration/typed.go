package registration

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	decl "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/resourcestack/autohealer/internal/domain/celerrors"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Expressions are evaluated without types, on objects as JSON has them: a registration may be stored before the kinds that it names. What
// is known of a kind's fields tells beforehand what can only fail. An object is a map when an expression runs, a list may have entries
// of several types, and values of any types may be compared; so not all that a type checker refuses fails.

// reads are the fields that expressions read of objects of known kinds.
func (r *Registration) reads() iter.Seq2[schema.GroupVersionKind, []string] {
	return func(yield func(schema.GroupVersionKind, []string) bool) {
		for _, e := range r.expressions {
			for _, path := range e.reads {
				kind := map[string]schema.GroupVersionKind{varTarget: r.Kind, varObject: e.object}[path[0]]
				if !kind.Empty() && !yield(kind, path[1:]) {
					return
				}
			}
		}
	}
}

// TypedKinds are those of which expressions read more than what objects of all kinds have.
func (r *Registration) TypedKinds() (kinds []schema.GroupVersionKind) {
	for kind, path := range r.reads() {
		if (len(path) == 0 || fieldsOfAll[path[0]] == nil) && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// TypeErrors are the parts of a registration's expressions that fail for every object, by the types of its kinds; undefinedFields those
// fields that the schemas don't have: has() may ask for one, and a later schema may have it. What fails for objects of any kind is left
// out: the terms say it.
func (r *Registration) TypeErrors(types map[schema.GroupVersionKind]*decl.DeclType) (typeErrors, undefinedFields []string, err error) {
	untyped, err := ofAnyKind()
	if err != nil {
		return nil, nil, err
	}
	checkers := map[*decl.DeclType]*typeChecker{} // by the type of object: to make one takes a millisecond
	for _, e := range r.expressions {
		object := types[e.object]
		if checkers[object] == nil {
			if checkers[object], err = newTypeChecker(types[r.Kind], object); err != nil {
				return nil, nil, err
			}
		}
		if untyped.check(e).failure != "" {
			continue
		}
		found := checkers[object].check(e)
		if found.failure != "" {
			sample.Once(&typeErrors, e.where+": "+found.failure)
		}
		for _, field := range found.undefined {
			sample.Once(&undefinedFields, e.where+": "+field)
		}
	}
	return typeErrors, undefinedFields, nil
}

// typeChecker knows the types of target and object.
type typeChecker struct {
	parser *cel.Env
	env    *checker.Env
}

var (
	withoutVariables = sync.OnceValue(func() *cel.Env { return environment.MustBaseEnvSet(libraries).NewExpressionsEnv() })
	// ofAnyKind knows what objects of all kinds have.
	ofAnyKind = sync.OnceValues(func() (*typeChecker, error) { return newTypeChecker(nil, nil) })
)

// newTypeChecker takes the types of target and object; nil where nothing is known of the kind.
func newTypeChecker(target, object *decl.DeclType) (*typeChecker, error) {
	target, object = cmp.Or(target, anyKind), cmp.Or(object, anyKind)
	c := &typeChecker{parser: withoutVariables()}
	provider, err := decl.NewDeclTypeProvider(target, object).WithTypeProvider(c.parser.CELTypeProvider())
	if err != nil {
		return nil, fmt.Errorf("declare the types of kinds: %w", err)
	}
	// The environment of package cel would refuse lists with entries of several types.
	if c.env, err = checker.NewEnv(c.parser.Container, provider, checker.CrossTypeNumericComparisons(true)); err != nil {
		return nil, fmt.Errorf("make a type checker: %w", err)
	}
	variables := append(c.parser.Variables(), decls.NewVariable(varTarget, target.CelType()), decls.NewVariable(varObject, object.CelType()))
	if err = c.env.AddIdents(variables...); err != nil {
		return nil, fmt.Errorf("declare variables: %w", err)
	}
	for _, f := range c.parser.Functions() {
		if err := c.env.AddFunctions(f); err != nil {
			return nil, fmt.Errorf("declare functions: %w", err)
		}
	}
	return c, nil
}

// typedWell refuses what can only fail, whatever kinds target and object are of: no metadata.name is true.
func typedWell(e *Expression) error {
	typed, err := ofAnyKind()
	if err != nil {
		return err
	}
	if failure := typed.check(e).failure; failure != "" {
		return errors.New(failure)
	}
	return nil
}

// absorbing are operations that may be true although one of their parts fails: that part may be for objects of another version.
var absorbing = []string{operators.LogicalOr, operators.Conditional}

// expected begins what the checker says of an operand that is of no type that its operation takes.
const expected = "expected type "

// findings are what types say of an expression.
type findings struct {
	// failure says why it, or a part of it, can only fail; "" where types don't tell that.
	failure   string
	undefined []string
}

// check looks at an expression that compiles without types.
func (c *typeChecker) check(e *Expression) (found findings) {
	parsed, issues := c.parser.Parse(e.text)
	if issues.Err() != nil {
		return found
	}
	checked, mistakes := checker.Check(parsed.NativeRep(), parsed.Source(), c.env)
	by, absorbed := subexpressions(checked.Expr())
	for _, mistake := range mistakes.GetErrors() {
		sub := by[mistake.ExprID]
		switch {
		case sub == nil:
		case strings.HasPrefix(mistake.Message, "undefined field "):
			if field := undefinedField(checked, sub); field != "" && !slices.Contains(found.undefined, field) {
				found.undefined = append(found.undefined, field)
			}
		case found.failure == "" && fails(checked, sub, mistake, absorbed.Has(mistake.ExprID)):
			found.failure = celerrors.OfCompilation(mistake.Message, "")
		}
	}
	if is := checked.GetType(checked.Expr().ID()); found.failure == "" && !slices.Contains([]types.Kind{types.DynKind, types.ErrorKind, e.result.Kind()}, is.Kind()) {
		found.failure = fmt.Sprintf("it gives %s, not %s", is, e.result)
	}
	return found
}

// partsOf are the parts of an expression by their ids, and those below an absorbing operation.
func subexpressions(whole celast.Expr) (by map[int64]celast.Expr, absorbed sets.Set[int64]) {
	by, absorbed = map[int64]celast.Expr{}, sets.New[int64]()
	celast.PostOrderVisit(whole, celast.NewExprVisitor(func(e celast.Expr) {
		if by[e.ID()] = e; e.Kind() != celast.CallKind || !slices.Contains(absorbing, e.AsCall().FunctionName()) {
			return
		}
		for _, arg := range e.AsCall().Args() {
			celast.PostOrderVisit(arg, celast.NewExprVisitor(func(e celast.Expr) { absorbed.Insert(e.ID()) }))
		}
	}))
	return by, absorbed
}

// undefinedField names a field that isn't in a schema; "" where the object is of a kind of which nothing is known.
func undefinedField(checked *celast.AST, e celast.Expr) string {
	var of celast.Expr
	var field string
	switch e.Kind() {
	case celast.SelectKind:
		of, field = e.AsSelect().Operand(), e.AsSelect().FieldName()
	case celast.CallKind: // by .?
		of, field = e.AsCall().Args()[0], fmt.Sprint(e.AsCall().Args()[1].AsLiteral().Value())
	}
	t := checked.GetType(of.ID())
	if t.Kind() == types.OpaqueKind { // an optional
		t = t.Parameters()[0]
	}
	if t.TypeName() == anyKind.TypeName() {
		return ""
	}
	return t.TypeName() + " has no field " + field
}

// fails says whether a mistake makes its expression fail for all values of the types. An absorbed one that isn't about an operand may be meant.
func fails(checked *celast.AST, e celast.Expr, mistake *common.Error, absorbed bool) bool {
	switch {
	case absorbed && !strings.HasPrefix(mistake.Message, expected):
		return false
	case strings.HasPrefix(mistake.Message, "found no matching overload "):
		call := e.AsCall()
		args := call.Args()
		if call.IsMemberFunction() {
			args = append([]celast.Expr{call.Target()}, args...)
		}
		kinds := make([]types.Kind, len(args))
		for i, arg := range args {
			kinds[i] = valueKind(checked.GetType(arg.ID()))
		}
		return failsFor(call.FunctionName(), kinds)
	case strings.HasPrefix(mistake.Message, "expression of type "): // a loop over it
		return checked.GetType(e.ID()).Kind() != types.StructKind
	}
	return strings.HasPrefix(mistake.Message, expected) || strings.HasSuffix(mistake.Message, " does not support field selection")
}

// failsFor says whether an operation fails for all values of these kinds.
func failsFor(operation string, of []types.Kind) bool {
	several := slices.Contains(of, types.ListKind) || slices.Contains(of, types.MapKind)
	switch {
	case slices.Contains(of, types.DynKind), operation == operators.Conditional:
		return false
	case operation == operators.Equals, operation == operators.NotEquals:
		return of[0] != of[1] // never equal
	case operation == operators.Add:
		return of[0] != types.ListKind || of[1] != types.ListKind
	case several: // what looks into them, or takes them as they are, takes them with values of any types
		return slices.Contains([]string{
			operators.LogicalNot, operators.Negate, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo,
			operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
		}, operation)
	}
	return true
}

// valueKind is the kind of a type's values when an expression runs: numbers are compared whatever their types, and objects are maps.
func valueKind(t *types.Type) types.Kind {
	switch kind := t.Kind(); kind {
	case types.IntKind, types.UintKind, types.DoubleKind:
		return types.DoubleKind
	case types.StructKind:
		return types.MapKind
	case types.BoolKind, types.StringKind, types.BytesKind, types.ListKind, types.MapKind, types.TimestampKind, types.DurationKind:
		return kind
	}
	return types.DynKind
}
