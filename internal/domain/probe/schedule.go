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
