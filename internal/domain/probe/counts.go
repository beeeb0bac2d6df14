package probe

import "time"

// Counts are what the latest runs of one probe add up to. The zero value is a probe that never ran.
type Counts struct {
	// Successes and Errors in a row; one of them is always 0.
	Successes, Errors int
	// Counted is when the latest result was counted.
	Counted time.Time
	// LastError is the class of the latest run that didn't succeed, and LastErrorAt when that was; "" when there was none.
	LastError   Class
	LastErrorAt time.Time
}

// evidenceHolds is how long counted failures stand for the present, or twice the pause between runs where that is longer. After
// a longer one, as when nothing could be counted for a while, three failures of which two are old would be taken for three in a
// row.
const evidenceHolds = 5 * time.Minute

// After gives the counts after a run. Transient and Unknown leave them as they are but for the last error.
func (c Counts) After(o Outcome, t Thresholds, now time.Time) Counts {
	result := o.Result()
	if result != Success {
		c.LastError, c.LastErrorAt = o.Class, now
	}
	switch result {
	case Success:
		c.Successes, c.Errors = min(c.Successes+1, t.Success), 0
		c.Counted = now
	case Failure:
		if now.Sub(c.Counted) > max(evidenceHolds, 2*t.Pause) {
			c.Errors = 0
		}
		c.Successes, c.Errors = 0, min(c.Errors+1, t.Failure)
		c.Counted = now
	case Transient, Unknown:
	}
	return c
}

// Healthy says whether the threshold of successes is reached.
func (c Counts) Healthy(t Thresholds) bool { return c.Successes >= t.Success }

// Unhealthy says whether the threshold of failures is reached.
func (c Counts) Unhealthy(t Thresholds) bool { return c.Errors >= t.Failure }

// forget keeps the last error, for people, and counts from anew.
func (c Counts) forget() Counts { return Counts{LastError: c.LastError, LastErrorAt: c.LastErrorAt} }
