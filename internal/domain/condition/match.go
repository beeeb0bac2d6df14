package condition

import (
	"time"
)

// Phase is how a set stands to a node.
type Phase string

const (
	// NotSelected: the set isn't about this node.
	NotSelected Phase = "NotSelected"
	// Clear: some member is known not to match.
	Clear Phase = "Clear"
	// Doubtful: no member is known not to match, and some member's reporter is silent or not yet proven alive.
	Doubtful Phase = "Doubtful"
	// Matching: every member matches, by reporters known to live.
	Matching Phase = "Matching"
)

// ownObservation caps how long we must have seen a match ourselves: node clocks lie, so their word alone doesn't count.
const ownObservation = time.Minute

// Match is how a set stands to a node at a moment.
type Match struct {
	Phase Phase
	// Since is when the latest member began to match (Matching), as its reporter wrote it, clamped to the node's life.
	Since time.Time
	// ExpiresAt is when the set's `for` has passed since then. Held-back nodes queue by it: unlike HoldsAt it is the same
	// after a restart, which must not reorder them.
	ExpiresAt time.Time
	// HoldsAt is when the match has lasted for the set's `for` by our own observation, too (Matching).
	HoldsAt time.Time
	// ClearAt is when the node has been clear for the set's recoverAfter (Clear).
	ClearAt time.Time
	// Silent are the types whose reporters aren't known to live.
	Silent []string
}

// Match judges a node. It is a conjunction over three values: one member known not to match makes it Clear, else one
// doubtful member makes it Doubtful.
func (s *Set) Match(n *Node, at Moment) Match {
	if !s.Selects(n) {
		return Match{Phase: NotSelected}
	}
	var silent []string
	var clearSeen time.Time
	since, seen := n.Created, n.FirstSeen
	for _, m := range s.Members {
		r, there := n.Readings[m.Type]
		switch {
		case !there:
			clearSeen = earlier(clearSeen, n.FirstSeen)
		case r.Status == "":
			clearSeen = earlier(clearSeen, r.StatusSeen)
		case !n.alive(r, m, s.StaleAfter, at):
			silent = append(silent, m.Type)
		case r.Status != m.Status:
			clearSeen = earlier(clearSeen, r.StatusSeen)
		default:
			since, seen = later(since, r.began()), later(seen, r.StatusSeen)
		}
	}
	if !clearSeen.IsZero() {
		return Match{Phase: Clear, ClearAt: clearSeen.Add(s.RecoverAfter), Silent: silent}
	}
	if len(silent) > 0 {
		return Match{Phase: Doubtful, Silent: silent}
	}
	if since.After(at.Now) {
		since = at.Now
	}
	expires := since.Add(s.For)
	return Match{Phase: Matching, Since: since, ExpiresAt: expires, HoldsAt: later(expires, seen.Add(min(s.For, ownObservation)))}
}

// doubtful says whether Match would give Doubtful, at the cost of one reading for most nodes.
func (s *Set) doubtful(n *Node, at Moment) bool {
	silent := false
	for _, m := range s.Members {
		r, there := n.Readings[m.Type]
		alive := there && n.alive(r, m, s.StaleAfter, at)
		if !there || r.Status == "" || alive && r.Status != m.Status {
			return false
		}
		silent = silent || !alive
	}
	return silent && s.Selects(n)
}

// began is when the status began: the reporter's word, but not later than we saw it. Clamped to each passing moment
// instead, a node whose clock runs ahead would never have held.
func (r Reading) began() time.Time {
	if r.Transition.After(r.StatusSeen) {
		return r.StatusSeen
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
