// Package guardrail merges what Guardrails declare: limits, pauses, precedence, condition types. It is pure.
package guardrail

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// Policy is what all Guardrails together say, rules apart.
type Policy struct {
	// Limits in force.
	Limits limit.Limits
	// PausedBy names what pauses new acts, sorted; empty when nothing does. What freezes is among them.
	PausedBy []string
	// FrozenBy names what stops everything, undo included, sorted; empty when nothing does.
	FrozenBy []string
	// Lost says why it isn't known any more what Guardrails there are, which pauses new acts, too; "" while it is known.
	Lost string
	// Precedence among ConditionSets.
	Precedence v1alpha1.ConditionSetPrecedence
	// Witnesses are those of each Guardrail that names any, by its name. One of each must answer; without any, nobody vouches for
	// anything.
	Witnesses map[string][]Witness
	// ConditionTypes are the statuses that are declared to be healthy, sorted, by type. Of a disputed type they are two.
	ConditionTypes map[string][]corev1.ConditionStatus
}

// Witness is a server outside; who asks it knows nothing of the API.
type Witness = v1alpha1.Witness

// Paused says whether nothing new may be done.
func (p Policy) Paused() bool { return len(p.PausedBy) > 0 || p.Lost != "" }

// Frozen says whether nothing may be undone, either.
func (p Policy) Frozen() bool { return len(p.FrozenBy) > 0 }

// Unread is the policy before it is known which Guardrails there are: one may freeze everything, so everything is frozen.
func Unread(limits limit.Limits) Policy {
	p := Unjudged(limits)
	p.FrozenBy = []string{UnreadName}
	return p
}

// Unjudged is the policy while Guardrails aren't in force, though it is known which there are and what Tightened adds: what
// else they may forbid isn't known, so everything counts as paused.
func Unjudged(limits limit.Limits) Policy {
	p := Merge(limits, nil)
	p.PausedBy = []string{UnreadName}
	return p
}

// UnreadName stands in PausedBy for Guardrails that aren't read yet; it has a space, so no Guardrail is called so.
const UnreadName = "Guardrails not read"

// Declared is a Guardrail with what the rules say of it.
type Declared struct {
	*v1alpha1.Guardrail
	// Refused: a rule refuses the stored Guardrail, so it can only make things stricter.
	Refused bool
}

// Merge gives what all Guardrails together say; limits hold where they set none.
func Merge(limits limit.Limits, all []Declared) Policy {
	p := Policy{Limits: mergeLimits(limits, all), Precedence: v1alpha1.PrecedenceKey}
	for _, g := range all {
		if g.Spec.Paused || g.Spec.Frozen {
			p.PausedBy = append(p.PausedBy, g.Name)
		}
		if g.Spec.Frozen {
			p.FrozenBy = append(p.FrozenBy, g.Name)
		}
	}
	slices.Sort(p.PausedBy)
	slices.Sort(p.FrozenBy)
	p.mergePrecedence(all)
	p.mergeTypes(all)
	p.mergeWitnesses(all)
	return p
}

// mergeWitnesses takes all that are named. One Guardrail more only makes it harder to be vouched for, and so those of one that is refused
// count beside those of others, and not alone.
func (p *Policy) mergeWitnesses(all []Declared) {
	vouches := len(p.Witnesses) > 0
	named := maps.Clone(p.Witnesses)
	for _, g := range all {
		if len(g.Spec.Witnesses) > 0 {
			if named == nil {
				named = map[string][]Witness{}
			}
			named[g.Name] = common(named[g.Name], g.Spec.Witnesses)
			vouches = vouches || !g.Refused
		}
	}
	if p.Witnesses = nil; vouches {
		p.Witnesses = named
	}
}

// common are those that a Guardrail named before and names still; all, if it named none. Of a change that isn't judged yet it is known what is
// named no more.
func common(before, now []Witness) []Witness {
	if before == nil {
		return now
	}
	return slices.DeleteFunc(slices.Clone(before), func(w Witness) bool { return !slices.Contains(now, w) })
}

// Tightened is the policy with the pauses and limits of Guardrails of which nothing else is known yet, where they are
// stricter.
func (p Policy) Tightened(all []*v1alpha1.Guardrail) Policy {
	declared := make([]Declared, len(all))
	for i, g := range all {
		declared[i] = Declared{Guardrail: g, Refused: true}
	}
	by := Merge(p.Limits, declared)
	p.Limits = by.Limits
	p.mergeWitnesses(declared)
	p.PausedBy, p.FrozenBy = union(p.PausedBy, by.PausedBy), union(p.FrozenBy, by.FrozenBy)
	return p
}

