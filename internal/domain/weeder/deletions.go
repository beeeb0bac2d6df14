package weeder

import (
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
	// uncertainCreation covers that creation is written in whole seconds and that API servers' clocks may be another apart.
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

// mayPrecede says whether the pod, of a workload called so, may have come after it.
func (d *Record) mayPrecede(p *podState, owner string) bool {
	return d.Namespace == p.Namespace && d.Owner == owner && d.precedes(p.Pod)
}

// records are deletions. State has those of the last hour, over all configs, in the order in which they were decided or taken over: among
// them some by an earlier process of which only the time is known.
type records []*Record

// remove takes out a deletion that is among them once at most. Most are among the latest.
func (r *records) remove(d *Record) {
	for i, o := range slices.Backward(*r) {
		if o == d {
			*r = slices.Delete(*r, i, i+1)
			return
		}
	}
}

// match makes a pod that is new the heir of its workload's latest deletion that may precede it and has none. In whatever order pods
// are seen, at least as many find one as have replaced a pod: none takes an early one, which all others may have come after, too, while
// there is a later one.
func (r records) match(p *podState) {
	owner := p.Workload().String()
	var latest *Record
	for _, d := range r {
		heirless := !d.inherited && d.replacement == nil
		if heirless && d.mayPrecede(p, owner) && (latest == nil || !d.Server.Before(latest.Server)) {
			latest = d
		}
	}
	if latest != nil {
		p.replaces, latest.replacement = latest, p
	}
}

// refund takes back a deletion that surely didn't happen. Who was taken for its heir is another's, or nobody's.
func (r *records) refund(d *Record) {
	r.remove(d)
	if d.replacement != nil {
		d.replacement.replaces = nil
		r.match(d.replacement)
	}
}

// lastMinute are those that count for the cluster-wide limit. What others did is among them by its time alone.
func (r records) lastMinute(now time.Time) (latest records) {
	for _, d := range r {
		if !d.inherited && now.Sub(d.latest()) < limitWindow {
			latest = append(latest, d)
		}
	}
	return latest
}

func byLatest(a, b *Record) int { return a.latest().Compare(b.latest()) }

// freeAt says when the cluster-wide limit leaves a place to somebody before whom others wait; zero when it does now.
func (r records) freeAt(limit, ahead int, now time.Time) time.Time {
	if len(r)+ahead < limit { // in a storm under a high limit each pod comes by here
		return time.Time{}
	}
	counted := r.lastMinute(now)
	over := len(counted) + ahead - limit
	switch {
	case over < 0:
		return time.Time{}
	case limit <= 0:
		return now.Add(limitWindow)
	case over < len(counted):
		slices.SortFunc(counted, byLatest)
		return counted[over].latest().Add(limitWindow)
	}
	return now.Add(limitWindow * time.Duration(1+(over-len(counted))/limit))
}

// fits says whether a deletion that is decided and not done still has a place under the limit, which may have been lowered
// since: behind those that are done, and those that were decided before it.
func (r records) fits(d *Record, limit int, now time.Time) bool {
	if len(r) <= limit {
		return true
	}
	before, reached := 0, false
	for _, o := range r.lastMinute(now) {
		reached = reached || o == d
		if o != d && (!reached || !o.confirmedAt.IsZero()) {
			before++
		}
	}
	return before < limit
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
