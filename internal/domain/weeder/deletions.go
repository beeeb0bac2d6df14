package weeder

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/timing"
)

const (
	// retention is for how long a deletion counts for what comes after it.
	retention = time.Hour
	// backOffForgotten is after how long without a restart the kubelet forgets a container's back-off.
	backOffForgotten = 10 * time.Minute
	// limitWindow is the time for which deletions count for the cluster-wide limit.
	limitWindow = time.Minute
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
	// Before is when the pods were deleted, within an hour, that this one had replaced one after the other, in order.
	Before []time.Time
	// replacement is the pod that counts as its replacement; nil until one comes.
	replacement *podState
	// inherited from another process: which pods were there before isn't known.
	inherited bool
	// confirmedAt is when the API server had taken it, by our clock; zero while that isn't known. A slow one takes its time.
	confirmedAt time.Time
}

// latest is when it happened at the latest, as far as that is known.
func (d *Record) latest() time.Time { return timing.Later(d.At, d.confirmedAt) }

// counts: it is less than an hour old.
func (d *Record) counts(now time.Time) bool { return now.Sub(d.At) < retention }

// precedes says whether the pod may have been created after it, by the API server's clock.
func (d *Record) precedes(p *Pod) bool {
	return d.UID != p.UID && p.Created.Add(uncertainCreation).After(d.Server)
}

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

// dropUntil drops the first ones, up to that which counts.
func (r *records) dropUntil(counts func(*Record) bool) {
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
	// lastMinute are those of the last minute in the order in which they happened, among them some by an earlier process of which
	// only the time is known.
	lastMinute records
}

// of are the deletions of a workload.
func (l *deletionLog) of(w Workload) *history {
	h := l.byWorkload[w]
	if h == nil {
		h = &history{}
		l.byWorkload[w] = h
	}
	return h
}

// add takes in a deletion of ours.
func (l *deletionLog) add(w Workload, d *Record) {
	l.of(w).unmatched.insert(d, byServerTime)
	l.lastMinute.insert(d, byLatest)
}

// match makes a pod that is new the heir of its workload's latest deletion that may precede it and has none. In whatever order pods
// are seen, at least as many find one as have replaced a pod: none takes an early one, which all others may have come after, too, while
// there is a later one.
func (l *deletionLog) match(p *podState) {
	h := l.byWorkload[p.Workload()]
	if h == nil {
		return
	}
	for i, d := range slices.Backward(h.unmatched) {
		if d.precedes(p.Pod) {
			p.replaces, d.replacement = d, p
			h.unmatched = slices.Delete(h.unmatched, i, i+1)
			return
		}
	}
}

// confirm says when a deletion was done. Cooldown and the minute count from then: with a slow API server pods would else go
// sooner after each other, and more of them in a minute, than they may.
func (l *deletionLog) confirm(d *Record, now time.Time) {
	l.lastMinute.remove(d)
	d.confirmedAt = now
	l.lastMinute.insert(d, byLatest)
}

// refund takes back a deletion that surely didn't happen. Who was taken for its heir is another's, or nobody's.
func (l *deletionLog) refund(w Workload, d *Record) {
	if h := l.byWorkload[w]; h != nil {
		h.unmatched.remove(d)
	}
	l.lastMinute.remove(d)
	if d.replacement != nil {
		d.replacement.replaces = nil
		l.match(d.replacement)
	}
}

// prune forgets what counts for nothing any more.
func (l *deletionLog) prune(now time.Time) {
	maps.DeleteFunc(l.byWorkload, func(_ Workload, h *history) bool { return h.prune(now) })
	l.pruneLastMinute(now)
}

func (l *deletionLog) pruneLastMinute(now time.Time) {
	l.lastMinute.dropUntil(func(d *Record) bool { return now.Sub(d.latest()) < limitWindow })
}

// freeAt says when the cluster-wide limit leaves a place to somebody before whom others wait; zero when it does now.
func (l *deletionLog) freeAt(limit, ahead int, now time.Time) time.Time {
	l.pruneLastMinute(now)
	over := len(l.lastMinute) + ahead - limit
	switch {
	case over < 0:
		return time.Time{}
	case limit <= 0:
		return now.Add(limitWindow)
	case over < len(l.lastMinute):
		return l.lastMinute[over].latest().Add(limitWindow)
	}
	return now.Add(limitWindow * time.Duration(1+(over-len(l.lastMinute))/limit))
}

// fits says whether a deletion that is decided and not done still has a place under the limit, which may have been lowered
// since: behind those that are done, and those that were decided before it.
func (l *deletionLog) fits(d *Record, limit int, now time.Time) bool {
	l.pruneLastMinute(now)
	if len(l.lastMinute) <= limit {
		return true
	}
	before, behind := 0, false
	for _, o := range l.lastMinute {
		behind = behind || o == d
		if o != d && (!behind || !o.confirmedAt.IsZero()) {
			before++
		}
	}
	return before < limit
}

// history are the deletions of a workload in the last hour of which it isn't known which pods replaced theirs.
type history struct {
	// unmatched are our own without an heir, in the order in which pods may have been created after them.
	unmatched records
	// inherited are other processes', by time. Which pods replaced theirs isn't known: each counts for all that it may precede.
	inherited records
}

// prune forgets deletions that are more than an hour old; empty says that none is left.
func (h *history) prune(now time.Time) (empty bool) {
	counts := func(d *Record) bool { return d.counts(now) }
	h.unmatched.dropUntil(counts)
	h.inherited.dropUntil(counts)
	return len(h.unmatched)+len(h.inherited) == 0
}

// Past is what a pod comes after. The zero value is that it replaced nothing.
type Past struct {
	// Before is when the pods were deleted, within the last hour, that it replaced one after the other, in order.
	Before []time.Time
	// Last is when the last of them was gone.
	Last time.Time
}

// add says that the pod replaced what was deleted then. Of several of which it may be any the one counts that comes after most.
func (p *Past) add(d *Record, now time.Time) {
	before := slices.DeleteFunc(append(slices.Clone(d.Before), d.At), func(t time.Time) bool { return now.Sub(t) >= retention })
	if len(before) >= len(p.Before) {
		p.Before = before
	}
	p.Last = timing.Later(p.Last, d.latest())
}
