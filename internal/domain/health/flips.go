package health

import (
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// flipsWithin is how close targets must turn False for one cause to be likely.
	flipsWithin = 5 * time.Minute
	// tooManyShare of a registration's targets, in percent, and tooManyLeast of them: more at once are hardly all sick, it is
	// more likely the checks, the network or us.
	tooManyShare, tooManyLeast = 20, 3
)

// Breaker is open: too many targets turned False together.
type Breaker struct {
	// ID names the opening; a reset must name it, so that a late one can't close a later opening.
	ID       string
	OpenedAt time.Time
	// Flipped of Targets turned False together. Zero when another process opened it.
	Flipped, Targets int
}

// Flips watches over one registration's targets turning False. The zero value is closed, and ready. Not safe for
// concurrent use.
type Flips struct {
	breaker *Breaker
	// at is when each condition last turned False, of those that did within flipsWithin.
	at map[turn]time.Time
	// reset is the ID of the opening that was reset last: until then what is in doubt is believed.
	reset string
	until time.Time
}

// turn is that of one condition of a target.
type turn struct{ target, conditionType string }

// MayFail says whether a condition of the target may be written False now, where it isn't so yet. It opens the breaker
// when this one would be one too many of targets, which is how many the registration has. While it is open nothing new
// turns False; what turns True goes on.
//
// Doubted says that the condition on the target is in doubt already. The targets themselves keep that over restarts, and only while
// their checks say nothing else.
func (f *Flips) MayFail(target, conditionType string, doubted bool, targets int, now time.Time) bool {
	if f.breaker != nil {
		return false
	}
	if doubted && now.Before(f.until) {
		return true
	}
	for t, at := range f.at {
		if now.Sub(at) >= flipsWithin {
			delete(f.at, t)
		}
	}
	if f.at == nil {
		f.at = map[turn]time.Time{}
	}
	f.at[turn{target, conditionType}] = now
	if n := f.flipped(); n >= tooManyLeast && n*100 > targets*tooManyShare {
		f.breaker = &Breaker{ID: idOf(now), OpenedAt: now, Flipped: n, Targets: targets}
		return false
	}
	return true
}

// idOf an opening begins with its time, so that they sort. It has microseconds: one outage opens several breakers within a second,
// whose resets may be written on one object, and a script resets one within the second in which it opens again.
func idOf(openedAt time.Time) string {
	return strings.ToLower(strings.Replace(openedAt.UTC().Format("20060102T150405.000000Z"), ".", "", 1))
}

// flipped counts the targets that turned False together.
func (f *Flips) flipped() int {
	targets := sets.New[string]()
	for is := range f.at {
		targets.Insert(is.target)
	}
	return targets.Len()
}

// Unwritten takes back that a condition turned False: the write failed.
func (f *Flips) Unwritten(target, conditionType string) {
	delete(f.at, turn{target, conditionType})
}

// Forget a target that is gone.
func (f *Flips) Forget(target string) {
	maps.DeleteFunc(f.at, func(is turn, _ time.Time) bool { return is.target == target })
}

// Breaker gives the one that is open; ok is false when it is closed.
func (f *Flips) Breaker() (b Breaker, ok bool) {
	if f.breaker == nil {
		return Breaker{}, false
	}
	return *f.breaker, true
}

// Restore takes over a breaker that another process opened, as a status tells. It only forbids. One that was reset here stays
// closed: what tells of it is old.
func (f *Flips) Restore(b Breaker) {
	if f.breaker == nil && b.ID != f.reset {
		f.breaker = &b
	}
}

// Reset closes the breaker of this ID: someone looked, and what is in doubt is believed for as long as a wave lasts, however many
// they are. Others count anew, and so does what recovers in between.
func (f *Flips) Reset(id string, now time.Time) (closed bool) {
	if f.breaker == nil || f.breaker.ID != id {
		return false
	}
	f.breaker = nil
	clear(f.at)
	f.reset, f.until = id, now.Add(flipsWithin)
	return true
}
