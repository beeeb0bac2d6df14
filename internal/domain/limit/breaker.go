package limit

import "time"

// Opening is one time at which a breaker opened.
type Opening struct {
	// ID names it; a reset must name it, so that a late one can't close a later opening.
	ID       string
	OpenedAt time.Time
	// Turned of Targets did so together. Zero when another process opened it.
	Turned, Targets int
	// Reset: someone looked, and what is held back may be believed. Whoever counts closes it when the wave is over.
	Reset bool
}

// Breaker holds new acts back once more targets turned together than can be believed: the cause is then more likely a reporter, the
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

// Holds says whether new acts are held back.
func (b *Breaker) Holds() bool { return b.opening != nil && !b.opening.Reset }

// Opening gives the one that isn't closed; ok is false when there is none.
func (b *Breaker) Opening() (o Opening, ok bool) {
	if b.opening == nil {
		return Opening{}, false
	}
	return *b.opening, true
}

// Open opens it. One that was reset is another opening from now on.
func (b *Breaker) Open(o Opening) { b.opening = &o }

// Restore takes over an opening of another process, as a status tells, where this one knows of none. One that was reset here stays
// closed, and so does an earlier one: what tells of it is old. IDs are in the order of time.
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

// ResetBy lets go what the opening of this ID holds back.
func (b *Breaker) ResetBy(id string) (reset bool) {
	if !b.Holds() || b.opening.ID != id {
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
