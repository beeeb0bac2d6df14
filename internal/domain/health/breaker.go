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
	// correlationWindow is how close targets must turn False for one cause to be likely.
	correlationWindow = 5 * time.Minute
	// maxSharePercent of a registration's targets, in percent, and minTogether of them: more at once are hardly all sick, it is
	// more likely the checks, the network or us.
	maxSharePercent, minTogether = 20, 3
)

// Breaker holds back conditions that turn False on too many of one registration's targets at once. The zero value is closed, and ready. It is safe for concurrent use.
type Breaker struct {
	countMu           sync.Mutex // held while targets are counted, which may take as long as a look at one
	targets           int        // needs counting, as both below
	countedAt         time.Time  // zero before the first
	countedGeneration int64      // generation

	mu      sync.Mutex
	breaker limit.Breaker // needs mu, as all below
	// restored: another process opened it.
	restored bool
	// heldBack are the condition types that it holds back, by target.
	heldBack map[string]sets.Set[string]
	// conditionTypes are the condition types that the registration decides; nil for all.
	conditionTypes sets.Set[string]
	// turnedFalse is when each condition last turned False, of those that did within correlationWindow.
	turnedFalse map[conditionKey]time.Time
	// trustedUntil then what was in doubt is trusted, since the breaker was reset.
	trustedUntil time.Time
}

// conditionKey is that of one condition of a target.
type conditionKey struct{ target, conditionType string }

// TargetCount gives how many targets the registration has in a generation, or had no longer than a while ago: when many turn False at once
// each asks. Another generation may select others, and while looks for the one before go on both are asked for.
func (f *Breaker) TargetCount(generation int64, while time.Duration, count func() int, now time.Time) int {
	f.countMu.Lock()
	defer f.countMu.Unlock()
	if age := now.Sub(f.countedAt); f.countedAt.IsZero() || f.countedGeneration != generation || age < 0 || age >= while {
		f.targets, f.countedAt, f.countedGeneration = count(), now, generation
	}
	return f.targets
}

// AllowFalse says whether a condition of the target may be written False now, where it isn't so yet. It opens the breaker
// when this one would be one too many of targets, which is how many the registration has. While it is open nothing new
// turns False; what turns True goes on.
//
// Doubted says that the condition on the target is in doubt already. The targets themselves keep that over restarts, and only while
// their checks say nothing else.
func (f *Breaker) AllowFalse(target, conditionType string, doubted bool, targets int, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.breaker.Blocks() {
		f.holdBack(target, conditionType)
		return false
	}
	if doubted && now.Before(f.trustedUntil) {
		return true
	}
	f.expire(now)
	if f.turnedFalse == nil {
		f.turnedFalse = map[conditionKey]time.Time{}
	}
	f.turnedFalse[conditionKey{target, conditionType}] = now
	if n := f.targetsTurnedFalse(); n >= minTogether && n*100 > targets*maxSharePercent {
		f.breaker.Open(limit.Opening{ID: openingID(now), OpenedAt: now, Turned: n, Targets: targets})
		f.restored = false
		delete(f.turnedFalse, conditionKey{target, conditionType}) // it isn't written
		f.holdBack(target, conditionType)
		return false
	}
	return true
}

// holdBack needs f.mu. An evaluation that began before the registration changed may report what it doesn't decide any more, and nothing would undo that.
func (f *Breaker) holdBack(target, conditionType string) {
	if f.conditionTypes != nil && !f.conditionTypes.Has(conditionType) {
		return
	}
	if f.heldBack == nil {
		f.heldBack = map[string]sets.Set[string]{}
	}
	if f.heldBack[target] == nil {
		f.heldBack[target] = sets.New[string]()
	}
	f.heldBack[target].Insert(conditionType)
}

// RecordVerdict takes in what a condition of the target came to. It isn't in doubt any more once it is True, or False and trusted: that nobody knows
// how it is, or that it progresses, says nothing. What is in doubt by an opening of this process AllowFalse has taken in. Released says that it
// was in doubt.
func (f *Breaker) RecordVerdict(target, conditionType string, v Verdict) (released bool) {
	switch {
	case v.InDoubt():
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.restored && f.breaker.Blocks() {
			f.holdBack(target, conditionType)
		}
	case v.Status == True, v.Status == False:
		return f.Release(target, conditionType)
	}
	return false
}

