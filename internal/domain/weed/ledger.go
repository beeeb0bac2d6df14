package weed

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// remembered is for how long a deletion counts for its workload.
	remembered = time.Hour
	// backOffForgotten is after how long without a restart the kubelet forgets a container's back-off.
	backOffForgotten = 10 * time.Minute
	// pace is the time for which deletions count for the cluster-wide limit.
	pace = time.Minute
	// uncertainCreation covers that creation is written in whole seconds and that the API server's clock is known to about one.
	uncertainCreation = 2 * time.Second
)

// Record is a deletion that was sent, or one that a status remembers.
type Record struct {
	// At is when, by our clock; Server is the same by the API server's.
	At, Server time.Time
	Namespace  string
	Pod        string
	UID        types.UID
	Owner      string
	Service    string
	// Repeat: the pod had replaced one that was deleted before.
	Repeat bool
	// inherited from another process: which pods were there before isn't known.
	inherited bool
	// done is when the API server had taken it, by our clock; zero while that isn't known. A slow one takes its time.
	done time.Time
}

// latest is when it happened at the latest, as far as that is known.
func (d *Record) latest() time.Time { return later(d.At, d.done) }

// ledger holds the deletions of the last hour by workload, and those of the last minute over all of them.
type ledger struct {
	byWorkload map[Workload]*history
	// lately are those of the last minute in the order in which they happened, among them some by an earlier process of which
	// only the time is known.
	lately []*Record
}

func byTime(a, b *Record) int { return a.At.Compare(b.At) }

func byLatest(a, b *Record) int { return a.latest().Compare(b.latest()) }

// insert puts a deletion behind those of the same time.
func insert(list []*Record, d *Record, order func(a, b *Record) int) []*Record {
	i, _ := slices.BinarySearchFunc(list, d, func(o, d *Record) int {
		if order(o, d) > 0 {
			return 1
		}
		return -1
	})
	return slices.Insert(list, i, d)
}

// remove takes a deletion out of a list that it is in once at most. Most are among the latest.
func remove(list []*Record, d *Record) []*Record {
	for i, o := range slices.Backward(list) {
		if o == d {
			return slices.Delete(list, i, i+1)
		}
	}
	return list
}

func (l *ledger) add(w Workload, d *Record) {
	h := l.byWorkload[w]
	if h == nil {
		h = &history{}
		l.byWorkload[w] = h
	}
	h.add(d)
	l.lately = insert(l.lately, d, byLatest)
}

// confirm says when a deletion was done. Cooldown and the minute count from then: with a slow API server pods would else go
// sooner after each other, and more of them in a minute, than they may.
func (l *ledger) confirm(w Workload, d *Record, now time.Time) {
	l.lately = remove(l.lately, d)
	d.done = now
	l.lately = insert(l.lately, d, byLatest)
	if h := l.byWorkload[w]; h != nil { // else it is more than an hour ago
		h.last = later(h.last, d.latest())
	}
}

// refund takes back a deletion that surely didn't happen.
func (l *ledger) refund(w Workload, d *Record) {
	if h := l.byWorkload[w]; h != nil && h.refund(d) {
		delete(l.byWorkload, w)
	}
	l.lately = remove(l.lately, d)
}

// prune forgets what counts for nothing any more.
func (l *ledger) prune(now time.Time) {
	maps.DeleteFunc(l.byWorkload, func(_ Workload, h *history) bool { return h.prune(now) })
	l.pruneLately(now)
}

func (l *ledger) pruneLately(now time.Time) {
	i := 0
	for i < len(l.lately) && now.Sub(l.lately[i].latest()) >= pace {
		i++
	}
	clear(l.lately[:i])
	l.lately = l.lately[i:]
}

// free says when the cluster-wide limit leaves a place to somebody before whom others wait; zero when it does now.
func (l *ledger) free(limit, ahead int, now time.Time) time.Time {
	l.pruneLately(now)
	over := len(l.lately) + ahead - limit
	switch {
	case over < 0:
		return time.Time{}
	case limit <= 0:
		return now.Add(pace)
	case over < len(l.lately):
		return l.lately[over].latest().Add(pace)
	}
	return now.Add(pace * time.Duration(1+(over-len(l.lately))/limit))
}

// fits says whether a deletion that is decided and not done still has a place under the limit, which may have been lowered
// since: behind those that are done, and those that were decided before it.
func (l *ledger) fits(d *Record, limit int, now time.Time) bool {
	l.pruneLately(now)
	if len(l.lately) <= limit {
		return true
	}
	before, behind := 0, false
	for _, o := range l.lately {
		behind = behind || o == d
		if o != d && (!behind || !o.done.IsZero()) {
			before++
		}
	}
	return before < limit
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
