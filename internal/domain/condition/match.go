package condition

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

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
func (s *Set) Match(n *Node, at Moment) Match {
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
			clearSeen = earlier(clearSeen, r.ObservedSince)
		default:
			since, seen = later(since, r.startedAt()), later(seen, r.ObservedSince)
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
	return Match{Phase: Matching, Since: since, ForElapsedAt: expires, DueAt: later(expires, seen.Add(min(s.For, minObservation)))}
}

// memberPhase matches one member to a node that the set selects. Only True or False, reported by a live reporter, makes it Clear:
// Unknown means that a check failed, and any other status, or a missing condition, means nothing.
func (n *Node) memberPhase(m Member, staleAfter time.Duration, at Moment) (Observation, Phase) {
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
func (s *Set) doubtful(n *Node, at Moment) bool {
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

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
