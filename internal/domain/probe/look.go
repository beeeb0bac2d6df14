package probe

import "time"

const (
	// soonestLook and latestLook bound how soon a flow that isn't done is looked at: nothing tells that an object reached its
	// scale.
	soonestLook = 500 * time.Millisecond
	latestLook  = 5 * time.Second
)

// Look is when to look at a flow again that isn't done. The longer a level takes, the more seldom: when many targets wait at
// once, most likely because the API server or its controllers are slow, they must not make these slower still.
func (p *Plan) Look(now time.Time) time.Time {
	pause := soonestLook
	if !p.Flow.Started.IsZero() && len(p.Acts) == 0 {
		pause = min(max(pause, now.Sub(p.Flow.Started)/2), latestLook)
	}
	at := now.Add(pause)
	if !p.LookAgain.IsZero() && p.LookAgain.Before(at) {
		return p.LookAgain
	}
	return at
}

func (p *Plan) lookAgain(at time.Time) {
	if p.LookAgain.IsZero() || at.Before(p.LookAgain) {
		p.LookAgain = at
	}
}
