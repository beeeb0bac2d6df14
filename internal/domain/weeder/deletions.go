package weeder

import (
	"cmp"
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

// counts: it is less than an hour old.
func (d *Record) counts(now time.Time) bool { return now.Sub(d.At) < remembered }

func byTime(a, b *Record) int { return a.At.Compare(b.At) }

func byServerTime(a, b *Record) int { return a.Server.Compare(b.Server) }

func byLatest(a, b *Record) int { return a.latest().Compare(b.latest()) }

// records are deletions in order.
type records []*Record

// insert puts a deletion behind those of the same time.
func (r *records) insert(d *Record, order func(a, b *Record) int) {
	i, _ := slices.BinarySearchFunc(*r, d, func(o, d *Record) int { return cmp.Or(order(o, d), -1) })
	*r = slices.Insert(*r, i, d)
}

// remove takes out a deletion that is among them once at most. Most are among the latest.
func (r *records) remove(d *Record) {
	for i, o := range slices.Backward(*r) {
		if o == d {
			*r = slices.Delete(*r, i, i+1)
			return
		}
	}
}

// forget drops the first ones, up to that which counts.
func (r *records) forget(counts func(*Record) bool) {
	i := slices.IndexFunc(*r, counts)
	if i < 0 {
		i = len(*r)
	}
	clear((*r)[:i])
	*r = (*r)[i:]
}

// deletionLog holds the deletions of the last hour by workload, and those of the last minute over all of them.
type deletionLog struct {
	byWorkload map[Workload]*history
	// lately are those of the last minute in the order in which they happened, among them some by an earlier process of which
	// only the time is known.
	lately records
}

func (l *deletionLog) add(w Workload, d *Record) {
	h := l.byWorkload[w]
	if h == nil {
		h = &history{}
		l.byWorkload[w] = h
	}
	h.add(d)
	l.lately.insert(d, byLatest)
}

// confirm says when a deletion was done. Cooldown and the minute count from then: with a slow API server pods would else go
// sooner after each other, and more of them in a minute, than they may.
func (l *deletionLog) confirm(w Workload, d *Record, now time.Time) {
	l.lately.remove(d)
	d.done = now
	l.lately.insert(d, byLatest)
	if h := l.byWorkload[w]; h != nil { // else it is more than an hour ago
		h.last = later(h.last, d.latest())
	}
}

// refund takes back a deletion that surely didn't happen.
func (l *deletionLog) refund(w Workload, d *Record) {
	if h := l.byWorkload[w]; h != nil && h.refund(d) {
		delete(l.byWorkload, w)
	}
	l.lately.remove(d)
}

// prune forgets what counts for nothing any more.
func (l *deletionLog) prune(now time.Time) {
	maps.DeleteFunc(l.byWorkload, func(_ Workload, h *history) bool { return h.prune(now) })
	l.pruneLately(now)
}

func (l *deletionLog) pruneLately(now time.Time) {
	l.lately.forget(func(d *Record) bool { return now.Sub(d.latest()) < pace })
}

// free says when the cluster-wide limit leaves a place to somebody before whom others wait; zero when it does now.
func (l *deletionLog) free(limit, ahead int, now time.Time) time.Time {
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
func (l *deletionLog) fits(d *Record, limit int, now time.Time) bool {
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

// Past is what a pod's workload has been through in the last hour.
type Past struct {
	// Replacement: the pod came after an earlier deletion, and hadn't run well since.
	Replacement bool
	// Last is the workload's latest deletion.
	Last time.Time
	// Repeats are the deletions of replacements, in order.
	Repeats []time.Time
}

// history is what a workload has been through in the last hour. A decision looks at the first of its deletions at most, however
// many there were.
type history struct {
	// all of its deletions, those by other processes first, and the repeats among them; both in the order in which they were decided.
	all, repeats records
	// last is the latest.
	last time.Time
}

// othersFirst has all that others did asked about before the first of our own that a pod doesn't come after: one of theirs may be
// stamped later than that, since it is taken over later, or was while our clock was ahead.
func othersFirst(a, b *Record) int {
	if a.inherited != b.inherited {
		if a.inherited {
			return -1
		}
		return 1
	}
	return byTime(a, b)
}

func (h *history) add(d *Record) {
	h.all.insert(d, othersFirst)
	if d.Repeat {
		h.repeats.insert(d, byTime)
	}
	h.last = later(h.last, d.latest())
}

// refund takes back a deletion; empty says that none is left.
func (h *history) refund(d *Record) (empty bool) {
	h.all.remove(d)
	h.repeats.remove(d)
	h.last = time.Time{}
	for _, o := range h.all {
		h.last = later(h.last, o.latest())
	}
	return len(h.all) == 0
}

// prune forgets deletions that are more than an hour old; empty says that none is left.
func (h *history) prune(now time.Time) (empty bool) {
	counts := func(d *Record) bool { return d.counts(now) }
	h.all.forget(counts)
	h.repeats.forget(counts)
	return len(h.all) == 0
}

// past tells what counts against one more deletion in the workload, of a pod that was first seen then. A workload that wasn't
// heard of has no history.
func (h *history) past(p *Pod, firstSeen, now time.Time) (past Past) {
	if h == nil {
		return past
	}
	past.Replacement, past.Last = h.replaced(p, firstSeen, now), h.last
	for _, d := range h.repeats {
		if d.counts(now) {
			past.Repeats = append(past.Repeats, d.At)
		}
	}
	return past
}

// replaced says whether the pod came after one of the deletions. A pod that we knew before the first of our own replaces none of
// them, nor does it replace what was deleted after the API server surely had created it.
func (h *history) replaced(p *Pod, firstSeen, now time.Time) bool {
	for _, d := range h.all {
		switch {
		case !d.inherited && !firstSeen.After(d.At): // nor after those that follow, which are our own, too
			return false
		case d.counts(now) && d.UID != p.UID && p.Created.Add(uncertainCreation).After(d.Server):
			return true
		}
	}
	return false
}