// union of two sorted lists, sorted; the first one itself where the second adds nothing.
func union(a, b []string) []string {
	if len(b) == 0 {
		return a
	}
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// mergePrecedence takes what all say who say anything; Key when they disagree. Under Node a node gets some of the taints that it
// gets under Key, and no others. So one that is refused may ask for Node, and not for Key: when a rule begins to refuse it,
// nothing is tainted that wasn't.
func (p *Policy) mergePrecedence(all []Declared) {
	for _, g := range all {
		switch {
		case g.Spec.ConditionSetPrecedence == v1alpha1.PrecedenceNode:
			p.Precedence = v1alpha1.PrecedenceNode
		case g.Spec.ConditionSetPrecedence == v1alpha1.PrecedenceKey && !g.Refused:
			p.Precedence = v1alpha1.PrecedenceKey
			return
		}
	}
}

// mergeTypes takes each status that anybody declares to be healthy, refused or not: rules refuse what asks for healthy
// statuses alone, so each further one only makes them stricter. The built-in types can't be declared.
func (p *Policy) mergeTypes(all []Declared) {
	p.ConditionTypes = map[string][]corev1.ConditionStatus{}
	for _, g := range all {
		for _, t := range g.Spec.ConditionTypes {
			healthy := p.ConditionTypes[t.Type]
			if _, builtin := ecosystem.Lookup(t.Type); builtin || slices.Contains(healthy, t.HealthyStatus) {
				continue
			}
			healthy = append(healthy, t.HealthyStatus)
			slices.Sort(healthy)
			p.ConditionTypes[t.Type] = healthy
		}
	}
}

// DeclaredTypes are the declared condition types that nobody disputes, sorted.
func (p Policy) DeclaredTypes() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(p.ConditionTypes)) {
		if len(p.ConditionTypes[name]) == 1 {
			all = append(all, name)
		}
	}
	return all
}

// Disputes says whether a Guardrail declares a condition type to be healthy at another status.
func Disputes(g *v1alpha1.Guardrail, t v1alpha1.ConditionType) bool {
	return slices.ContainsFunc(g.Spec.ConditionTypes, func(other v1alpha1.ConditionType) bool {
		return other.Type == t.Type && other.HealthyStatus != t.HealthyStatus
	})
}

// mergeLimits replaces a limit by the strictest of what Guardrails set for it. One that is refused can't loosen anything:
// its values hold beside the others, or beside the limit that nobody replaced.
func mergeLimits(limits limit.Limits, all []Declared) limit.Limits {
	tainted := func(l *v1alpha1.GuardrailLimits) *intstr.IntOrString { return l.MaxTaintedNodes }
	evicting := func(l *v1alpha1.GuardrailLimits) *intstr.IntOrString { return l.MaxEvictingNodes }
	deletions := func(l *v1alpha1.GuardrailLimits) *intstr.IntOrString {
		if l.MaxPodDeletionsPerMinute == nil {
			return nil
		}
		value := intstr.FromInt32(*l.MaxPodDeletionsPerMinute)
		return &value
	}
	scaled := func(l *v1alpha1.GuardrailLimits) *intstr.IntOrString { return l.MaxScaledDownTargets }
	failing := func(l *v1alpha1.GuardrailLimits) *intstr.IntOrString { return l.MaxTargetsFailingTogether }
	limits.MaxFailingTogether = mergeCap(limits.MaxFailingTogether, all, failing)
	limits.MaxScaledDownTargets = mergeCap(limits.MaxScaledDownTargets, all, scaled)
	limits.MaxTaintedNodes = mergeCap(limits.MaxTaintedNodes, all, tainted)
	limits.MaxEvictingNodes = mergeCap(limits.MaxEvictingNodes, all, evicting)
	perMinute := limit.CapOf(intstr.FromInt(limits.MaxPodDeletionsPerMinute))
	_, limits.MaxPodDeletionsPerMinute = mergeCap(perMinute, all, deletions).Strictest()
	return limits
}

func mergeCap(base limit.Cap, all []Declared, of func(*v1alpha1.GuardrailLimits) *intstr.IntOrString) limit.Cap {
	var replacing, narrowing []intstr.IntOrString
	for _, g := range all {
		switch {
		case g.Spec.Limits == nil || of(g.Spec.Limits) == nil:
		case g.Refused:
			narrowing = append(narrowing, *of(g.Spec.Limits))
		default:
			replacing = append(replacing, *of(g.Spec.Limits))
		}
	}
	if len(replacing) == 0 {
		replacing = base.Values()
	}
	return limit.CapOf(append(replacing, narrowing...)...)
}

// LongestException is how long an exception may live.
const LongestException = 7 * 24 * time.Hour

// Ends is when an exception's time is over: at its date, and at the latest 7 days after its creation. A date that can't be
// read lies in the past.
func Ends(x *v1alpha1.GuardrailException) time.Time {
	at, err := x.Spec.ExpiresAt.Time()
	if err != nil {
		return time.Time{}
	}
	if latest := x.CreationTimestamp.Add(LongestException); at.After(latest) {
		return latest
	}
	return at
}

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
