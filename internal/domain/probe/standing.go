package probe

import "time"

// Standing is what a config may do now.
type Standing int

const (
	// Frozen: nothing, because something isn't known or everything was stopped. The zero value.
	Frozen Standing = iota
	// Active: scale down and up.
	Active
	// Held: scale up what it scaled down, and nothing new: a rule refuses it, a Guardrail pauses it.
	Held
	// Withdrawn: give everything back, healthy or not: it is deleted, or only observes.
	Withdrawn
)

// downHolds is how long a decision to scale down is acted upon. Runs may be hours apart, and what holds a target back may let
// go long after it.
const downHolds = time.Minute

// Confirmed says whether the run that Want is from is so late that replicas may be taken upon it. Else another must say the
// same first.
func (in *Scaling) Confirmed() bool { return in.Now.Sub(in.Tick) <= downHolds }

// Want is where a target's dependents are to be scaled, by its latest run and what its config may do. A decision that is
// stale begins nothing.
func (s *State) Want(standing Standing, now time.Time) (want Direction, withdrawn bool) {
	switch {
	case standing == Withdrawn:
		return Up, true
	case now.After(s.Until), standing == Frozen, standing == Held && s.Direction == Down:
		return Hold, false
	default:
		return s.Direction, false
	}
}
