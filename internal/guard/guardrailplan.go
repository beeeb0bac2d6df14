package guard

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// guardrails are the one that is judged and the stored one.
func (e *evaluation) guardrails() (gr, old *v1alpha1.Guardrail, err error) {
	if gr, err = read[v1alpha1.Guardrail](e.object); err != nil {
		return nil, nil, err
	}
	if old, err = read[v1alpha1.Guardrail](e.oldObject); err != nil || old == nil {
		old = &v1alpha1.Guardrail{} // what can't be read has no rules that are kept
	}
	return gr, old, nil
}

// termsOfGuardrail compiles the rules, and compares condition types with the other Guardrails'.
func termsOfGuardrail(e *evaluation) (any, error) {
	gr, old, err := e.guardrails()
	if err != nil {
		return nil, err
	}
	own, err := e.ownRules(gr)
	if err != nil {
		return nil, err
	}
	kept := keptRules(gr, old)
	var p guardrail.Terms
	p.Displaced = own.displaces[:min(len(own.displaces), sample.Size)]
	for _, problem := range own.errors {
		if problem.Field == fieldKinds {
			continue // unknown kinds have a rule of their own, which needs no plan
		}
		into := &p.RuleErrors
		// Of a Guardrail that isn't in force, such as one in a file, it is taken for granted that what is kept was broken before.
		if kept[problem.Rule] && (e.rules.guardrails[gr.Name] == nil || e.rules.isBroken(gr.Name, problem)) {
			into = &p.KeptErrors
		}
		sample.Once(into, problem.String())
	}
	p.ChangesOnly, p.DisputedTypes = e.guard.changesOnly(own, kept), e.rules.disputes(gr)
	return p, nil
}

// changesOnly are the new and changed rules that would refuse a creation or an update, and let a stored object act.
func (g *Guard) changesOnly(own *ownRules, kept map[string]bool) (all []string) {
	for _, kind := range g.Kinds() {
		for _, r := range own.byKind[kind] {
			if !kept[r.Name] && !r.atRunTime && r.Severity == Deny && acts(kind) {
				sample.Once(&all, fmt.Sprintf("%s for %s (%s)", r.Name, kind, strings.Join(g.kinds[kind].admissionOnlyReads(r), ", ")))
			}
		}
	}
	return all
}

// admissionOnlyReads is what a rule reads that isn't there at run time.
func (k *builtinKind) admissionOnlyReads(r *compiledRule) []string {
	var paths []string
	for _, path := range r.reads.list() {
		if k.isLive(path) || slices.Contains([]string{rootFacts, rootRequest, rootOldObject}, rootOf(path)) {
			paths = append(paths, path)
		}
	}
	if r.condition.asksRequester {
		paths = append(paths, "authorizer about who asks")
	}
	return paths
}

// disputes are condition types that another Guardrail declares differently, each with its name.
func (s *ruleSet) disputes(gr *v1alpha1.Guardrail) []string {
	var disputed []string
	for _, other := range s.inOrder() {
		if other.Name == gr.Name {
			continue
		}
		for _, t := range gr.Spec.ConditionTypes {
			if guardrail.Disputes(other.Guardrail, t) {
				sample.Once(&disputed, fmt.Sprintf("%s (Guardrail %s)", t.Type, other.Name))
			}
		}
	}
	return disputed
}

// inOrder are the Guardrails in force, by name.
func (s *ruleSet) inOrder() []*ownRules {
	return slices.SortedFunc(maps.Values(s.guardrails), func(a, b *ownRules) int { return strings.Compare(a.Name, b.Name) })
}

// keptRules are the rules that an update leaves as they were.
func keptRules(gr, old *v1alpha1.Guardrail) map[string]bool {
	kept := map[string]bool{}
	for _, r := range gr.Spec.Rules {
		kept[r.Name] = slices.ContainsFunc(old.Spec.Rules, func(was v1alpha1.GuardrailRule) bool { return reflect.DeepEqual(was, r) })
	}
	return kept
}

// ruledKinds are the kinds that a Guardrail has rules for.
func ruledKinds(object judged) []string {
	gr, err := read[v1alpha1.Guardrail](object)
	if err != nil {
		return nil
	}
	var kinds []string
	for _, r := range gr.Spec.Rules {
		kinds = append(kinds, r.Kinds...)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// targetKind is the kind that an exception is for.
func targetKind(object judged) []string {
	x, err := read[v1alpha1.GuardrailException](object)
	if err != nil {
		return nil
	}
	return []string{x.Spec.TargetRef.Kind}
}

// termsOfException finds the rules that an exception names.
func termsOfException(e *evaluation) (any, error) {
	x, err := read[v1alpha1.GuardrailException](e.object)
	if err != nil {
		return nil, err
	}
	var p guardrail.ExceptionTerms
	kind := e.rules.kinds[x.Spec.TargetRef.Kind]
	if kind == nil {
		return p, nil // an unknown kind has a rule of its own, which needs no plan
	}
	for _, id := range x.Spec.RuleIDs {
		switch r := kind.rule(id); {
		case r == nil:
			p.UnknownRules = append(p.UnknownRules, id)
		case !r.Exceptable:
			p.FixedRules = append(p.FixedRules, id)
		}
	}
	return p, nil
}

// forecastException finds the object that an exception names.
func forecastException(e *evaluation) (any, error) {
	x, err := read[v1alpha1.GuardrailException](e.object)
	if err != nil {
		return nil, err
	}
	var p guardrail.ExceptionForecast
	ref := x.Spec.TargetRef
	if e.guard.kinds[ref.Kind] == nil {
		return p, nil
	}
	target, err := e.guard.opts.Stored.Get(e.ctx, ref.Kind, ref.Namespace, ref.Name)
	if err != nil {
		return nil, err
	}
	var marked []string
	if p.TargetMissing = target == nil; !p.TargetMissing {
		if p.TargetHash, err = SpecHash(target); err != nil {
			return nil, err
		}
		marked = excepted(target)
	}
	if p.TargetHash != x.Spec.SpecHash {
		p.UnmarkedRules = e.unmarkedRules(x, marked)
	}
	return p, nil
}

// excepted are the rules that an object is annotated with.
func excepted(object client.Object) []string {
	rules := strings.Split(object.GetAnnotations()[v1alpha1.AnnotationExceptedRules], ",")
	for i := range rules {
		rules[i] = strings.TrimSpace(rules[i])
	}
	return rules
}

// unmarkedRules are the exception's rules that the generated policy has too, but for those marked.
func (e *evaluation) unmarkedRules(x *v1alpha1.GuardrailException, marked []string) []string {
	var ids []string
	for _, r := range e.rules.kinds[x.Spec.TargetRef.Kind].rules {
		if r.inPolicy() && slices.Contains(x.Spec.RuleIDs, r.ID) && !slices.Contains(marked, r.ID) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}
