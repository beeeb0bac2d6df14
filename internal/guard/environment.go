package guard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/ext"
	"k8s.io/apimachinery/pkg/util/version"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	decl "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// OldestKubernetes is that of the oldest API servers that must still accept the generated policies.
var OldestKubernetes = version.MajorMinor(1, 33)

// The roots of what a rule may read. Shared variables are roots of their own, named variables.<name>.
const (
	rootObject    = "object"
	rootOldObject = "oldObject"
	rootRequest   = "request"
	rootPlan      = "plan"
	rootFacts     = "facts"
	rootLimits    = "limits"
	// rootAuthorizer asks what an account may do. It has no declared type of its own, but the library's.
	rootAuthorizer = "authorizer"
	variablePath   = "variables."
)

// environments are one kind's CEL environments: typed to check an expression, dynamic to run it, as a
// ValidatingAdmissionPolicy does; so a field may be absent or of another type at run time, and both give the same verdict.
type environments struct {
	roots        map[string]*decl.DeclType
	typed, loose *cel.Env
	// uncounted is loose, but what runs in it doesn't count what it costs.
	uncounted *cel.Env
}

// newEnvironments are those of a kind with its object's type, the types of its plan's parts, and its shared variables.
func newEnvironments(object *decl.DeclType, info kindInfo, variables []Variable) (*environments, error) {
	roots := map[string]*decl.DeclType{
		rootObject: object, rootOldObject: object,
		rootRequest: admissioncel.BuildRequestType(), rootFacts: factsType(), rootLimits: limitsType(),
	}
	if info.known != nil || info.live != nil {
		roots[rootPlan] = planType(info.known, info.live)
	}
	for _, v := range variables {
		t, err := declaredType(v)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
		roots[variablePath+v.Name] = t
	}
	typed := environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0)}
	typed.EnvOptions = []cel.EnvOption{cel.Variable(rootAuthorizer, library.AuthorizerType)}
	loose := typed
	for name, t := range roots {
		typed.EnvOptions = append(typed.EnvOptions, cel.Variable(name, t.CelType()))
		typed.DeclTypes = append(typed.DeclTypes, t)
		loose.EnvOptions = append(loose.EnvOptions, cel.Variable(name, cel.DynType))
	}
	// An API server compiles a new expression for the minor before its own, so that it could still be rolled back.
	base := environment.MustBaseEnvSet(OldestKubernetes.SubtractMinor(1))
	typedSet, typedErr := base.Extend(typed)
	looseSet, looseErr := base.Extend(loose)
	uncounted, uncountedErr := uncountedBase()
	if uncountedErr == nil {
		uncounted, uncountedErr = uncounted.Extend(loose.EnvOptions...)
	}
	if err := errors.Join(typedErr, looseErr, uncountedErr); err != nil {
		return nil, fmt.Errorf("extend CEL environment: %w", err)
	}
	return &environments{roots: roots, typed: typedSet.NewExpressionsEnv(), loose: looseSet.NewExpressionsEnv(), uncounted: uncounted}, nil
}

// uncountedBase has at least what Kubernetes' environment has, which can't be made not to count. Expressions are checked in that one
// first, so what is more here helps nobody.
var uncountedBase = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{
		cel.EagerlyValidateDeclarations(true), cel.DefaultUTCTimeZone(true), cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(),
		ext.Strings(ext.StringsVersion(2)), ext.Sets(), ext.TwoVarComprehensions(),
	}
	for _, l := range library.KnownLibraries() {
		options = append(options, cel.Lib(l))
	}
	return cel.NewEnv(options...)
})

// isRoot says whether a name is one of what a rule may read.
func (e *environments) isRoot(name string) bool {
	return name == rootAuthorizer || e.roots[name] != nil
}

