package guard

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	decl "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

const (
	// maxRuleCost is what one expression, its message or a variable may cost by the static estimate, in CEL cost units:
	// about 10 ms at worst.
	maxRuleCost = 100_000
	// maxRequestCost is what all built-in rules of a request may really cost together, and again all rules of Guardrails:
	// about 0.1 s. Rules of Guardrails can't use up what the built-in ones need.
	maxRequestCost = 1_000_000
	// checkCost is what CEL counts for one question to the authorizer.
	checkCost = 350_000
	// maxChecks is how many of these an expression may ask; maxRequestChecks all built-in rules, and again all others.
	maxChecks        = 8
	maxRequestChecks = 16
)

// program is a compiled expression.
type program struct {
	// counting ends what costs too much.
	counting cel.Program
	// quick counts nothing, which is most of the work over a small request, and is planned when it is first needed. Only built-in rules have
	// one, and of these not what asks, whose questions are counted always.
	quick func() cel.Program
	reads reads
	cost  uint64
	// asks: it asks the authorizer.
	asks bool
	// asksRequester: it asks what the requester may do, and not only what a service account may. At run time nobody requests.
	asksRequester bool
}

// compile checks an expression's types, result type and static cost, and plans it over dynamic values. Errors carry the
// position and the cause.
func (e *environments) compile(expression string, want *cel.Type) (program, *cel.Ast, error) {
	p, checked, err := e.check(expression, want)
	if err != nil {
		return p, nil, err
	}
	most := uint64(maxRuleCost)
	if p.asks {
		most += maxChecks * checkCost
	}
	if p.cost > most {
		err = errorAtStart(expression, "may cost %d, at most %d allowed; bound its loops and texts", p.cost, most)
	}
	return p, checked, err
}

// check is compile without the bound on cost.
func (e *environments) check(expression string, want *cel.Type) (program, *cel.Ast, error) {
	parsed, issues := e.typed.Parse(expression)
	if issues.Err() != nil {
		return program{}, nil, e.issuesError(expression, issues)
	}
	checked, issues := e.typed.Check(parsed)
	if issues.Err() != nil {
		return program{}, nil, e.issuesError(expression, issues)
	}
	if !compatible(want, checked.OutputType()) {
		return program{}, nil, errorAtStart(expression, "returns %s, want %s", checked.OutputType(), want)
	}
	if err := refuseEscapes(expression, checked.NativeRep()); err != nil {
		return program{}, nil, err
	}
	p := program{reads: readsOf(checked.NativeRep(), e.isRoot), asksRequester: readsRequester(checked.NativeRep())}
	p.asks = p.reads.anyOf(rootAuthorizer)
	estimate, err := e.typed.EstimateCost(checked, &library.CostEstimator{SizeEstimator: e})
	if err != nil {
		return program{}, nil, fmt.Errorf("estimate cost: %w", err)
	}
	p.cost = estimate.Max
	err = e.plan(&p, expression, parsed)
	return p, checked, err
}

// refuseEscapes finds fields written as __for__: they pass the type check, and no object ever has them.
func refuseEscapes(expression string, checked *celast.AST) error {
	var err error
	celast.PreOrderVisit(checked.Expr(), celast.NewExprVisitor(func(expr celast.Expr) {
		if expr.Kind() != celast.SelectKind {
			return
		}
		name := expr.AsSelect().FieldName()
		if plain, ok := decl.Unescape(name); ok && plain != name {
			err = errorAt(expression, checked.SourceInfo().GetStartLocation(expr.ID()), "write %s instead of %s", plain, name)
		}
	}))
	return err
}

// readsRequester finds a use of authorizer that isn't authorizer.serviceAccount(…).
func readsRequester(checked *celast.AST) bool {
	uses, ofAccounts := 0, 0
	isAuthorizer := func(e celast.Expr) bool { return e.Kind() == celast.IdentKind && e.AsIdent() == rootAuthorizer }
	celast.PreOrderVisit(checked.Expr(), celast.NewExprVisitor(func(expr celast.Expr) {
		if isAuthorizer(expr) {
			uses++
		}
		if expr.Kind() == celast.CallKind && expr.AsCall().FunctionName() == "serviceAccount" && expr.AsCall().IsMemberFunction() && isAuthorizer(expr.AsCall().Target()) {
			ofAccounts++
		}
	}))
	return uses > ofAccounts
}

// plan adds what runs, over dynamic values. All environments parse alike and have the same names, so the typed one's parse will do.
func (e *environments) plan(p *program, expression string, parsed *cel.Ast) error {
	planIn := func(env *cel.Env, options ...cel.ProgramOption) (cel.Program, error) {
		checked, issues := env.Check(parsed)
		if issues.Err() != nil {
			return nil, e.issuesError(expression, issues)
		}
		run, err := env.Program(checked, options...)
		if err != nil {
			return nil, fmt.Errorf("plan evaluation: %w", err)
		}
		return run, nil
	}
	var err error
	if p.asks { // the API server's limit for a call is less than three questions
		p.counting, err = planIn(e.loose, cel.CostLimit(celconfig.PerCallLimit+maxChecks*checkCost))
		return err
	}
	if p.counting, err = planIn(e.loose); err != nil {
		return err
	}
	p.quick = sync.OnceValue(func() cel.Program {
		run, err := planIn(e.uncounted, cel.EvalOptions(cel.OptOptimize))
		if err != nil {
			panic(err) // a mistake in uncountedBase, since the other environment took it
		}
		return run
	})
	return nil
}

// compileRule compiles a rule's condition, which must also depend on something.
func (e *environments) compileRule(expression string) (program, error) {
	p, checked, err := e.compile(expression, cel.BoolType)
	if err != nil {
		return p, err
	}
	constant, err := e.isConstant(checked)
	if err != nil {
		return p, err
	}
	if constant || len(p.reads) == 0 {
		return p, errorAtStart(expression, "is constant, so it admits all objects or none")
	}
	return p, nil
}

// isConstant finds also `x || true`, by folding constants.
func (e *environments) isConstant(checked *cel.Ast) (bool, error) {
	folding, err := cel.NewConstantFoldingOptimizer()
	if err != nil {
		return false, fmt.Errorf("prepare constant folding: %w", err)
	}
	optimizer, err := cel.NewStaticOptimizer(folding)
	if err != nil {
		return false, fmt.Errorf("prepare constant folding: %w", err)
	}
	folded, issues := optimizer.Optimize(e.typed, checked)
	if issues.Err() != nil {
		// A constant that has no literal, such as format.qualifiedName(), stops the folding: nothing more can be known.
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
// the object is a function of these fields, so the old object then broke it too, and the update makes nothing worse. So is
// one that reads more, of these fields, those that it ratchets on and the cluster, which is the same for both objects.
// Without the latter it has none: "" means that every update is judged like a creation.
func unchangedExpression(r reads, ratchetOn []string, recheck string) string {
	if recheck == "" || r.anyOf(rootOldObject, rootRequest) || len(ratchetOn) == 0 && r.anyOf(rootPlan, rootFacts, rootLimits, rootAuthorizer) {
		return ""
	}
	terms := []string{"oldObject != null"}
	if recheck != never {
		terms = append(terms, "!("+recheck+")")
	}
	for _, path := range r.ofObject(ratchetOn).list() {
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
		if term := "object." + tail + " == oldObject." + tail; !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	return strings.Join(terms, " && ")
}

// never is the recheck of a kind whose updates need no other judgement than by what they change.
const never = "false"
