package probe

import (
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// togetherWithin is how close targets break for one cause to be likely.
const togetherWithin = 2 * time.Minute

// Breaker is open: too many targets turned unhealthy together. It is one for all configs, because what makes many targets
// look broken at once, our network or our clock, makes those look so that are probed later, too.
type Breaker struct {
	// ID names the opening; a reset must name it, so that a late one can't close a later opening.
	ID       string
	OpenedAt time.Time
	// Unhealthy of Probed namespaces broke together when it opened. Zero when another process opened it.
	Unhealthy, Probed int
}

// breakerID is the form of an ID: when it opened.
const breakerID = "20060102t150405z"

// BreakerOpenedAt reads from its ID when a breaker opened; zero when that tells nothing.
func BreakerOpenedAt(id string) time.Time {
	at, err := time.Parse(breakerID, id)
	if err != nil {
		return time.Time{}
	}
	return at
}

// together says whether one cause may have broken both, for all that their runs saw. The times at which they turned
// unhealthy don't tell: who is probed more seldom turns later.
func together(a, b *member) bool {
	good, failed := a.good, a.failed
	if b.good.After(good) {
		good = b.good
	}
	if b.failed.Before(failed) {
		failed = b.failed
	}
	return good.Sub(failed) <= togetherWithin
}

// suspect opens the breaker when too many that are unhealthy broke together with one that just turned.
func (f *Fleet) suspect(turned *member, now time.Time) (opened bool) {
	if f.breaker != nil || !turned.acting {
		return false
	}
	broke := sets.New[string]()
	for _, m := range f.unhealthy {
		if m.acting && together(turned, m) {
			broke.Insert(m.namespace)
		}
	}
	if !f.limits.Suspects(broke.Len(), len(f.votes)) {
		return false
	}
	f.breaker = &Breaker{ID: now.UTC().Format(breakerID), OpenedAt: now, Unhealthy: broke.Len(), Probed: len(f.votes)}
	return true
}

// Breaker gives the one that is open; ok is false when it is closed.
func (f *Fleet) Breaker() (b Breaker, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.breaker == nil {
		return Breaker{}, false
	}
	return *f.breaker, true
}

// RestoreBreaker takes over one that another process opened, as a status tells. It only forbids.
func (f *Fleet) RestoreBreaker(b Breaker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.breaker == nil {
		f.breaker = &b
	}
}

// Reset closes the breaker of this ID: someone looked, and the targets that turned unhealthy are to be believed.
func (f *Fleet) Reset(id string) (closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.breaker == nil || f.breaker.ID != id {
		return false
	}
	f.breaker = nil
	clear(f.unhealthy)
	return true
}