// EstimateCallCost leaves calls to the Kubernetes estimator.
func (e *environments) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// EstimateSize bounds what a path leads to, by the declared types.
func (e *environments) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	expr := node.Expr()
	if expr == nil {
		expr = noExpr
	}
	if e.isUntyped(expr) {
		return &checker.SizeEstimate{Max: uint64(untypedLength)}
	}
	if expr.Kind() == celast.CallKind && expr.AsCall().FunctionName() == overloads.TypeConvertString {
		return e.sizeOfText(expr.AsCall().Args()[0])
	}
	path := node.Path()
	if text := pathOf(expr); len(path) == 0 && text != "" { // object.spec.?field, which the estimator takes for a call
		path = strings.Split(text, ".")
	}
	if len(path) > 0 && e.roots[path[0]] != nil {
		return e.sizeOfPath(path)
	}
	return madeSize(node.Type())
}

var noExpr = celast.NewExprFactory().NewUnspecifiedExpr(0)

// madeSize bounds what an expression puts together, whose size CEL's estimator doesn't follow through lists: a text of one
// field's length, a list of one field's. The estimate is a first sieve; what evaluation really costs is counted too, but for built-in rules
// over small requests.
func madeSize(t *cel.Type) *checker.SizeEstimate {
	switch t.Kind() {
	case cel.StringKind:
		return &checker.SizeEstimate{Max: 512}
	case cel.ListKind, cel.MapKind:
		return &checker.SizeEstimate{Max: 32}
	}
	return nil
}

// isUntyped recognises dyn(c).status, with c a loop variable: the way to select a field that the schema gives no type.
func (e *environments) isUntyped(expr celast.Expr) bool {
	if expr.Kind() != celast.SelectKind {
		return false
	}
	operand := expr.AsSelect().Operand()
	if operand.Kind() != celast.CallKind || operand.AsCall().FunctionName() != overloads.TypeConvertDyn {
		return false
	}
	of := operand.AsCall().Args()[0]
	return of.Kind() == celast.IdentKind && e.roots[of.AsIdent()] == nil
}

// numberLength bounds a number, a time or a duration as text.
const numberLength = 35

// sizeOfText bounds string(of) by what it is made of.
func (e *environments) sizeOfText(of celast.Expr) *checker.SizeEstimate {
	if e.isUntyped(of) {
		return &checker.SizeEstimate{Max: uint64(untypedLength)}
	}
	if size := e.sizeOfPath(strings.Split(pathOf(of), ".")); size != nil { // a shared variable is no path of a declared type
		return size
	}
	if of.Kind() == celast.CallKind && slices.Contains(givesNumber, of.AsCall().FunctionName()) {
		return &checker.SizeEstimate{Max: numberLength}
	}
	return madeSize(cel.StringType)
}

// givesNumber are functions whose results are numbers, times or durations.
var givesNumber = []string{overloads.Size, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, overloads.TypeConvertInt, overloads.TypeConvertDuration}

func (e *environments) sizeOfPath(path []string) *checker.SizeEstimate {
	t := e.typeOf(path)
	if t == nil {
		return nil
	}
	return &checker.SizeEstimate{Max: uint64(max(0, t.MaxElements))}
}

func (e *environments) typeOf(path []string) *decl.DeclType {
	var t *decl.DeclType
	for i, step := range path {
		switch {
		case i == 0:
			t = e.roots[step]
		case step == "@items" || step == "@values":
			t = t.ElemType
		case step == "@keys":
			t = t.KeyType
		default:
			t = fieldType(t, step)
		}
		if t == nil {
			return nil
		}
	}
	return t
}

// fieldType finds a field; declared types know one that is a CEL keyword, such as `for`, by its escaped name.
func fieldType(t *decl.DeclType, name string) *decl.DeclType {
	escaped, _ := decl.Escape(name)
	for _, n := range []string{name, escaped} {
		if f := t.Fields[n]; f != nil {
			return f.Type
		}
	}
	return nil
}

// declaredType is the type of a shared variable.
func declaredType(v Variable) (*decl.DeclType, error) {
	text := stringType(v.MaxLength)
	switch v.Type {
	case typeBool:
		return decl.BoolType, nil
	case typeInt:
		return decl.IntType, nil
	case typeDuration:
		return decl.DurationType, nil
	case typeString:
		return text, nil
	case typeList:
		return decl.NewListType(text, v.MaxItems), nil
	case typeMap:
		return decl.NewMapType(text, text, v.MaxItems), nil
	}
	return nil, fmt.Errorf("unknown type %q", v.Type)
}
