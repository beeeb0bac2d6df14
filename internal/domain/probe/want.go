package probe

import (
	"time"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// downHolds is how long a decision to scale down is acted upon. Runs may be hours apart, and what holds a target back may let
// go long after it.
const downHolds = time.Minute

// Confirmed says whether the run that Want is from is so late that replicas may be taken upon it. Else another must say the
// same first.
func (in *Scaling) Confirmed() bool { return in.Now.Sub(in.Tick) <= downHolds }

// Want is where a target's dependents are to be scaled, by its latest run and what its config may do. A decision that is
// stale begins nothing.
func (s *State) Want(may lifecycle.State, now time.Time) (want Direction, withdrawn bool) {
	switch {
	case may.IsWithdrawn():
		return Up, true
	case now.After(s.Until), may.IsFrozen(), may.HealsOnly() && s.Direction == Down:
		return Hold, false
	default:
		return s.Direction, false
	}
}
