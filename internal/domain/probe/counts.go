package probe

import "time"

// Counts are what the latest runs of one probe add up to. The zero value is a probe that never ran.
type Counts struct {
	// Successes and Errors in a row; one of them is always 0.
	Successes, Errors int
	// Counted is when the latest result was counted.
	Counted time.Time
	// LastFailure is the class of the latest run that counted as an error.
	LastFailure Class
	// Unclear is since when no result was counted although the probe ran; zero when the latest was.
	Unclear time.Time
	// Untrusted is since when the server's certificate wasn't trusted, with no success since; else zero.
	Untrusted time.Time
	// LastError is the class of the latest run that didn't succeed, and LastErrorAt when that was; "" when there was none.
	LastError   Class
	LastErrorAt time.Time
}

// leastEvidenceHolds is how long counted results stand for the present, or twice the pause between runs where that is longer.
// After a longer one, as when nothing could be counted for a while, three failures of which two are old would be taken for three
// in a row.
const leastEvidenceHolds = 5 * time.Minute

func (t Thresholds) evidenceHolds() time.Duration { return max(leastEvidenceHolds, 2*t.Pause) }

// rotationTakes is for how long a certificate that isn't trusted counts nothing: the kubeconfig follows one that is rotated.
const rotationTakes = 5 * time.Minute

// Result is what a run is after those before it.
func (c Counts) Result(o Outcome, now time.Time) Result {
	if o.Class == Untrusted && (c.Untrusted.IsZero() || now.Sub(c.Untrusted) < rotationTakes) {
		return Transient
	}
	return o.Result()
}

// After gives the counts after a run. Transient and Unknown leave them as they are but for the last error.
func (c Counts) After(o Outcome, t Thresholds, now time.Time) Counts {
	result := c.Result(o, now)
	if o.Class == Untrusted && c.Untrusted.IsZero() {
		c.Untrusted = now
	}
	if result != Success {
		c.LastError, c.LastErrorAt = o.Class, now
	}
	switch result {
	case Success:
		c.Successes, c.Errors = min(c.Successes+1, t.Success), 0
		c.Counted, c.Unclear, c.Untrusted = now, time.Time{}, time.Time{}
	case Failure:
		if now.Sub(c.Counted) > t.evidenceHolds() {
			c.Errors = 0
		}
		c.Successes, c.Errors, c.LastFailure = 0, min(c.Errors+1, t.Failure), o.Class
		c.Counted, c.Unclear = now, time.Time{}
	case Transient, Unknown:
		if c.Unclear.IsZero() {
			c.Unclear = now
		}
	}
	return c
}

// undetermined is since when nothing was counted, if that is so long ago that what was doesn't stand for the present any more;
// else zero.
func (c Counts) undetermined(t Thresholds, now time.Time) time.Time {
	if c.Unclear.IsZero() || now.Sub(c.Unclear) <= t.evidenceHolds() {
		return time.Time{}
	}
	return c.Unclear
}

// Healthy says whether the threshold of successes is reached.
func (c Counts) Healthy(t Thresholds) bool { return c.Successes >= t.Success }

// Unhealthy says whether the threshold of failures is reached.
func (c Counts) Unhealthy(t Thresholds) bool { return c.Errors >= t.Failure }

// forget keeps the last error, for people, and counts from anew.
func (c Counts) forget() Counts {
	return Counts{LastError: c.LastError, LastErrorAt: c.LastErrorAt, Untrusted: c.Untrusted}
}
