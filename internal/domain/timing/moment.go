package timing

import "time"

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
