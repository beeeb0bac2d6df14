package limit

import "time"

// Opening is one time at which a breaker opened.
type Opening struct {
	// ID names it; a reset must name it, so that a late one can't close a later opening.
	ID       string
	OpenedAt time.Time
	// Turned of Targets did so together. Zero when another process opened it.
	Turned, Targets int
	// Reset: a person, or recovery where the kind has that, allowed what was blocked. The leader closes the breaker once fewer targets match.
	Reset bool
}

// Breaker blocks new acts once more targets turned together than is plausible: the cause is then more likely a reporter, the
// network or us. It only forbids, and only a person lets go, or the kind itself, once it knows better:
//
//	closed ── Open ──► open ── ResetBy ──► reset ── Close, as soon as the kind says that the wave is over ──► closed
//
// Falling numbers alone close none that is open: what comes back may be the same reporter. The zero value is closed. Not safe for
// concurrent use.
type Breaker struct {
	opening *Opening
	// reset is the ID of the opening that was reset last.
	reset string
}

// Blocks says whether new acts are blocked.
func (b *Breaker) Blocks() bool { return b.opening != nil && !b.opening.Reset }

// Opening gives the one that isn't closed; ok is false when there is none.
func (b *Breaker) Opening() (o Opening, ok bool) {
	if b.opening == nil {
		return Opening{}, false
	}
	return *b.opening, true
}

// Open opens it. One that was reset is another opening from now on.
func (b *Breaker) Open(o Opening) { b.opening = &o }

// Restore takes over another process's opening from a status, where this process has none. One that was reset here stays
// closed, and so does an earlier one: that status is outdated. IDs are in the order of time.
func (b *Breaker) Restore(o Opening) {
	if b.opening == nil && o.ID > b.reset {
		b.opening = &o
	}
}

// Follow takes in what the process that counts knows, nil for closed. It says whether that is something else than before.
func (b *Breaker) Follow(stored *Opening) (changed bool) {
	was, is := b.opening, stored
	b.opening = stored
	return was != is && (was == nil || is == nil || was.ID != is.ID || was.Reset != is.Reset)
}

// ResetBy allows what the opening of this ID blocks.
func (b *Breaker) ResetBy(id string) (reset bool) {
	if !b.Blocks() || b.opening.ID != id {
		return false
	}
	was := *b.opening
	was.Reset = true
	b.opening, b.reset = &was, id
	return true
}

// Close closes it if it was reset.
func (b *Breaker) Close() (closed bool) {
	if b.opening == nil || !b.opening.Reset {
		return false
	}
	b.opening = nil
	return true
}
