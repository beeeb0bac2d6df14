package guard

import (
	"context"
	"maps"
	"reflect"
	"slices"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// GuardrailResult is what became of a Guardrail.
type GuardrailResult struct {
	Name string
	// Rules is the number of its rules that are in force.
	Rules int
	// Errors of the others. Until they are repaired nothing of their kinds is admitted, where they deny.
	Errors []RuleError
	// Verdict of the rules over Guardrails. One that is refused can only make things stricter.
	Verdict Verdict
}

// SetGuardrails compiles the rules of all Guardrails, merges the rest and puts it in force at once. Results are in the
// order of the Guardrails. Compiling may take seconds; see Tighten for what can't wait.
func (g *Guard) SetGuardrails(all []*v1alpha1.Guardrail) []GuardrailResult {
	results, change := g.setGuardrails(all)
	g.notifyAll(change)
	return results
}

func (g *Guard) setGuardrails(all []*v1alpha1.Guardrail) ([]GuardrailResult, Change) {
	g.setting.Lock()
	defer g.setting.Unlock()
	ctx, previous, known := context.Background(), g.rules.Load().compiled, compiledRules{}
	compiled := make([]*ownRules, len(all))
	for i, gr := range all {
		compiled[i] = g.compileOwn(gr.DeepCopy(), previous.recompile(known))
	}
	inOrder := slices.SortedFunc(slices.Values(compiled), byAge)
	g.charge(inOrder)

	// Whether a rule refuses a Guardrail is judged under the limits as if none were refused: they would depend on each other.
	declared := make([]guardrail.Declared, len(all))
	for i := range compiled {
		declared[i] = guardrail.Declared{Guardrail: compiled[i].Guardrail}
	}
	results := make([]GuardrailResult, len(all))
	preliminary := g.assemble(inOrder, known, guardrail.Merge(limit.Builtin(), declared))
	for i, own := range compiled {
		results[i] = GuardrailResult{
			Name: own.Name, Rules: own.inForce(), Errors: own.errors, Verdict: g.judgeGuardrail(ctx, preliminary, own.Guardrail),
		}
		declared[i].Refused = !results[i].Verdict.Allowed
	}
	return results, g.publish(g.assemble(inOrder, known, guardrail.Merge(limit.Builtin(), declared)))
}

// publish puts a rule set in force.
func (g *Guard) publish(set *ruleSet) Change {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.rules.Load()
	set.exceptions, set.policy = was.exceptions, g.tightened(set.merged)
	g.rules.Store(set)
	return difference(was, set)
}

// Tighten puts pauses and limits of all Guardrails in force at once where they are stricter than those that are: a pause
// can't wait until SetGuardrails has compiled the rules of all Guardrails, which it may be doing just now for an older
// list. What became looser waits for SetGuardrails.
func (g *Guard) Tighten(all []*v1alpha1.Guardrail) {
	g.tighten(func(*ruleSet) { g.newest = all })
}

// GuardrailsUnknown says why it isn't known any more whether the Guardrails that were set are those that are stored: somebody may have
// paused everything. So it counts as paused until GuardrailsUnknown is called with "".
func (g *Guard) GuardrailsUnknown(why string) {
	g.tighten(func(*ruleSet) { g.lost = why })
}

// tighten takes something in that may make the policy stricter than what is compiled says.
func (g *Guard) tighten(take func(*ruleSet)) {
	g.mu.Lock()
	set := *g.rules.Load()
	was := set.policy
	take(&set)
	set.policy = g.tightened(set.merged)
	g.rules.Store(&set)
	g.mu.Unlock()
	g.notifyAll(Change{Policy: !reflect.DeepEqual(was, set.policy)})
}

// GuardrailsListed says that Tighten has had all Guardrails there are, or that there can't be any since their CRD isn't
// installed: from now on everything is frozen only where one of them says so. Without SetGuardrails all stays paused.
func (g *Guard) GuardrailsListed() {
	g.tighten(func(set *ruleSet) {
		if set.unread {
			set.merged = guardrail.Unjudged(limit.Builtin())
		}
	})
}

// tightened is what Guardrails say by what is compiled, made stricter by what came since. It needs mu.
func (g *Guard) tightened(merged guardrail.Policy) guardrail.Policy {
	policy := merged.Tightened(g.newest)
	policy.Lost = g.lost
	return policy
}

// inForce counts the rules that can be evaluated for all of their kinds.
func (o *ownRules) inForce() int {
	broken := map[string]bool{}
	for _, e := range o.errors {
		broken[e.Rule] = true
	}
	return len(o.Spec.Rules) - len(broken)
}

// judgeGuardrail judges a stored Guardrail by the rules that hold at run time.
func (g *Guard) judgeGuardrail(ctx context.Context, set *ruleSet, gr *v1alpha1.Guardrail) Verdict {
	kind := set.kinds[kindGuardrail]
	if kind == nil { // a catalogue without rules over Guardrails
		return Verdict{Allowed: true}
	}
	judged, err := judgedOf(kindGuardrail, gr)
	if err != nil {
		return Verdict{RuleSetHash: kind.hash, Skipped: []Skip{unreadable(err)}}
	}
	return g.evaluation(ctx, set, kind, judged).atRunTime()
}

// difference is what must be judged again after one rule set replaced another.
func difference(was, is *ruleSet) Change {
	c := Change{Policy: !reflect.DeepEqual(was.policy, is.policy)}
	for _, name := range slices.Sorted(maps.Keys(is.kinds)) {
		if was.kinds[name].hash != is.kinds[name].hash || was.unread != is.unread {
			c.Kinds = append(c.Kinds, name)
		}
	}
	if slices.Contains(c.Kinds, kindGuardrailException) { // exceptions may hold no longer, or again
		c.Targets = slices.SortedFunc(maps.Keys(is.exceptions), Target.compare)
	}
	return c
}

// check compiles a Guardrail's rules and charges them with those of the others in force, which compile knows.
func (g *Guard) check(set *ruleSet, gr *v1alpha1.Guardrail, compile compiler) *ownRules {
	own := g.compileOwn(gr, compile)
	all := []*ownRules{own}
	for name, other := range set.guardrails {
		if name != gr.Name {
			all = append(all, g.compileOwn(other.Guardrail, compile))
		}
	}
	slices.SortFunc(all, byAge)
	g.charge(all)
	own.displaces = set.displaced(all, gr.Name)
	return own
}
