package condition

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// Terms are what a set says by itself, and what an update changes of it, whatever the cluster is like.
type Terms struct {
	// Unreadable says why the spec can't be read.
	Unreadable string
	// Widened are the fields by which an update may reach further nodes. None when the object is new.
	Widened []string
	// Hardened are the fields by which an update may do more to a node, or do it sooner or by older news.
	Hardened []string
}

// TermsOf reads a set's terms; old is what an update replaces, nil when there is nothing. Of what can't be read it isn't known
// what changed, so everything counts as changed for the worse.
func TermsOf(cs, old *v1alpha1.ConditionSet) Terms {
	is, err := NewSet(cs)
	if err != nil {
		return Terms{Unreadable: err.Error(), Widened: []string{"spec"}, Hardened: []string{"spec"}}
	}
	if old == nil {
		return Terms{}
	}
	was, err := NewSet(old)
	if err != nil {
		return Terms{Widened: []string{"spec"}, Hardened: []string{"spec"}}
	}
	return Terms{Widened: is.widens(was), Hardened: is.hardens(was, &cs.Spec, &old.Spec)}
}

// widens names the fields by which the set may match or taint nodes that it didn't before.
func (s *Set) widens(was *Set) []string {
	return changedFields(
		change{"conditions", !subset(was.Members, s.Members)},
		change{"nodeSelector", !narrows(s.Selector, was.Selector)},
		change{"includeControlPlane", s.IncludeControlPlane && !was.IncludeControlPlane},
		change{"maxNodes", !caps(s.MaxNodes, was.MaxNodes)},
	)
}

// hardens names the fields by which the set may act harder, sooner or by older news. Times that the update leaves alone don't
// count, though their defaults follow the effect.
func (s *Set) hardens(was *Set, spec, old *v1alpha1.ConditionSetSpec) []string {
	return changedFields(
		change{"taintKey", s.Key != was.Key},
		change{"effect", rank[s.Effect] > rank[was.Effect]},
		change{"for", s.For < was.For && spec.For != old.For},
		change{"staleAfter", s.StaleAfter > was.StaleAfter},
		change{"evictAfter", s.EvictAfter < was.EvictAfter && s.Effect == corev1.TaintEffectNoExecute},
	)
}

type change struct {
	field   string
	happens bool
}

func changedFields(changes ...change) (fields []string) {
	for _, c := range changes {
		if c.happens {
			fields = append(fields, c.field)
		}
	}
	return fields
}

// narrows says whether the selector selects no object that the former one didn't: each former requirement is still made.
func narrows(s, was labels.Selector) bool {
	requirements, _ := s.Requirements()
	previous, _ := was.Requirements()
	return !slices.ContainsFunc(previous, func(f labels.Requirement) bool {
		return !slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return implies(r, f) })
	})
}

// implies says whether all that meets a requirement of a nodeSelector meets another one.
func implies(r, other labels.Requirement) bool {
	if r.Key() != other.Key() {
		return false
	}
	among := []selection.Operator{selection.In, selection.Equals}
	values, others := sets.Set[string](r.Values()), sets.Set[string](other.Values())
	switch {
	case slices.Contains(among, r.Operator()) && slices.Contains(among, other.Operator()):
		return others.IsSuperset(values)
	case r.Operator() == selection.NotIn && other.Operator() == selection.NotIn:
		return values.IsSuperset(others)
	}
	return r.Equal(other)
}

// caps says whether maxNodes allows no more than it did. A number and a percentage can't be compared.
func caps(is, was *intstr.IntOrString) bool {
	switch {
	case was == nil:
		return true
	case is == nil || is.Type != was.Type:
		return false
	case is.Type == intstr.Int:
		return is.IntVal <= was.IntVal
	}
	share, ok := limit.Percent(*is)
	previous, isPercent := limit.Percent(*was)
	return ok && isPercent && share <= previous
}
