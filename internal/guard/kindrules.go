package guard

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/resourcestack/autohealer/internal/domain/guardrail"
)

// kindRules is what judges one kind now. It is immutable; a change makes a new one.
type kindRules struct {
	*builtinKind
	// own are the rules of Guardrails, broken ones included.
	own []*compiledRule
	// values are those of variables that are tables, nil for the others.
	values []any
	// hash names all that decides verdicts.
	hash string
}

// rule is the kind's rule of this ID, and nil where it has none.
func (k *kindRules) rule(id string) *compiledRule {
	for _, rules := range [][]*compiledRule{k.rules, k.own} {
		if i := slices.IndexFunc(rules, func(r *compiledRule) bool { return r.ID == id }); i >= 0 {
			return rules[i]
		}
	}
	return nil
}

// with puts together what judges a kind: the built-in part, the rules of Guardrails, and what they declare.
func (k *builtinKind) with(own []*compiledRule, policy guardrail.Policy) *kindRules {
	now := &kindRules{builtinKind: k, own: own, values: make([]any, len(k.variables))}
	digest := sha256.New()
	digest.Write(k.text)
	encoder := json.NewEncoder(digest)
	readLimits := false
	for _, r := range slices.Concat(k.rules, own) {
		readLimits = readLimits || r.reads.anyOf(rootLimits)
		if r.guardrail == "" {
			continue
		}
		rule := r.Rule
		rule.Tests, rule.Rationale = nil, ""
		_ = encoder.Encode(rule) // a digest takes all, and texts can be encoded
	}
	if k.tables != nil {
		for _, t := range k.tables(policy) {
			i := k.index[variablePath+t.name]
			now.values[i] = t.value()
			if v := t.variable(); v.Expression != k.variables[i].Expression {
				digest.Write([]byte(v.Expression))
			}
		}
	}
	if readLimits {
		fmt.Fprint(digest, policy.Limits)
	}
	now.hash = hex.EncodeToString(digest.Sum(nil))[:16]
	return now
}

// ruleSet is all that is in force. It is immutable; a change makes a new one.
type ruleSet struct {
	kinds map[string]*kindRules
	// merged is what all Guardrails say, rules apart; policy is that, tightened by what came since.
	merged, policy guardrail.Policy
	limits         map[string]any
	// guardrails in force, by name.
	guardrails map[string]*ownRules
	// compiled are their rules, so that they needn't be compiled again.
	compiled   compiledRules
	exceptions exceptions
	// unread: the Guardrails aren't known yet, so that nothing is admitted.
	unread bool
}

// RuleInfo is a rule with what compiling it found out, for documentation, tools and the generated policy.
type RuleInfo struct {
	Rule
	// Guardrail has the rule; "" for a built-in one.
	Guardrail string
	// Broken says why the rule can't be evaluated; "" when it can. Of a broken rule nothing below is known.
	Broken string
	// Reads are the paths that decide the verdict, shared variables followed to what they read.
	Reads []string
	// Variables are the shared variables that expression and message need, in the order of their definition.
	Variables []Variable
	// Portable rules read only what a ValidatingAdmissionPolicy can.
	Portable bool
	// AtRunTime rules are judged again before anything acts on the object.
	AtRunTime bool
	// NeedsFacts rules ask what the cluster is like now.
	NeedsFacts bool
	// Unchanged is CEL that is true for an update that leaves alone all that the rule reads; "" when there is none.
	Unchanged string
}

// Rules are the rules for a kind, in the catalogue's order, then those of Guardrails, the oldest first.
func (g *Guard) Rules(kind string) []RuleInfo {
	k := g.rules.Load().kinds[kind]
	if k == nil {
		return nil
	}
	infos := make([]RuleInfo, 0, len(k.rules)+len(k.own))
	for _, r := range slices.Concat(k.rules, k.own) {
		infos = append(infos, RuleInfo{
			Rule: r.Rule, Guardrail: r.guardrail, Broken: r.broken(), Reads: r.reads.list(), Variables: k.needed(r),
			Portable: r.portable(), AtRunTime: r.atRunTime, NeedsFacts: r.needsFacts(),
			Unchanged: r.unchangedExpression,
		})
	}
	return infos
}

// Kinds that the guard judges, sorted.
func (g *Guard) Kinds() []string {
	return slices.Sorted(maps.Keys(g.kinds))
}

// needed are the variables that a rule needs, directly or through others.
func (k *builtinKind) needed(r *compiledRule) []Variable {
	wanted := map[string]bool{}
	want := func(p *program) {
		if p != nil {
			for path := range p.reads {
				wanted[rootOf(path)] = true
			}
		}
	}
	want(&r.condition)
	want(r.message)
	want(r.unchanged)
	var needed []Variable
	for _, v := range slices.Backward(k.variables) { // a variable reads only earlier ones
		if wanted[variablePath+v.Name] {
			want(&v.program)
			needed = append(needed, v.Variable)
		}
	}
	slices.Reverse(needed)
	return needed
}

// PlanField is a field of plan.
type PlanField struct {
	Name, Type string
	// NeedsFacts fields ask what the cluster is like now; the others follow from the object and the rules in force.
	NeedsFacts bool
}

// PlanFields are what rules for a kind may read of plan, sorted by name.
func (g *Guard) PlanFields(kind string) []PlanField {
	k := g.kinds[kind]
	if k == nil {
		return nil
	}
	var fields []PlanField
	for _, section := range []struct {
		reflect.Type
		needsFacts bool
	}{{k.known, false}, {k.live, true}} {
		for _, f := range forRules(section.Type) {
			fields = append(fields, PlanField{Name: lowerCamel(f.Name), Type: planFieldType(f.Type).CelType().String(), NeedsFacts: section.needsFacts})
		}
	}
	slices.SortFunc(fields, func(a, b PlanField) int { return strings.Compare(a.Name, b.Name) })
	return fields
}
