package weeder

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// remembered is for how long a deletion counts for what comes after it.
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
	// Before is when the pods were deleted, within an hour, that this one had replaced one after the other, in order.
	Before []time.Time
	// heir is the pod that counts as its replacement; nil until one comes.
	heir *podState
	// inherited from another process: which pods were there before isn't known.
	inherited bool
	// done is when the API server had taken it, by our clock; zero while that isn't known. A slow one takes its time.
	done time.Time
}

// latest is when it happened at the latest, as far as that is known.
func (d *Record) latest() time.Time { return later(d.At, d.done) }

// counts: it is less than an hour old.
func (d *Record) counts(now time.Time) bool { return now.Sub(d.At) < remembered }

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
	l.of(w).heirless.insert(d, byServerTime)
	l.lately.insert(d, byLatest)
}

// match makes a pod that is new the heir of its workload's latest deletion that may precede it and has none. In whatever order pods
// are seen, at least as many find one as have replaced a pod: none takes an early one, which all others may have come after, too, while
// there is a later one.
func (l *deletionLog) match(p *podState) {
	h := l.byWorkload[p.Workload()]
	if h == nil {
		return
	}
	for i, d := range slices.Backward(h.heirless) {
		if d.precedes(p.Pod) {
			p.replaces, d.heir = d, p
			h.heirless = slices.Delete(h.heirless, i, i+1)
			return
		}
	}
}

// confirm says when a deletion was done. Cooldown and the minute count from then: with a slow API server pods would else go
// sooner after each other, and more of them in a minute, than they may.
func (l *deletionLog) confirm(d *Record, now time.Time) {
	l.lately.remove(d)
	d.done = now
	l.lately.insert(d, byLatest)
}

// refund takes back a deletion that surely didn't happen. Who was taken for its heir is another's, or nobody's.
func (l *deletionLog) refund(w Workload, d *Record) {
	if h := l.byWorkload[w]; h != nil {
		h.heirless.remove(d)
	}
	l.lately.remove(d)
	if d.heir != nil {
		d.heir.replaces = nil
		l.match(d.heir)
	}
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

// history are the deletions of a workload in the last hour of which it isn't known which pods replaced theirs.
type history struct {
	// heirless are our own without an heir, in the order in which pods may have been created after them.
	heirless records
	// inherited are other processes', by time. Which pods replaced theirs isn't known: each counts for all that it may precede.
	inherited records
}

// prune forgets deletions that are more than an hour old; empty says that none is left.
func (h *history) prune(now time.Time) (empty bool) {
	counts := func(d *Record) bool { return d.counts(now) }
	h.heirless.forget(counts)
	h.inherited.forget(counts)
	return len(h.heirless)+len(h.inherited) == 0
}

// Past is what a pod comes after. The zero value is that it replaced nothing.
type Past struct {
	// Before is when the pods were deleted, within the last hour, that it replaced one after the other, in order.
	Before []time.Time
	// Last is when the last of them was gone.
	Last time.Time
}

// follow says that the pod replaced what was deleted then. Of several of which it may be any the one counts that comes after most.
func (p *Past) follow(d *Record, now time.Time) {
	before := slices.DeleteFunc(append(slices.Clone(d.Before), d.At), func(t time.Time) bool { return now.Sub(t) >= remembered })
	if len(before) >= len(p.Before) {
		p.Before = before
	}
	p.Last = later(p.Last, d.latest())
}
