package guard

import (
	"fmt"

	"github.com/google/cel-go/cel"
)

type compiledRule struct {
	Rule
	// guardrail has the rule; "" for a built-in one.
	guardrail string
	// fault is why the rule can't be evaluated; nil when it can. Nothing but atRunTime is there then.
	fault *RuleError

	condition program
	message   *program
	// unchanged tells an update that doesn't touch the rule's fields; nil when every update is judged anew.
	unchanged           *program
	unchangedExpression string
	// reads is what the condition reads, through variables; messageReads the same of the message.
	reads, messageReads reads
	// live: it reads the part of plan that needs to be known of the cluster.
	live bool
	// usesFacts: it reads facts.
	usesFacts bool
	// asksWho: it judges who asks, or what that user may do.
	asksWho bool
	// atRunTime: the rule judges the object itself, so it holds whenever one acts on it.
	atRunTime bool
}

type compiledVariable struct {
	Variable
	program
}

// needsFacts: the rule judges what the object would do to the cluster as it is now.
func (r *compiledRule) needsFacts() bool { return r.live || r.usesFacts }

// portable: a ValidatingAdmissionPolicy can carry the rule, its message included.
func (r *compiledRule) portable() bool {
	return r.fault == nil && !r.reads.anyOf(rootPlan, rootFacts, rootLimits) && !r.messageReads.anyOf(rootPlan, rootFacts, rootLimits)
}

// broken says why the rule can't be evaluated; "" when it can.
func (r *compiledRule) broken() string {
	if r.fault == nil {
		return ""
	}
	return fmt.Sprintf("Guardrail %s, %s", r.guardrail, oneLine(r.fault.String()))
}

// inPolicy: the generated ValidatingAdmissionPolicy has the rule. Those that warn are left to the webhook.
func (r *compiledRule) inPolicy() bool {
	return r.guardrail == "" && r.portable() && r.Severity == Deny
}

// compileRule compiles a rule for this kind.
func (k *builtinKind) compileRule(r Rule) (*compiledRule, *RuleError) {
	condition, err := k.env.compileRule(r.Expression)
	if err != nil {
		return nil, &RuleError{Field: fieldExpression, Message: err.Error()}
	}
	compiled := &compiledRule{Rule: r, condition: condition, reads: condition.reads.through(k.through)}
	compiled.usesFacts = compiled.reads.anyOf(rootFacts)
	for path := range compiled.reads {
		compiled.live = compiled.live || k.isLive(path)
	}
	if r.MessageExpression != "" {
		message, _, err := k.env.compile(r.MessageExpression, cel.StringType)
		if err != nil {
			return nil, &RuleError{Field: fieldMessage, Message: err.Error()}
		}
		compiled.message, compiled.messageReads = &message, message.reads.through(k.through)
	}
	compiled.asksWho = condition.asksRequester || compiled.reads.ofRequester()
	compiled.atRunTime = !compiled.needsFacts() && !condition.asksRequester && !compiled.reads.anyOf(rootRequest, rootOldObject)
	if err := compiled.checkSoftening(); err != nil {
		return nil, err
	}
	return compiled, k.compileUnchanged(compiled)
}

// checkSoftening says whether the rule can warn only when it says so.
func (r *compiledRule) checkSoftening() *RuleError {
	switch {
	case r.WhileObserving != "" && r.portable():
		return &RuleError{Field: "whileObserving", Message: "a ValidatingAdmissionPolicy can't soften a rule; write the mode into the expression"}
	case len(r.RatchetOn) > 0 && (!r.reads.anyOf(rootPlan, rootAuthorizer) || r.reads.anyOf(rootFacts, rootLimits)):
		return &RuleError{Field: "ratchetOn", Message: "is for rules over plan or authorizer; no fields decide facts and limits, which hold for each change"}
	case r.RatchetWhen != "" && !r.live:
		return &RuleError{Field: "ratchetWhen", Message: "is for rules that ask what the cluster is like"}
	}
	return nil
}

// compileUnchanged adds what detects updates that leave alone what the rule reads.
func (k *builtinKind) compileUnchanged(r *compiledRule) *RuleError {
	if r.condition.asksRequester { // who need not be who asked before
		return nil
	}
	r.unchangedExpression = unchangedExpression(r.reads, r.RatchetOn, k.recheck)
	if r.RatchetWhen != "" {
		r.unchangedExpression = "oldObject != null && !(" + k.recheck + ") && (" + r.RatchetWhen + ")"
	}
	if r.unchangedExpression == "" {
		return nil
	}
	// It compares what the rule reads, which may be long; its author isn't to blame for that.
	unchanged, _, err := k.env.check(r.unchangedExpression, cel.BoolType)
	if err != nil {
		return &RuleError{Field: fieldExpression, Message: "recheck: " + err.Error()}
	}
	for path := range unchanged.reads.through(k.through) {
		if root := rootOf(path); root != rootObject && root != rootOldObject && (root != rootPlan || k.isLive(path)) {
			return &RuleError{Field: "ratchetWhen", Message: fmt.Sprintf("reads %s, which may have been another one for the stored object", path)}
		}
	}
	r.unchanged = &unchanged
	return nil
}

// countsAlways has costs counted whatever the rule is evaluated over: of an expression that others wrote nobody knows what it makes of a few
// texts, such as loops over their sections, within loops over whoever asks.
func (r *compiledRule) countsAlways() {
	r.condition.quick = nil
	for _, p := range []*program{r.message, r.unchanged} {
		if p != nil {
			p.quick = nil
		}
	}
}

// isLive says whether a path is, or may be, in the part of plan that needs to be known of the cluster.
func (k *builtinKind) isLive(path string) bool {
	if rootOf(path) != rootPlan {
		return false
	}
	field := fieldOf(path)
	_, known := k.knownFields[field]
	return !known
}

// costs are sums of what expressions cost. Questions to the authorizer count by themselves: CEL gives each a price that
// nothing else comes near.
type costs struct {
	units, checks uint64
}

func (c *costs) add(p program) { c.addUnits(p.cost) }

func (c *costs) addUnits(units uint64) {
	c.checks += units / checkCost
	c.units += units % checkCost
}

// excess says what is too much, "" when nothing is.
func (c *costs) excess() string {
	switch {
	case c.units > maxRequestCost:
		return fmt.Sprintf("may cost %d, at most %d allowed", c.units, uint64(maxRequestCost))
	case c.checks > maxRequestChecks:
		return fmt.Sprintf("may ask the authorizer %d times, at most %d allowed", c.checks, uint64(maxRequestChecks))
	}
	return ""
}

// take spends what was left.
func (c *costs) take(units uint64) {
	var spent costs
	spent.addUnits(units)
	c.units -= min(c.units, spent.units)
	c.checks -= min(c.checks, spent.checks)
}
