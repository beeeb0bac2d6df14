package condition

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// Defaults of a spec, applied in memory and never stored.
const (
	defaultHold       = time.Minute // for and recoverAfter, with NoExecute only
	defaultStaleAfter = 15 * time.Minute
)

// Set is a ConditionSet made ready to match: defaults filled in, statuses normalised, selector parsed.
type Set struct {
	UID        types.UID
	Name       string
	Generation int64
	Created    time.Time

	Type                string
	Key                 string
	Effect              corev1.TaintEffect
	Members             []Member // sorted by type
	Selector            labels.Selector
	IncludeControlPlane bool
	For                 time.Duration
	RecoverAfter        time.Duration
	StaleAfter          time.Duration
	EvictAfter          time.Duration // 0: NoExecute at once
	MaxNodes            *intstr.IntOrString
	Observe             bool
	// KeysDeclared are all keys the set has ever declared.
	KeysDeclared []string
}

// Member is one condition that must have one status.
type Member struct {
	Type   string
	Status corev1.ConditionStatus
	// noHeartbeat: the node's Lease shows that the reporter lives.
	noHeartbeat bool
}

// NewSet reads a ConditionSet. What its members' types mean is built in until a Fleet, which knows the declared ones, takes
// the set in. Its error names the field that can't be read; the CRD's schema refuses most such values.
func NewSet(cs *v1alpha1.ConditionSet) (*Set, error) {
	s := Unreadable(cs)
	s.IncludeControlPlane, s.MaxNodes, s.Observe = cs.Spec.IncludeControlPlane, cs.Spec.MaxNodes, cs.Spec.Mode == v1alpha1.Observe
	if rank[s.Effect] == 0 {
		return nil, fmt.Errorf("spec.effect: %q is no taint effect", s.Effect)
	}
	if err := s.readMembers(cs.Spec.Conditions); err != nil {
		return nil, err
	}
	if err := s.readSelector(cs.Spec.NodeSelector); err != nil {
		return nil, err
	}
	return s, s.readDurations(&cs.Spec)
}

func (s *Set) readMembers(conditions map[string]v1alpha1.MemberCondition) error {
	if len(conditions) == 0 {
		return fmt.Errorf("spec.conditions: at least one condition is needed")
	}
	for conditionType, c := range conditions {
		status, ok := c.Status.Normalized()
		if !ok {
			return fmt.Errorf("spec.conditions[%s].status: %s is none of true, false, unknown", conditionType, c.Status.JSON)
		}
		s.Members = append(s.Members, Member{Type: conditionType, Status: status})
	}
	slices.SortFunc(s.Members, func(a, b Member) int { return strings.Compare(a.Type, b.Type) })
	s.Members = s.withTypes(ecosystem.Registry{}).Members
	return nil
}

// withTypes is the set with its members' types read by a registry: the same set where that changes nothing.
func (s *Set) withTypes(types ecosystem.Registry) *Set {
	members := slices.Clone(s.Members)
	for i, m := range members {
		k, _ := types.Lookup(m.Type)
		members[i].noHeartbeat = k.NoHeartbeat
	}
	if slices.Equal(members, s.Members) {
		return s
	}
	other := *s
	other.Members = members
	return &other
}

func (s *Set) readSelector(selector *v1alpha1.NodeSelector) error {
	s.Selector = labels.Everything()
	if selector == nil {
		return nil
	}
	var err error
	if s.Selector, err = selector.AsSelector(); err != nil {
		return fmt.Errorf("spec.nodeSelector: %w", err)
	}
	return nil
}

func (s *Set) readDurations(spec *v1alpha1.ConditionSetSpec) error {
	hold := time.Duration(0)
	if s.Effect == corev1.TaintEffectNoExecute {
		hold = defaultHold
	}
	for _, f := range []struct {
		field    string
		text     v1alpha1.Duration
		fallback time.Duration
		into     *time.Duration
	}{
		{"for", spec.For, hold, &s.For},
		{"recoverAfter", spec.RecoverAfter, hold, &s.RecoverAfter},
		{"staleAfter", spec.StaleAfter, defaultStaleAfter, &s.StaleAfter},
		{"evictAfter", spec.EvictAfter, 0, &s.EvictAfter},
	} {
		d, err := f.text.Or(f.fallback)
		if err != nil || d < 0 {
			return fmt.Errorf("spec.%s: %q is no duration", f.field, f.text)
		}
		*f.into = d
	}
	return nil
}

// Selects says whether the set is about this node at all.
func (s *Set) Selects(n *Node) bool {
	return (s.IncludeControlPlane || !n.ControlPlane) && s.Selector.Matches(labels.Set(n.Labels))
}

// matches says whether the node's conditions have the members' statuses, however old the news.
func (s *Set) matches(n *Node) bool {
	for _, m := range s.Members {
		if r, ok := n.Observations.Of(m.Type); !ok || r.Status != m.Status {
			return false
		}
	}
	return true
}

// StateOf is what a stored set may do, but for what pauses all sets: the fleet knows that. Readable: its spec could be read; admitted:
// the rules admit it. Acting waits for the finalizer and the recorded key: without them what is done could not be undone.
func StateOf(cs *v1alpha1.ConditionSet, readable, admitted bool) lifecycle.State {
	recorded := slices.Contains(cs.Finalizers, v1alpha1.FinalizerUndo) && slices.Contains(cs.Status.TaintKeys, cs.Spec.TaintKey)
	return lifecycle.Policy{
		Deleted: cs.DeletionTimestamp != nil, Unreadable: !readable, Observing: cs.Spec.Mode == v1alpha1.Observe,
		Refused: !admitted, Unrecorded: !recorded,
	}.State()
}

// StoredBreaker is the breaker that the set's status records; nil when it is closed.
func StoredBreaker(cs *v1alpha1.ConditionSet) *limit.Opening {
	b := cs.Status.Breaker
	if b == nil {
		return nil
	}
	return &limit.Opening{ID: b.ID, OpenedAt: b.OpenedAt.Time, Reset: b.Reset}
}

// Unreadable represents a ConditionSet whose spec can't be read: it selects no node, and what it did before can be found
// and, once it is deleted, undone.
func Unreadable(cs *v1alpha1.ConditionSet) *Set {
	return &Set{
		UID: cs.UID, Name: cs.Name, Generation: cs.Generation, Created: cs.CreationTimestamp.Time,
		Type: cs.Spec.Type, Key: cs.Spec.TaintKey, Effect: cs.Spec.Effect,
		Selector:     labels.Nothing(),
		KeysDeclared: append(slices.Clone(cs.Status.TaintKeys), cs.Spec.TaintKey),
	}
}