// Release takes in that a condition of the target isn't held back by this breaker, whatever becomes of it, and says whether it was.
func (f *Breaker) Release(target, conditionType string) (released bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	released = f.heldBack[target].Has(conditionType)
	if f.heldBack[target].Delete(conditionType).Len() == 0 {
		delete(f.heldBack, target)
	}
	return released
}

// SetConditionTypes takes in which condition types the registration decides now. What was in doubt of others is nobody's any more.
func (f *Breaker) SetConditionTypes(conditionTypes sets.Set[string]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conditionTypes = conditionTypes
	for target, doubted := range f.heldBack {
		if f.heldBack[target] = doubted.Intersection(conditionTypes); f.heldBack[target].Len() == 0 {
			delete(f.heldBack, target)
		}
	}
}

// openingID an opening begins with its time, so that they sort. It has microseconds: one outage opens several breakers within a second,
// whose resets may be written on one object, and a script resets one within the second in which it opens again.
func openingID(openedAt time.Time) string {
	return strings.ToLower(strings.Replace(openedAt.UTC().Format("20060102T150405.000000Z"), ".", "", 1))
}

// targetsTurnedFalse counts the targets that turned False together. It needs f.mu.
func (f *Breaker) targetsTurnedFalse() int {
	targets := sets.New[string]()
	for is := range f.turnedFalse {
		targets.Insert(is.target)
	}
	return targets.Len()
}

// RevertFalse takes back that conditions turned False: the write failed.
func (f *Breaker) RevertFalse(target string, conditionTypes ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conditionType := range conditionTypes {
		delete(f.turnedFalse, conditionKey{target, conditionType})
	}
}

// Forget a target that is gone. That it turned False counts on: what becomes of it gives no new allowance. Released says that something of it was
// in doubt.
func (f *Breaker) Forget(target string) (released bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	released = len(f.heldBack[target]) > 0
	delete(f.heldBack, target)
	return released
}

// Inherit counts what turned False under a registration of the same name before: one that is made anew has no new allowance.
func (f *Breaker) Inherit(from *Breaker) {
	from.mu.Lock()
	at := maps.Clone(from.turnedFalse)
	from.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turnedFalse = at
}

// HasRecent says whether anything turned False so lately that it still does.
func (f *Breaker) HasRecent(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire(now)
	return len(f.turnedFalse) > 0
}

// expire needs f.mu.
func (f *Breaker) expire(now time.Time) {
	maps.DeleteFunc(f.turnedFalse, func(_ conditionKey, at time.Time) bool { return now.Sub(at) >= correlationWindow })
}

// Opening gives the opening of the one that is open; ok is false when it is closed.
func (f *Breaker) Opening() (o limit.Opening, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.breaker.Opening()
}

// Restore takes over the breaker that a status reports, nil for none: another process opened it, and may have closed it since. What this one
// opened, or holds something back by, it knows better.
func (f *Breaker) Restore(stored *limit.Opening) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now, open := f.breaker.Opening(); f.restored && open && len(f.heldBack) == 0 && (stored == nil || stored.ID != now.ID) {
		f.breaker.Follow(nil)
	}
	if _, open := f.breaker.Opening(); open || stored == nil {
		return
	}
	f.breaker.Restore(*stored)
	_, f.restored = f.breaker.Opening()
}

// CloseIfClear closes the breaker if all that it held back was judged otherwise since, or is gone. What another process held back must
// have been recorded (RecordVerdict) before.
func (f *Breaker) CloseIfClear() (closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, open := f.breaker.Opening()
	return open && len(f.heldBack) == 0 && f.breaker.ResetBy(o.ID) && f.breaker.Close()
}

// Reset closes the breaker of this ID: someone looked, and what is in doubt is trusted for as long as a wave lasts, however many
// they are. Others count anew, and so does what recovers in between.
func (f *Breaker) Reset(id string, now time.Time) (closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.breaker.ResetBy(id) {
		return false
	}
	clear(f.turnedFalse)
	clear(f.heldBack)
	f.trustedUntil = now.Add(correlationWindow)
	return f.breaker.Close()
}
