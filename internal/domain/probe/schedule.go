package probe

import "time"

// longestRetryAfter bounds what a server may ask for: an answer of "a day" would end probing for good.
const longestRetryAfter = 5 * time.Minute

// FirstRun is when a target is probed for the first time: after the initial delay, spread over one interval, so that a
// restart isn't a thundering herd. Spread is from 0 to 1, and another one for each target.
func (c *Config) FirstRun(spread float64, now time.Time) time.Time {
	return now.Add(c.InitialDelay + time.Duration(spread*float64(c.Interval)))
}

// next is when the run after this one begins.
func (c *Config) next(s *State, r Run) time.Time {
	pause := c.Interval
	if s.Internal.Unhealthy(c.Thresholds) {
		pause = max(pause, c.Backoff)
	}
	next := r.Started.Add(c.jittered(pause, r))
	for _, o := range r.outcomes() {
		if o.Class != TooManyRequests {
			continue
		}
		wait := c.jittered(c.Backoff, r)
		if o.RetryAfter > 0 {
			wait = min(o.RetryAfter, longestRetryAfter)
		}
		if at := r.Ended.Add(wait); at.After(next) {
			next = at
		}
	}
	if next.Before(r.Ended) { // a slow run never overlaps the next
		return r.Ended
	}
	return next
}

// jittered is a duration made longer by up to the config's jitter.
func (c *Config) jittered(d time.Duration, r Run) time.Duration {
	return d + time.Duration(r.Spread*c.Jitter*float64(d))
}

// scaleDownTTL is how long a decision to scale down is acted upon. Runs may be hours apart, and what holds a target back may let
// go long after it.
const scaleDownTTL = time.Minute

// Fresh says whether the run that Want is from is recent enough to scale down by it. Else another must say the
// same first.
func (in *Scaling) Fresh() bool { return in.Now.Sub(in.DecidedAt) <= scaleDownTTL }

const (
	// minProgressCheck and maxProgressCheck bound how soon a flow that isn't done is looked at: nothing tells that an object reached its
	// scale.
	minProgressCheck = 500 * time.Millisecond
	maxProgressCheck = 5 * time.Second
	// blockedCheck is how soon is looked again at what nothing can be done about here: someone must give a right, or take an
	// annotation away.
	blockedCheck = 10 * time.Second
)

// NextCheck is when to look again once a plan was carried out; zero when the next run will tell.
func (p *Plan) NextCheck(in *Scaling) time.Time {
	waits := !p.Flow.StoppedAt.IsZero() || in.Want == Hold && !in.Withdrawn // for the next run
	switch {
	case p.restoresRemoved:
		return in.Now.Add(minProgressCheck)
	case !waits && (p.Named > 0 || !p.Done && !p.Blocked):
		return p.NextProgressCheck(in.Now)
	case p.Blocked, p.removedBlocked, len(p.Unrestored) > 0:
		return in.Now.Add(blockedCheck)
	}
	return time.Time{}
}

// NextProgressCheck is when to look at a flow again that isn't done. The longer a level takes, the more seldom: when many targets wait at
// once, most likely because the API server or its controllers are slow, they must not make these slower still.
func (p *Plan) NextProgressCheck(now time.Time) time.Time {
	pause := minProgressCheck
	if !p.Flow.Started.IsZero() && len(p.Acts) == 0 {
		pause = min(max(pause, now.Sub(p.Flow.Started)/2), maxProgressCheck)
	}
	at := now.Add(pause)
	if !p.RequeueAt.IsZero() && p.RequeueAt.Before(at) {
		return p.RequeueAt
	}
	return at
}

func (p *Plan) requeueAt(at time.Time) {
	if p.RequeueAt.IsZero() || at.Before(p.RequeueAt) {
		p.RequeueAt = at
	}
}
