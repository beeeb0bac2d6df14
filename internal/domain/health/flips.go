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
	// doubted is what isn't believed while it is open, believed what was in doubt at its reset: until then.
	doubted, believed map[turn]bool
	until             time.Time
}

// turn is that of one condition of a target.
type turn struct{ target, conditionType string }

// MayFail says whether a condition of the target may be written False now, where it isn't so yet. It opens the breaker
// when this one would be one too many of targets, which is how many the registration has. While it is open nothing new
// turns False; what turns True goes on.
func (f *Flips) MayFail(target, conditionType string, targets int, now time.Time) bool {
	is := turn{target, conditionType}
	if f.breaker != nil {
		f.doubt(is)
		return false
	}
	if f.believed[is] && now.Before(f.until) {
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
	f.at[is] = now
	if n := f.flipped(); n >= tooManyLeast && n*100 > targets*tooManyShare {
		f.breaker = &Breaker{ID: strings.ToLower(now.UTC().Format("20060102T150405Z")), OpenedAt: now, Flipped: n, Targets: targets}
		f.doubt(is)
		return false
	}
	return true
}

// flipped counts the targets that turned False together.
func (f *Flips) flipped() int {
	targets := sets.New[string]()
	for is := range f.at {
		targets.Insert(is.target)
	}
	return targets.Len()
}

func (f *Flips) doubt(is turn) {
	if f.doubted == nil {
		f.doubted = map[turn]bool{}
	}
	f.doubted[is] = true
}

// Recovered takes in that the checks of a condition don't say False, or no longer: it isn't in doubt, and when it turns False the next
// time it counts anew.
func (f *Flips) Recovered(target, conditionType string) {
	is := turn{target, conditionType}
	delete(f.doubted, is)
	delete(f.believed, is)
}

// Unwritten takes back that a condition turned False: the write failed. What is believed of it still is.
func (f *Flips) Unwritten(target, conditionType string) {
	delete(f.at, turn{target, conditionType})
}

// Forget a target that is gone.
func (f *Flips) Forget(target string) {
	maps.DeleteFunc(f.at, func(is turn, _ time.Time) bool { return is.target == target })
	maps.DeleteFunc(f.doubted, func(is turn, _ bool) bool { return is.target == target })
}

// Breaker gives the one that is open; ok is false when it is closed.
func (f *Flips) Breaker() (b Breaker, ok bool) {
	if f.breaker == nil {
		return Breaker{}, false
	}
	return *f.breaker, true
}

// Restore takes over a breaker that another process opened, as a status tells. It only forbids.
func (f *Flips) Restore(b Breaker) {
	if f.breaker == nil {
		f.breaker = &b
	}
}

// Reset closes the breaker of this ID: someone looked, and what is in doubt then is believed for as long as a wave lasts, however
// many they are, unless it recovers. Others count anew.
func (f *Flips) Reset(id string, now time.Time) (closed bool) {
	if f.breaker == nil || f.breaker.ID != id {
		return false
	}
	f.breaker = nil
	clear(f.at)
	f.believed, f.doubted, f.until = f.doubted, nil, now.Add(flipsWithin)
	return true
}
