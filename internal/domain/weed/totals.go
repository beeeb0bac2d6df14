package weed

import (
	"slices"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// totals is what a config did and left undone, over all time.
type totals struct {
	deleted int64
	skipped map[Reason]int64
	// recent are the latest deletions, the newest first.
	recent []*Record
	// hour are all deletions of the hour up to the latest, in order.
	hour []*Record
	// last is the latest window.
	last Window
	// lent are deletions of the last minute by another process that are known by number only.
	lent []*Record
	// unlisted are such deletions of the last hour.
	unlisted Unlisted
}

// Unlisted are deletions of which only this is known. Times are by the API server's clock.
type Unlisted struct {
	From, To time.Time
	Repeats  int
}

// counts says whether some of them are less than an hour old.
func (u Unlisted) counts(at Moment) bool {
	return !u.To.IsZero() && at.Now.Sub(at.latest(u.To)) < remembered
}

// Spent says in numbers what Summary.Recent has no room for.
type Spent struct {
	// LastMinute counts the deletions of the minute up to LastDeletion, which is by the API server's clock and zero when there
	// was none within an hour.
	LastMinute   int
	LastDeletion time.Time
	// Unlisted are those of the hour up to LastDeletion that aren't in Recent.
	Unlisted Unlisted
}

func newTotals() totals { return totals{skipped: map[Reason]int64{}} }

func (t *totals) add(r *Record) {
	t.deleted++
	t.recent = slices.Insert(t.recent, 0, r)
	t.recent = t.recent[:min(len(t.recent), sample.Size)]
	t.hour = insert(t.hour, r, byTime)
	i := 0
	for r.At.Sub(t.hour[i].At) >= remembered {
		i++
	}
	clear(t.hour[:i])
	t.hour = t.hour[i:]
}

func (t *totals) refund(r *Record) {
	t.deleted--
	t.recent = remove(t.recent, r)
	t.hour = remove(t.hour, r)
	if next := len(t.hour) - len(t.recent) - 1; next >= 0 && len(t.recent) < sample.Size { // there is room for one more of the hour
		t.recent = append(t.recent, t.hour[next])
	}
}

func (t *totals) spent() (s Spent) {
	if len(t.hour) == 0 {
		return Spent{}
	}
	last := t.hour[len(t.hour)-1]
	s.LastDeletion = last.Server
	for _, r := range slices.Concat(t.hour, t.lent) {
		if last.At.Sub(r.At) < pace {
			s.LastMinute++
		}
	}
	if t.unlisted.counts(Moment{Now: last.At, Server: last.Server}) {
		s.Unlisted = t.unlisted
	}
	for _, r := range t.hour[:max(0, len(t.hour)-len(t.recent))] {
		s.Unlisted.From, s.Unlisted.To = earlier(s.Unlisted.From, r.Server), later(s.Unlisted.To, r.Server)
		if r.Repeat {
			s.Unlisted.Repeats++
		}
	}
	return s
}
