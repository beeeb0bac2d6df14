package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	celvalues "k8s.io/apiserver/pkg/cel/common"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// errBudget means that the rules cost more than a request may.
var errBudget = errors.New("over budget: the rules cost more than one request may")

// inability is what a rule's error means: out of time, over budget, or a fault of the rule itself. Where time ended while
// CEL was evaluating, its own error is a consequence.
func (e *evaluation) inability(err error) error {
	var cancelled interpreter.EvalCancelledError
	switch over := e.ctx.Err(); {
	case over != nil:
		return fmt.Errorf("out of time, try again: %w", over)
	case errors.Is(err, errBudget), errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded:
		return errBudget
	}
	return err
}

// evaluation is the state of one request: what rules can read, each worked out at most once and only when read.
type evaluation struct {
	ctx   context.Context //nolint:containedctx // lives as long as one call; CEL's activation has no other way in
	guard *Guard
	rules *ruleSet
	kind  *kindRules
	now   time.Time

	// object and oldObject are as their Go type writes them.
	object, oldObject judged
	request           *admissionv1.AdmissionRequest
	// exempt are the rules that may not refuse the request.
	exempt     exemption
	exceptions []*v1alpha1.GuardrailException
	// exceptionsRead: a review has asked for those that are stored.
	exceptionsRead bool
	facts          Facts
	authorizer     authorizer.UnconditionalAuthorizer
	// liveKnown: rules may look at the live part of plan; nil until one wants to.
	liveKnown *bool
	// oldActs: the stored object is admitted at run time; nil until a rule wants to know.
	oldActs *bool

	// small: the objects are so small that no rule over them costs much.
	small bool
	// remaining is what may still be spent: first by the built-in rules, then, anew, by those of Guardrails.
	remaining costs

	plan                                      plan
	objectValue, oldObjectValue               any
	requestValue, factsValue, authorizerValue any
	variables                                 []any
	recheckAt                                 time.Time
	// unanswered is why the authorizer didn't answer the rule that is being judged.
	unanswered error
	// own is a Guardrail that is judged, compiled, or why it isn't; both nil until a rule wants to know.
	own    *ownRules
	ownErr error
}

func (g *Guard) evaluation(ctx context.Context, rules *ruleSet, kind *kindRules, object judged) *evaluation {
	e := &evaluation{
		ctx: ctx, guard: g, rules: rules, kind: kind, object: object, now: g.opts.Clock.Now(),
		exceptions: rules.exceptions[targetOf(kind.name, object.content)], facts: g.opts.Facts, authorizer: g.opts.Authorizer,
		variables: slices.Clone(kind.values),
	}
	e.refill()
	e.plan.known = planSection{fields: kind.knownFields, ask: func() (any, error) { return kind.askKnown(e) }}
	e.plan.live = planSection{fields: kind.liveFields, ask: e.askLive}
	return e
}

func (e *evaluation) refill() { e.remaining = costs{units: maxRequestCost, checks: maxRequestChecks} }

func targetOf(kind string, object map[string]any) Target {
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	namespace, _ := metadata["namespace"].(string)
	return Target{Kind: kind, Namespace: namespace, Name: name}
}

// ResolveName gives CEL the value of a root.
func (e *evaluation) ResolveName(name string) (any, bool) {
	switch name {
	case rootObject:
		return once(&e.objectValue, func() any { return orNull(e.object.content) }), true
	case rootOldObject:
		return once(&e.oldObjectValue, func() any { return orNull(e.oldObject.content) }), true
	case rootRequest:
		return once(&e.requestValue, func() any { return celvalues.SchemalessTypedToVal(e.request) }), true
	case rootPlan:
		return &e.plan, true
	case rootFacts:
		return once(&e.factsValue, e.factsNow), true
	case rootLimits:
		return e.rules.limits, true
	case rootAuthorizer:
		return once(&e.authorizerValue, e.askAuthorizer), true
	}
	return e.variable(name)
}

// once works a value out when it is first asked for.
func once(value *any, of func() any) any {
	if *value == nil {
		*value = of()
	}
	return *value
}

// Parent of the activation; there is none.
func (e *evaluation) Parent() interpreter.Activation { return nil }

func orNull(object map[string]any) any {
	if object == nil {
		return types.NullValue
	}
	return object
}

// variable is a shared variable's value, or the error that every rule reading it meets.
func (e *evaluation) variable(root string) (any, bool) {
	i, isVariable := e.kind.index[root]
	if !isVariable {
		return nil, false
	}
	if e.variables[i] == nil {
		v := e.kind.variables[i]
		value, err := e.run(v.program)
		if err != nil {
			value = types.NewErr("variable %s: %w", v.Name, err)
		}
		e.variables[i] = value
	}
	return e.variables[i], true
}

// askLive asks the engine itself, or the planner that came with the options.
func (e *evaluation) askLive() (any, error) {
	if e.kind.askLive != nil {
		return e.kind.askLive(e)
	}
	return e.guard.opts.Planners[e.kind.name].ask(e.ctx, e.object, e.rules.policy.Limits, e.now)
}

func (e *evaluation) factsNow() any {
	return map[string]any{"synced": e.facts.Synced(), "ageSeconds": int64(e.facts.Age(e.now) / time.Second), "nodes": int64(e.facts.Nodes())}
}

// factsKnown says whether rules may look at facts.
func (e *evaluation) factsKnown() bool { return e.facts != nil && e.facts.Synced() }

// liveAvailable says whether rules may look at the live part of plan.
func (e *evaluation) liveAvailable() bool {
	if e.liveKnown == nil {
		known := e.liveInputsKnown()
		e.liveKnown = &known
	}
	return *e.liveKnown
}

// liveInputsKnown says whether what the live part of plan asks is known.
func (e *evaluation) liveInputsKnown() bool {
	if e.kind.askLive != nil {
		return e.storedSynced()
	}
	planner := e.guard.opts.Planners[e.kind.name]
	if planner.synced != nil {
		return planner.ask != nil && planner.synced()
	}
	return planner.ask != nil && e.factsKnown()
}

// storedSynced says whether the stored objects of all kinds are known that the object is about.
func (e *evaluation) storedSynced() bool {
	if e.guard.opts.Stored == nil {
		return false
	}
	for _, name := range e.kind.about(e.object) {
		if e.guard.kinds[name] != nil && !e.guard.opts.Stored.Synced(e.ctx, name) {
			return false
		}
	}
	return true
}

// run evaluates one program, and takes its cost off the request's budget, where it is counted. CEL
// itself ends what costs more than the API server allows a call, after 0.1 s; so the deadline is looked at between programs only, which
// saves a context for each.
func (e *evaluation) run(p program) (ref.Val, error) {
	if e.remaining.units == 0 || e.remaining.checks == 0 && p.asks {
		return nil, errBudget
	}
	if err := e.ctx.Err(); err != nil {
		return nil, e.inability(err)
	}
	if e.small && p.quick != nil {
		value, _, err := p.quick().Eval(e)
		return value, err
	}
	value, details, err := p.counting.Eval(e)
	if cost := details.ActualCost(); cost != nil {
		e.remaining.take(*cost)
	}
	if err == nil && e.remaining.units == 0 {
		err = errBudget
	}
	return value, err
}

// holds evaluates a condition.
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

// noteRecheck notes when the verdict may change without any event.
func (e *evaluation) noteRecheck(at time.Time) {
	if !at.IsZero() && (e.recheckAt.IsZero() || at.Before(e.recheckAt)) {
		e.recheckAt = at
	}
}
