package health

import (
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/internal/domain/limit"
)

const (
	// flipsWithin is how close targets must turn False for one cause to be likely.
	flipsWithin = 5 * time.Minute
	// tooManyShare of a registration's targets, in percent, and tooManyLeast of them: more at once are hardly all sick, it is
	// more likely the checks, the network or us.
	tooManyShare, tooManyLeast = 20, 3
)

// Flips watches over one registration's targets turning False. The zero value is closed, and ready. It is safe for concurrent use.
type Flips struct {
	counting sync.Mutex // held while targets are counted, which may take as long as a look at one
	targets  int        // needs counting, as both below
	counted  time.Time  // zero before the first
	of       int64      // generation

	mu      sync.Mutex
	breaker limit.Breaker // needs mu, as all below
	// restored: another process opened it.
	restored bool
	// doubted are the condition types that it holds back, by target.
	doubted map[string]sets.Set[string]
	// decides are the condition types that the registration decides; nil for all.
	decides sets.Set[string]
	// at is when each condition last turned False, of those that did within flipsWithin.
	at map[turn]time.Time
	// until then what was in doubt is believed, since the breaker was reset.
	until time.Time
}

// turn is that of one condition of a target.
type turn struct{ target, conditionType string }

// Targets gives how many targets the registration has in a generation, or had no longer than a while ago: when many turn False at once
// each asks. Another generation may select others, and while looks for the one before go on both are asked for.
func (f *Flips) Targets(generation int64, while time.Duration, count func() int, now time.Time) int {
	f.counting.Lock()
	defer f.counting.Unlock()
	if age := now.Sub(f.counted); f.counted.IsZero() || f.of != generation || age < 0 || age >= while {
		f.targets, f.counted, f.of = count(), now, generation
	}
	return f.targets
}

// MayFail says whether a condition of the target may be written False now, where it isn't so yet. It opens the breaker
// when this one would be one too many of targets, which is how many the registration has. While it is open nothing new
// turns False; what turns True goes on.
//
// Doubted says that the condition on the target is in doubt already. The targets themselves keep that over restarts, and only while
// their checks say nothing else.
func (f *Flips) MayFail(target, conditionType string, doubted bool, targets int, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.breaker.Blocks() {
		f.doubt(target, conditionType)
		return false
	}
	if doubted && now.Before(f.until) {
		return true
	}
	f.expire(now)
	if f.at == nil {
		f.at = map[turn]time.Time{}
	}
	f.at[turn{target, conditionType}] = now
	if n := f.flipped(); n >= tooManyLeast && n*100 > targets*tooManyShare {
		f.breaker.Open(limit.Opening{ID: idOf(now), OpenedAt: now, Turned: n, Targets: targets})
		f.restored = false
		delete(f.at, turn{target, conditionType}) // it isn't written
		f.doubt(target, conditionType)
		return false
	}
	return true
}

// doubt needs f.mu. A look that began before the registration changed may tell of what it doesn't decide any more, and nobody would take that back.
func (f *Flips) doubt(target, conditionType string) {
	if f.decides != nil && !f.decides.Has(conditionType) {
		return
	}
	if f.doubted == nil {
		f.doubted = map[string]sets.Set[string]{}
	}
	if f.doubted[target] == nil {
		f.doubted[target] = sets.New[string]()
	}
	f.doubted[target].Insert(conditionType)
}

// Judged takes in what a condition of the target came to. It isn't in doubt any more once it is True, or False and believed: that nobody knows
// how it is, or that it progresses, says nothing. What is in doubt by an opening of this process MayFail has taken in. Released says that it
// was in doubt.
func (f *Flips) Judged(target, conditionType string, v Verdict) (released bool) {
	switch {
	case v.InDoubt():
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.restored && f.breaker.Blocks() {
			f.doubt(target, conditionType)
		}
	case v.Status == True, v.Status == False:
		return f.Release(target, conditionType)
	}
	return false
}

// Release takes in that a condition of the target isn't held back by this breaker, whatever becomes of it, and says whether it was.
func (f *Flips) Release(target, conditionType string) (released bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	released = f.doubted[target].Has(conditionType)
	if f.doubted[target].Delete(conditionType).Len() == 0 {
		delete(f.doubted, target)
	}
	return released
}

// Decides takes in which condition types the registration decides now. What was in doubt of others is nobody's any more.
func (f *Flips) Decides(conditionTypes sets.Set[string]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decides = conditionTypes
	for target, doubted := range f.doubted {
		if f.doubted[target] = doubted.Intersection(conditionTypes); f.doubted[target].Len() == 0 {
			delete(f.doubted, target)
		}
	}
}

// idOf an opening begins with its time, so that they sort. It has microseconds: one outage opens several breakers within a second,
// whose resets may be written on one object, and a script resets one within the second in which it opens again.
func idOf(openedAt time.Time) string {
	return strings.ToLower(strings.Replace(openedAt.UTC().Format("20060102T150405.000000Z"), ".", "", 1))
}

// flipped counts the targets that turned False together. It needs f.mu.
func (f *Flips) flipped() int {
	targets := sets.New[string]()
	for is := range f.at {
		targets.Insert(is.target)
	}
	return targets.Len()
}

// Unwritten takes back that conditions turned False: the write failed.
func (f *Flips) Unwritten(target string, conditionTypes ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conditionType := range conditionTypes {
		delete(f.at, turn{target, conditionType})
	}
}

// Forget a target that is gone. That it turned False counts on: what becomes of it gives no new allowance. Released says that something of it was
// in doubt.
func (f *Flips) Forget(target string) (released bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	released = len(f.doubted[target]) > 0
	delete(f.doubted, target)
	return released
}

// Inherit counts what turned False under a registration of the same name before: one that is made anew has no new allowance.
func (f *Flips) Inherit(from *Flips) {
	from.mu.Lock()
	at := maps.Clone(from.at)
	from.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = at
}

// Counts says whether anything turned False so lately that it still does.
func (f *Flips) Counts(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire(now)
	return len(f.at) > 0
}

// expire needs f.mu.
func (f *Flips) expire(now time.Time) {
	maps.DeleteFunc(f.at, func(_ turn, at time.Time) bool { return now.Sub(at) >= flipsWithin })
}

// Breaker gives the opening of the one that is open; ok is false when it is closed.
func (f *Flips) Breaker() (o limit.Opening, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.breaker.Opening()
}

// Restore takes over the breaker that a status tells of, nil for none: another process opened it, and may have closed it since. What this one
// opened, or holds something back by, it knows better.
func (f *Flips) Restore(stored *limit.Opening) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now, open := f.breaker.Opening(); f.restored && open && len(f.doubted) == 0 && (stored == nil || stored.ID != now.ID) {
		f.breaker.Follow(nil)
	}
	if _, open := f.breaker.Opening(); open || stored == nil {
		return
	}
	f.breaker.Restore(*stored)
	_, f.restored = f.breaker.Opening()
}

// CloseIfOver closes the breaker if all that it held back was judged otherwise since, or is gone. What another process held back must
// have been Judged before.
func (f *Flips) CloseIfOver() (closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, open := f.breaker.Opening()
	return open && len(f.doubted) == 0 && f.breaker.ResetBy(o.ID) && f.breaker.Close()
}

// Reset closes the breaker of this ID: someone looked, and what is in doubt is believed for as long as a wave lasts, however many
// they are. Others count anew, and so does what recovers in between.
func (f *Flips) Reset(id string, now time.Time) (closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.breaker.ResetBy(id) {
		return false
	}
	clear(f.at)
	clear(f.doubted)
	f.until = now.Add(flipsWithin)
	return f.breaker.Close()
}
