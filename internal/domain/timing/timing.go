// Package timing has the durations that Autohealer waits by itself: no field of a policy and no flag sets them. Those are here that
// end-to-end tests wait for; a manager of theirs, e2e/manager, runs with a part of each. Moment is what time it is, by both clocks
// that decisions compare.
package timing

import "time"

// Timings are these durations. The zero value is production's.
type Timings struct {
	divisor int // 0: production's
}

// Divided are production's durations divided by a number above 0, for tests. Clocks run as always: the API server's, kubelets' and
// Envoys' times are real.
func Divided(by int) Timings { return Timings{divisor: by} }

// Production says that these are production's.
func (t Timings) Production() bool { return t.divisor <= 1 }

func (t Timings) of(production time.Duration) time.Duration {
	if t.Production() {
		return production
	}
	return production / time.Duration(t.divisor)
}

// Settle is how long an API server must be healthy before what was scaled down is scaled up.
func (t Timings) Settle() time.Duration { return t.of(time.Minute) }

// ScaleUpWindow is the time in which so many targets may begin to be scaled up, and no more.
func (t Timings) ScaleUpWindow() time.Duration { return t.of(time.Minute) }

// MaxWatchSilence is for how long a silent watch is trusted, and a live read. A watch can fail silently.
func (t Timings) MaxWatchSilence() time.Duration { return t.of(20 * time.Second) }

// Orphan lies between the two live reads that make a record an orphan: one alone could come from an API server that is behind, or
// from a restore under way.
func (t Timings) Orphan() time.Duration { return t.of(time.Minute) }

// TargetTimeout bounds one look at a ProbeConfig's target, whatever it waits for: the manager's requests end by themselves, but later,
// and one after the other. A look waits for nothing but answers; what is cut short goes on with the next, by what is stored. Others'
// admission webhooks may take 30 s over a write, and one so slow must come about all the same.
func (t Timings) TargetTimeout() time.Duration { return t.of(40 * time.Second) }

// Request bounds one request of the manager. An API server gives up a request itself after a minute, so that none is cut short which
// it would still answer.
func (t Timings) Request() time.Duration { return t.of(70 * time.Second) }

// Moment is the time of a decision, by both clocks.
type Moment struct {
	// Now by our own clock.
	Now time.Time
	// Server is the API server's clock at that moment, from its Date header; zero while unknown.
	Server time.Time
}

// ServerNow is the API server's clock, or ours until it is known.
func (m Moment) ServerNow() time.Time {
	if m.Server.IsZero() {
		return m.Now
	}
	return m.Server
}

// AheadBy is by how much our clock is ahead of the API server's.
func (m Moment) AheadBy() time.Duration { return m.Now.Sub(m.ServerNow()) }

// FromServer is a time of the API server's clock, as a status has it, by our own.
func (m Moment) FromServer(stored time.Time) time.Time { return stored.Add(m.AheadBy()) }

// ToServer is the reverse of FromServer.
func (m Moment) ToServer(own time.Time) time.Time { return own.Add(-m.AheadBy()) }

// LatestFromServer is the latest moment, by our clock, that a status's time may mean: its times are cut to seconds, and what they count for
// must not end early.
func (m Moment) LatestFromServer(stored time.Time) time.Time {
	return Earlier(m.Now, m.FromServer(stored).Add(time.Second))
}

// Earlier is the earlier of two times; where a is zero, there is only b.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// Later is the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
