package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	admissionv1 "k8s.io/api/admission/v1"
	apicel "k8s.io/apiserver/pkg/apis/cel"
	celvalues "k8s.io/apiserver/pkg/cel/common"

	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// errBudget means that the rules cost more than a request may.
var errBudget = errors.New("the request's cost budget is used up")

// evaluation is the state of one request: what rules can read, each worked out at most once and only when read.
type evaluation struct {
	ctx    context.Context //nolint:containedctx // lives as long as one call; CEL's activation has no other way in
	kind   *kindRules
	budget uint64

	object, oldObject map[string]any
	request           *admissionv1.AdmissionRequest
	facts             Facts
	planner           *Planner
	limits            limit.Limits
	now               time.Time

	requestValue, planValue, factsValue any
	variables                           []any
}

// ResolveName gives CEL the value of a root.
func (e *evaluation) ResolveName(name string) (any, bool) {
	switch name {
	case rootObject:
		return orNull(e.object), true
	case rootOldObject:
		return orNull(e.oldObject), true
	case rootRequest:
		if e.requestValue == nil {
			e.requestValue = celvalues.SchemalessTypedToVal(e.request)
		}
		return e.requestValue, true
	case rootPlan:
		if e.planValue == nil {
			e.planValue = e.plan()
		}
		return e.planValue, true
	case rootFacts:
		if e.factsValue == nil {
			e.factsValue = e.factsNow()
		}
		return e.factsValue, true
	}
	i, isVariable := e.kind.index[name]
	if !isVariable {
		return nil, false
	}
	if e.variables[i] == nil {
		e.variables[i] = e.variable(e.kind.variables[i])
	}
	return e.variables[i], true
}

// Parent of the activation; there is none.
func (e *evaluation) Parent() interpreter.Activation { return nil }

func orNull(object map[string]any) any {
	if object == nil {
		return types.NullValue
	}
	return object
}

// variable is the value, or the error that every rule reading it meets.
func (e *evaluation) variable(v *compiledVariable) any {
	value, err := e.run(v.program)
	if err != nil {
		return types.NewErr("variable %s: %v", v.Name, err)
	}
	return value
}

func (e *evaluation) plan() any {
	if e.planner == nil {
		return types.NewErr("nobody knows what a %s would do", e.kind.kind)
	}
	preview, err := e.planner.ask(e.object, e.limits, e.now)
	if err != nil {
		return types.NewErr("plan: %v", err)
	}
	return planValue(preview)
}

func (e *evaluation) factsNow() any {
	return map[string]any{"synced": e.facts.Synced(), "ageSeconds": int64(e.facts.Age(e.now) / time.Second)}
}

// factsKnown says whether rules may look at plan and facts.
func (e *evaluation) factsKnown() bool { return e.facts != nil && e.facts.Synced() }

// run evaluates one program and takes its cost off the request's budget.
func (e *evaluation) run(p program) (ref.Val, error) {
	if e.budget == 0 {
		return nil, errBudget
	}
	if err := e.ctx.Err(); err != nil {
		return nil, fmt.Errorf("out of time: %w", err)
	}
	value, details, err := p.run.ContextEval(e.ctx, e)
	if details != nil && details.ActualCost() != nil {
		e.budget -= min(e.budget, *details.ActualCost())
	}
	if err != nil {
		return nil, err
	}
	if e.budget == 0 {
		return nil, errBudget
	}
	return value, nil
}

// holds evaluates a rule's condition.
func (e *evaluation) holds(p program) (bool, error) {
	value, err := e.run(p)
	if err != nil {
		return false, err
	}
	holds, isBool := value.(types.Bool)
	if !isBool {
		return false, fmt.Errorf("returned %s, want bool", value.Type().TypeName())
	}
	return bool(holds), nil
}

// judge gives the rule's violation or skip; both nil when the object passes.
func (e *evaluation) judge(r *compiledRule) (*Violation, *Skip) {
	if r.needsFacts() && !e.factsKnown() {
		return nil, &Skip{Rule: r.ID, Severity: r.OnFactsUnavailable, Reason: "what is known of the cluster isn't complete yet"}
	}
	passes, err := e.holds(r.condition)
	if err == nil && passes {
		return nil, nil
	}
	severity, unchanged := r.Severity, false
	if severity == Deny && e.leavesAlone(r) {
		severity, unchanged = Warn, true
	}
	if err != nil {
		return nil, &Skip{Rule: r.ID, Severity: severity, Reason: oneLine(err.Error())}
	}
	return &Violation{Rule: r.ID, Severity: severity, Message: e.message(r), Docs: Docs(r.ID), Unchanged: unchanged}, nil
}

// leavesAlone: the update touches nothing that the rule reads, so the stored object gives the same verdict.
func (e *evaluation) leavesAlone(r *compiledRule) bool {
	if r.unchanged == nil || e.oldObject == nil {
		return false
	}
	unchanged, err := e.holds(*r.unchanged)
	return err == nil && unchanged
}

// message is what the rule says of the object. Like the API server's, it falls back to fixed text when the expression
// fails or gives a text that would not stay on one line.
func (e *evaluation) message(r *compiledRule) string {
	if r.message == nil {
		return r.FixedMessage()
	}
	value, err := e.run(*r.message)
	if err != nil {
		return r.FixedMessage()
	}
	text, isText := value.Value().(string)
	text = strings.TrimSpace(text)
	if !isText || text == "" || strings.Contains(text, "\n") || len(text) > maxMessage {
		return r.FixedMessage()
	}
	return text
}

// maxMessage leaves room for the rule's id and the link in what the API server takes from a policy's expression.
const maxMessage = apicel.MaxEvaluatedMessageExpressionSizeBytes - 256

// FixedMessage is the text of a violation that has no other.
func (r *Rule) FixedMessage() string {
	if r.Rationale != "" {
		return oneLine(r.Rationale)
	}
	return "must hold: " + oneLine(r.Expression)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
