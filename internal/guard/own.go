package guard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// RuleError says why a Guardrail's rule can't be evaluated.
type RuleError struct {
	// Rule is its name within the Guardrail.
	Rule string
	// Field is expression, messageExpression or kinds.
	Field string
	// Kind for which it doesn't compile.
	Kind string
	// Message has the cause, with line, column and a caret.
	Message string
}

// String says all of it.
func (e RuleError) String() string {
	if e.Field == fieldKinds {
		return fmt.Sprintf("rule %s, kinds: %s", e.Rule, e.Message)
	}
	return fmt.Sprintf("rule %s, %s for %s, %s", e.Rule, e.Field, e.Kind, e.Message)
}

const (
	fieldKinds      = "kinds"
	fieldExpression = "expression"
	fieldMessage    = "messageExpression"
)

// ownRules are a Guardrail's rules, compiled for each of their kinds.
type ownRules struct {
	*v1alpha1.Guardrail
	byKind map[string][]*compiledRule
	errors []RuleError
	// displaces tells whose rules would break if these were in force; only check asks.
	displaces []string
}

// compiler gives a Guardrail's rule compiled for a kind.
type compiler func(k *builtinKind, guardrail string, r *v1alpha1.GuardrailRule) *compiledRule

// compileOwn compiles a Guardrail's rules for each of their kinds.
func (g *Guard) compileOwn(gr *v1alpha1.Guardrail, compile compiler) *ownRules {
	own := &ownRules{Guardrail: gr, byKind: map[string][]*compiledRule{}}
	for i := range gr.Spec.Rules {
		r := &gr.Spec.Rules[i]
		for _, name := range r.Kinds {
			k := g.kinds[name]
			if k == nil {
				own.errors = append(own.errors, RuleError{Rule: r.Name, Field: fieldKinds, Kind: name, Message: fmt.Sprintf(
					"there is no kind %q; write %s", name, strings.Join(slices.Sorted(maps.Keys(g.kinds)), ", "))})
				continue
			}
			compiled := compile(k, gr.Name, r)
			own.byKind[name] = append(own.byKind[name], compiled)
			if compiled.fault != nil {
				own.errors = append(own.errors, *compiled.fault)
			}
		}
	}
	return own
}

// ownRule is a Guardrail's rule as the catalogue would have it. The CRD's defaults are filled in: an object may come from
// a file.
func ownRule(gr string, r *v1alpha1.GuardrailRule) Rule {
	rule := Rule{GuardrailRule: *r, ID: gr + "/" + r.Name}
	rule.Severity = cmp.Or(r.Severity, Deny)
	rule.OnFactsUnavailable = cmp.Or(r.OnFactsUnavailable, Warn)
	return rule
}

// compileOwnRule compiles a rule for one kind. One that doesn't compile is there all the same, as one that can't be
// evaluated.
func (k *builtinKind) compileOwnRule(gr string, r *v1alpha1.GuardrailRule) *compiledRule {
	rule := ownRule(gr, r)
	compiled, fault := k.compileRule(rule)
	if fault != nil {
		fault.Rule, fault.Kind = r.Name, k.name
		return brokenRule(rule, gr, fault)
	}
	compiled.guardrail = gr
	compiled.countsAlways()
	return compiled
}

// brokenRule holds at run time, too: it refuses all of its kind.
func brokenRule(rule Rule, gr string, fault *RuleError) *compiledRule {
	return &compiledRule{Rule: rule, guardrail: gr, atRunTime: true, fault: fault}
}

// compiledRules are what was compiled, by all that it depends on.
type compiledRules map[ruleKey]*compiledRule

// ruleKey is all that a compiled rule depends on: its kind, its Guardrail and what that says of it.
type ruleKey struct{ kind, guardrail, rule string }

func keyOf(k *builtinKind, gr string, r *v1alpha1.GuardrailRule) ruleKey {
	compiled := *r
	compiled.Tests = nil // nothing is compiled of them, and they have pointers
	return ruleKey{k.name, gr, fmt.Sprintf("%#v", compiled)}
}

// recompile compiles what isn't known, and keeps in now all that was asked for: memory holds what is in force, and nothing else.
func (c compiledRules) recompile(now compiledRules) compiler {
	return func(k *builtinKind, gr string, r *v1alpha1.GuardrailRule) *compiledRule {
		key := keyOf(k, gr, r)
		compiled, known := c[key]
		if !known {
			compiled = k.compileOwnRule(gr, r)
		}
		now[key] = compiled
		return compiled
	}
}

// charge adds up what all rules of Guardrails may cost for each kind, the oldest Guardrail first. What no longer fits is
// broken.
func (g *Guard) charge(all []*ownRules) {
	spent := map[string]*costs{}
	for _, own := range all {
		for _, name := range slices.Sorted(maps.Keys(own.byKind)) {
			if spent[name] == nil {
				spent[name] = &costs{}
			}
			for i, r := range own.byKind[name] {
				if r.fault != nil {
					continue
				}
				with := *spent[name]
				with.add(r.condition)
				excess := with.excess()
				if excess == "" {
					*spent[name] = with
					continue
				}
				e := RuleError{Rule: r.Name, Field: fieldExpression, Kind: name, Message: "with the rules before it, those of older Guardrails included, it " + excess}
				own.byKind[name][i] = brokenRule(r.Rule, own.Name, &e)
				own.errors = append(own.errors, e)
			}
		}
	}
}

// byAge puts the oldest Guardrail first, so that a new one never breaks what holds already. One that isn't stored yet is
// the youngest.
func byAge(a, b *ownRules) int {
	younger := func(o *ownRules) int {
		if o.CreationTimestamp.IsZero() {
			return 1
		}
		return 0
	}
	return cmp.Or(younger(a)-younger(b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// displaced tells which rules of other Guardrails no longer fit into the budget that all share, by Guardrail. charge has
// noted the errors; those that are in force already count for nobody.
func (s *ruleSet) displaced(all []*ownRules, by string) []string {
	var texts []string
	for _, other := range all {
		if other.Name == by {
			continue
		}
		var rules, kinds []string
		for _, e := range other.errors {
			if !s.isBroken(other.Name, e) {
				rules, kinds = append(rules, e.Rule), append(kinds, e.Kind)
			}
		}
		if len(rules) > 0 {
			texts = append(texts, fmt.Sprintf("Guardrail %s (%s; for %s)", other.Name, someOf(rules), someOf(kinds)))
		}
	}
	slices.Sort(texts)
	return texts
}

// isBroken says whether a rule of the Guardrail in force can't be evaluated already.
func (s *ruleSet) isBroken(guardrail string, e RuleError) bool {
	inForce := s.guardrails[guardrail]
	return inForce != nil && slices.ContainsFunc(inForce.errors, func(is RuleError) bool {
		return is.Rule == e.Rule && is.Field == e.Field && is.Kind == e.Kind
	})
}

// someOf names each once, five at most.
func someOf(names []string) string {
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > 5 {
		names = append(slices.Clone(names[:5]), "…")
	}
	return strings.Join(names, ", ")
}
