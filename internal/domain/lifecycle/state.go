// Package lifecycle says what a stored policy may do now. It is all that planners ask of a policy's life.
package lifecycle

// State of a stored policy, with the reason. The zero value may do nothing. What follows is one of four:
//
//	NotJudged, Unreadable, Unrecorded, Frozen   frozen: nothing is done and nothing undone
//	Deleted, Observing                          withdrawn: all that it did is undone
//	Refused, Forbidden, Paused                  heals only: what stopped holding is undone, and nothing new is done
//	Active                                      acts
type State int

const (
	// NotJudged: what the rules say of it as it is now isn't known.
	NotJudged State = iota
	// Unreadable: its spec can't be read, so it is unknown what still holds.
	Unreadable
	// Unrecorded: what it does could not be undone yet, as while it has no finalizer.
	Unrecorded
	// Frozen: a Guardrail stops everything, undo included.
	Frozen
	// Deleted: it goes once all that it did is undone.
	Deleted
	// Observing: it reports what it would do.
	Observing
	// Refused by a rule.
	Refused
	// Forbidden: all that a rule refuses is that its account may not do what it asks for.
	Forbidden
	// Paused by a Guardrail.
	Paused
	// Active: it does all that it says.
	Active
)

// Policy is what is known of a stored policy. A kind leaves out what it asks elsewhere.
type Policy struct {
	NotJudged, Unreadable, Unrecorded, Frozen, Deleted, Observing, Refused, Forbidden, Paused bool
}

// State is what the policy may do: where more than one is true, the first in this order counts.
func (p Policy) State() State {
	switch {
	case p.Frozen:
		return Frozen
	case p.Deleted:
		return Deleted
	case p.Unreadable:
		return Unreadable
	case p.NotJudged:
		return NotJudged
	case p.Observing:
		return Observing
	case p.Forbidden:
		return Forbidden
	case p.Refused:
		return Refused
	case p.Unrecorded:
		return Unrecorded
	case p.Paused:
		return Paused
	}
	return Active
}

// IsFrozen says that nothing is done and nothing undone.
func (s State) IsFrozen() bool { return s < Deleted }

// IsWithdrawn says that all that it did is undone.
func (s State) IsWithdrawn() bool { return s == Deleted || s == Observing }

// HealsOnly says that what stopped holding is undone, and nothing new is done.
func (s State) HealsOnly() bool { return s == Refused || s == Forbidden || s == Paused }
