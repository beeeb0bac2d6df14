package probe

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"time"
)

const (
	// longestRetryAfter bounds what a server may ask for: an answer of "a day" would end probing for good.
	longestRetryAfter = 5 * time.Minute
)

// FirstRun is when a target is probed for the first time: after the initial delay, spread over one interval, so that a
// restart isn't a thundering herd. Seed is the target's.
func (c *Config) FirstRun(seed string, now time.Time) time.Time {
	return now.Add(c.InitialDelay + time.Duration(unit(seed, 0)*float64(c.Interval)))
}

// next is when the run after this one begins.
func (c *Config) next(s *State, r Run, seed string) time.Time {
	pause := c.jittered(c.Interval, seed, s.Runs)
	if s.Internal.Unhealthy(c.Thresholds) {
		pause = max(pause, c.jittered(c.Backoff, seed, s.Runs))
	}
	next := r.Started.Add(pause)
	for _, o := range r.outcomes() {
		if o.Class != TooManyRequests {
			continue
		}
		wait := c.jittered(c.Backoff, seed, s.Runs)
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
func (c *Config) jittered(d time.Duration, seed string, run uint64) time.Duration {
	return d + time.Duration(unit(seed, run+1)*c.Jitter*float64(d))
}

// unit is a number from 0 to less than 1 that follows from its arguments alone.
func unit(seed string, run uint64) float64 {
	h := fnv.New64a()
	h.Write([]byte(seed))
	h.Write(binary.LittleEndian.AppendUint64(nil, run))
	x := h.Sum64()
	x ^= x >> 33 // FNV's high bits hardly change with the last byte
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11) / math.Exp2(53)
}
