package registration

import "github.com/resourcestack/autohealer/internal/domain/lifecycle"

// Decider is a registration that selects a target, and what it may do there.
type Decider struct {
	*Registration
	State lifecycle.State
	// Why it may do no more, for people; "" where nothing keeps it from anything.
	Why string
	// Doubts: its breaker is open.
	Doubts bool
}

// concerns says whether a condition type of a target is what this one decides, or what has to stay as it is because of it.
func (d *Decider) concerns(conditionType string) bool {
	return !d.State.IsWithdrawn() && (d.State.IsFrozen() || d.Writes()) && d.Decides(conditionType)
}
