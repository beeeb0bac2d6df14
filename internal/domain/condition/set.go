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
	"github.com/resourcestack/autohealer/internal/domain/timing"
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
		known, _ := ecosystem.Lookup(conditionType)
		s.Members = append(s.Members, Member{Type: conditionType, Status: status, noHeartbeat: known.NoHeartbeat})
	}
	slices.SortFunc(s.Members, func(a, b Member) int { return strings.Compare(a.Type, b.Type) })
	return nil
}

func (s *Set) readSelector(selector *v1alpha1.LabelSelector) error {
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

// Phase is the result of matching a set to a node.
type Phase string

const (
	// NotSelected: the set isn't about this node.
	NotSelected Phase = "NotSelected"
	// Clear: some member is known not to match.
	Clear Phase = "Clear"
	// Doubtful: no member is known not to match, and of some member nobody knows: the node doesn't report it, its reporter says
	// neither True nor False, is silent, or not yet proven alive.
	Doubtful Phase = "Doubtful"
	// Matching: every member matches, by reporters known to live.
	Matching Phase = "Matching"
)

// minObservation caps how long we must have observed a match ourselves: node clocks may be wrong, so they alone don't count.
const minObservation = time.Minute

// Match is the result of matching a set to a node at a moment.
type Match struct {
	Phase Phase
	// Since is when the latest member began to match (Matching), as its reporter wrote it, clamped to the node's life.
	Since time.Time
	// ForElapsedAt is when the set's `for` has passed since then. Held-back nodes queue by it: unlike DueAt it is the same
	// after a restart, which must not reorder them.
	ForElapsedAt time.Time
	// DueAt is when the match has lasted for the set's `for` by our own observation, too (Matching).
	DueAt time.Time
	// ClearAt is when the node has been clear for the set's recoverAfter (Clear).
	ClearAt time.Time
}

// Match judges a node. It is a conjunction over three values: one member known not to match makes it Clear, else one
// doubtful member makes it Doubtful.
func (s *Set) Match(n *Node, at timing.Moment) Match {
	if !s.Selects(n) {
		return Match{Phase: NotSelected}
	}
	someDoubtful := false
	var clearSeen time.Time
	since, seen := n.Created, n.FirstSeen
	for _, m := range s.Members {
		r, phase := n.memberPhase(m, s.StaleAfter, at)
		switch phase {
		case Doubtful:
			someDoubtful = true
		case Clear:
			clearSeen = timing.Earlier(clearSeen, r.ObservedSince)
		default:
			since, seen = timing.Later(since, r.startedAt()), timing.Later(seen, r.ObservedSince)
		}
	}
	if !clearSeen.IsZero() {
		return Match{Phase: Clear, ClearAt: clearSeen.Add(s.RecoverAfter)}
	}
	if someDoubtful {
		return Match{Phase: Doubtful}
	}
	if since.After(at.Now) {
		since = at.Now
	}
	expires := since.Add(s.For)
	return Match{Phase: Matching, Since: since, ForElapsedAt: expires, DueAt: timing.Later(expires, seen.Add(min(s.For, minObservation)))}
}

// memberPhase matches one member to a node that the set selects. Only True or False, reported by a live reporter, makes it Clear:
// Unknown means that a check failed, and any other status, or a missing condition, means nothing.
func (n *Node) memberPhase(m Member, staleAfter time.Duration, at timing.Moment) (Observation, Phase) {
	r, there := n.Observations.Of(m.Type)
	switch {
	case !there || !n.alive(r, m, staleAfter, at):
		return r, Doubtful
	case r.Status == m.Status:
		return r, Matching
	case r.Status == corev1.ConditionTrue || r.Status == corev1.ConditionFalse:
		return r, Clear
	}
	return r, Doubtful
}

// doubtful says whether Match would give Doubtful, at the cost of one reading for most nodes.
func (s *Set) doubtful(n *Node, at timing.Moment) bool {
	someDoubtful := false
	for _, m := range s.Members {
		_, phase := n.memberPhase(m, s.StaleAfter, at)
		if phase == Clear {
			return false
		}
		someDoubtful = someDoubtful || phase == Doubtful
	}
	return someDoubtful && s.Selects(n)
}

// startedAt is when the status began: as reported, but not later than we observed it. Clamped to each passing moment
// instead, a node whose clock runs ahead would never have held.
func (r Observation) startedAt() time.Time {
	if r.Transition.After(r.ObservedSince) {
		return r.ObservedSince
	}
	return r.Transition
}
