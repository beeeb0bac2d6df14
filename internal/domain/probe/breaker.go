package probe

import (
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// correlationWindow is how close targets break for one cause to be likely.
const correlationWindow = 2 * time.Minute

// breakerIDLayout is the form of an ID: when it opened.
const breakerIDLayout = "20060102t150405z"

// BreakerOpenedAt reads from its ID when a breaker opened; zero when that tells nothing.
func BreakerOpenedAt(id string) time.Time {
	at, err := time.Parse(breakerIDLayout, id)
	if err != nil {
		return time.Time{}
	}
	return at
}

// correlated says whether one cause may have broken both, for all that their runs saw. The times at which they turned
// unhealthy don't tell: who is probed more seldom turns later.
func correlated(a, b *member) bool {
	good, failed := a.lastHealthy, a.firstFailed
	if b.lastHealthy.After(good) {
		good = b.lastHealthy
	}
	if b.firstFailed.Before(failed) {
		failed = b.firstFailed
	}
	return good.Sub(failed) <= correlationWindow
}

// openIfCorrelated opens the breaker when too many that are unhealthy, and that nobody vouches for, broke together with one that just turned.
func (f *Fleet) openIfCorrelated(turned *member, now time.Time) (opened bool) {
	if f.breaker.Blocks() || !turned.counts() || turned.vouched {
		return false
	}
	broke := sets.New[string]()
	for _, m := range f.unhealthy {
		if m.counts() && !m.vouched && correlated(turned, m) {
			broke.Insert(m.namespace)
		}
	}
	if !f.limits.Suspects(broke.Len(), len(f.votes)) {
		return false
	}
	f.breaker.Open(limit.Opening{ID: now.UTC().Format(breakerIDLayout), OpenedAt: now, Turned: broke.Len(), Targets: len(f.votes)})
	f.openedHere, f.recoveredSince = true, time.Time{}
	return true
}

// closeOnceRecovered closes the breaker once, for as long as an API server must be healthy, at most half as many are unrecovered as would
// open it: what broke so many is over. Half, so that it isn't over because one of them was deleted. Unknown is no recovery.
func (f *Fleet) closeOnceRecovered(now time.Time) (closed bool) {
	open, ok := f.breaker.Opening()
	switch {
	case !ok, f.limits.Suspects(2*len(f.unrecovered), len(f.votes)), f.Complete != nil && !f.Complete():
		f.recoveredSince = time.Time{}
		return false
	case f.recoveredSince.IsZero():
		f.recoveredSince = now
	}
	if now.Sub(f.recoveredSince) < f.Timings.Settle() {
		return false
	}
	f.recoveredSince = time.Time{}
	return f.breaker.ResetBy(open.ID) && f.breaker.Close()
}

// Breaker gives the opening of the one that is open; ok is false when it is closed. It is one for all configs, because what makes many
// targets look broken at once, our network or our clock, makes those look so that are probed later, too.
func (f *Fleet) Breaker() (o limit.Opening, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.breaker.Opening()
}

// FollowBreaker takes over the opening that statuses name, nil for none: of an opening that another process saw they tell. What this process
// opened itself it knows better.
func (f *Fleet) FollowBreaker(named *limit.Opening) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.openedHere && f.breaker.Blocks() {
		return
	}
	if o, open := f.breaker.Opening(); open && (named == nil || named.ID != o.ID) {
		f.breaker.Follow(nil)
	}
	if named != nil {
		f.breaker.Restore(*named)
	}
	f.openedHere = false
}

// Reset closes the breaker of this ID: someone looked, and the targets that turned unhealthy are to be trusted.
func (f *Fleet) Reset(id string) (closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.breaker.ResetBy(id) {
		return false
	}
	clear(f.unhealthy) // so the wave is over
	return f.breaker.Close()
}
