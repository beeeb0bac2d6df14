package guard

import (
	"fmt"
	"slices"
	"strings"
)

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

// wasBroken says whether a rule that an update doesn't touch couldn't be evaluated before. Of a Guardrail that isn't in
// force, such as one in a file, that is taken for granted.
func (s *ruleSet) wasBroken(guardrail string, e RuleError) bool {
	return s.guardrails[guardrail] == nil || s.isBroken(guardrail, e)
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
