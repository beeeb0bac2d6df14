package guardrail

// Terms are what rules see of a Guardrail as plan, and what follows from the object and from the rules in force: they are
// known without looking at the cluster.
type Terms struct {
	// RuleErrors say which rules can't be evaluated and why, each with line, column and a caret.
	RuleErrors []string
	// KeptErrors are those of rules that an update doesn't touch, and that couldn't be evaluated before.
	KeptErrors []string
	// Displaced are the rules of other Guardrails that would no longer fit into the cost budget that all share.
	Displaced []string
	// ChangesOnly are new and changed rules that deny and yet don't hold at run time, each with its kind and what it reads that is known only
	// of a request or changes with the cluster: "no-eviction for ConditionSet (oldObject, plan.wouldTaint)".
	ChangesOnly []string
	// DisputedTypes are condition types that another Guardrail declares differently, each with its name.
	DisputedTypes []string
}

// Forecast is what rules see of a Guardrail as plan, too; it needs the stored policies.
type Forecast struct {
	// Refusals say how many stored objects of each kind its new and changed rules would refuse, such as
	// "3 of 12 stored ConditionSets, which then do nothing new".
	Refusals []string
	// Refused names some of them.
	Refused []string
	// Unnamed counts the others.
	Unnamed int
	// NotCounted says what Refusals leaves out, and why.
	NotCounted []string
}

// ExceptionTerms are what rules see of a GuardrailException as plan; they follow from the object and the rules in force.
type ExceptionTerms struct {
	// UnknownRules are ruleIDs that no rule for the target's kind has.
	UnknownRules []string
	// FixedRules are ruleIDs of rules that can't be lifted.
	FixedRules []string
}

// ExceptionForecast needs the stored policies.
type ExceptionForecast struct {
	// TargetMissing: there is no such object.
	TargetMissing bool
	// TargetHash is the hash of the target's spec as it is now.
	TargetHash string
	// UnmarkedRules are ruleIDs that the API server's own policy also has, and that the target isn't annotated with: the
	// policy will refuse what the exception allows. None for a target that is stored with its spec already.
	UnmarkedRules []string
}
