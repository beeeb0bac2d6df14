package registration

// Standing is what a stored registration may do now.
type Standing int

const (
	// Frozen: what it wrote stays as it is. The zero value.
	Frozen Standing = iota
	// Withdrawn: it decides nothing; what it alone decided is removed.
	Withdrawn
	// Watching: it decides nothing, and tells what it would.
	Watching
	// Held: it only heals.
	Held
	// Active: it does all that it says.
	Active
)

// Decider is a registration that selects a target, and what it may do there.
type Decider struct {
	*Registration
	Standing Standing
	// Why it may do no more, for people; "" where nothing keeps it from anything.
	Why string
	// Doubts: its breaker is open.
	Doubts bool
}

// concerns says whether a condition type of a target is what this one decides, or what has to stay as it is because of it.
func (d *Decider) concerns(conditionType string) bool {
	if d.Standing == Withdrawn || d.Standing != Frozen && !d.Writes() {
		return false
	}
	for _, c := range d.Checks {
		if c.ConditionType == conditionType {
			return true
		}
	}
	return false
}
