package probe

import "time"

// Counts are what the latest runs of one probe add up to. The zero value is a probe that never ran.
type Counts struct {
	// Successes and Errors in a row; one of them is always 0.
	Successes, Errors int
	// CountedAt is when the latest result was counted.
	CountedAt time.Time
	// LastFailure is the class of the latest run that counted as an error.
	LastFailure Class
	// InconclusiveSince is since when no result was counted although the probe ran; zero when the latest was.
	InconclusiveSince time.Time
	// UntrustedSince is since when the server's certificate wasn't trusted, with no success since; else zero.
	UntrustedSince time.Time
	// LastError is the class of the latest run that didn't succeed, and LastErrorAt when that was; "" when there was none.
	LastError   Class
	LastErrorAt time.Time
}

// minResultTTL is how long counted results stand for the present, or twice the pause between runs where that is longer.
// After a longer one, as when nothing could be counted for a while, three failures of which two are old would be taken for three
// in a row.
const minResultTTL = 5 * time.Minute

func (t Thresholds) resultTTL() time.Duration { return max(minResultTTL, 2*t.RunPeriod) }

// rotationGrace is for how long a certificate that isn't trusted counts nothing: the kubeconfig follows one that is rotated.
const rotationGrace = 5 * time.Minute

// Result is what a run is after those before it.
func (c Counts) Result(o Outcome, now time.Time) Result {
	if o.Class == Untrusted && (c.UntrustedSince.IsZero() || now.Sub(c.UntrustedSince) < rotationGrace) {
		return Transient
	}
	return o.Result()
}

// After gives the counts after a run. Transient and Unknown leave them as they are but for the last error.
func (c Counts) After(o Outcome, t Thresholds, now time.Time) Counts {
	result := c.Result(o, now)
	if o.Class == Untrusted && c.UntrustedSince.IsZero() {
		c.UntrustedSince = now
	}
	if result != Success {
		c.LastError, c.LastErrorAt = o.Class, now
	}
	switch result {
	case Success:
		c.Successes, c.Errors = min(c.Successes+1, t.Success), 0
		c.CountedAt, c.InconclusiveSince, c.UntrustedSince = now, time.Time{}, time.Time{}
	case Failure:
		if now.Sub(c.CountedAt) > t.resultTTL() {
			c.Errors = 0
		}
		c.Successes, c.Errors, c.LastFailure = 0, min(c.Errors+1, t.Failure), o.Class
		c.CountedAt, c.InconclusiveSince = now, time.Time{}
	case Transient, Unknown:
		if c.InconclusiveSince.IsZero() {
			c.InconclusiveSince = now
		}
	}
	return c
}

// undeterminedSince is since when nothing was counted, if that is so long ago that what was doesn't stand for the present any more;
// else zero.
func (c Counts) undeterminedSince(t Thresholds, now time.Time) time.Time {
	if c.InconclusiveSince.IsZero() || now.Sub(c.InconclusiveSince) <= t.resultTTL() {
		return time.Time{}
	}
	return c.InconclusiveSince
}

// Healthy says whether the threshold of successes is reached.
func (c Counts) Healthy(t Thresholds) bool { return c.Successes >= t.Success }

// Unhealthy says whether the threshold of failures is reached.
func (c Counts) Unhealthy(t Thresholds) bool { return c.Errors >= t.Failure }

// reset keeps the last error, for people, and counts from anew.
func (c Counts) reset() Counts {
	return Counts{LastError: c.LastError, LastErrorAt: c.LastErrorAt, UntrustedSince: c.UntrustedSince}
}
