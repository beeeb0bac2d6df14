package guard

import (
	"reflect"
	"slices"
	"strings"
)

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
	// StaticCost is the estimate of the expression, in CEL cost units.
	StaticCost uint64
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
			Rule: r.Rule, Guardrail: r.guardrail, Broken: r.broken, Reads: r.reads.list(), Variables: k.needed(r),
			Portable: r.portable(), AtRunTime: r.atRunTime, NeedsFacts: r.needsFacts(),
			Unchanged: r.unchangedExpression, StaticCost: r.condition.cost,
		})
	}
	return infos
}

// Kinds that the guard judges, sorted.
func (g *Guard) Kinds() []string {
	var kinds []string
	for kind := range g.kinds {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
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
	for _, part := range []struct {
		reflect.Type
		needsFacts bool
	}{{k.known, false}, {k.live, true}} {
		for _, f := range forRules(part.Type) {
			fields = append(fields, PlanField{Name: lowerCamel(f.Name), Type: planFieldType(f.Type).CelType().String(), NeedsFacts: part.needsFacts})
		}
	}
	slices.SortFunc(fields, func(a, b PlanField) int { return strings.Compare(a.Name, b.Name) })
	return fields
}
