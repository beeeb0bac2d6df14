package weed

import (
	"slices"
	"time"
)

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
	// own are this process's deletions, others those by others, both in the order in which they were decided.
	own, others []*Record
	// repeats are those of replacements among both, in order.
	repeats []*Record
	// last is the latest.
	last time.Time
}

// lists are all that have deletions.
func (h *history) lists() []*[]*Record { return []*[]*Record{&h.own, &h.others, &h.repeats} }

func (h *history) add(d *Record) {
	if d.inherited {
		h.others = insert(h.others, d, byTime)
	} else {
		h.own = insert(h.own, d, byTime)
	}
	if d.Repeat {
		h.repeats = insert(h.repeats, d, byTime)
	}
	h.last = later(h.last, d.latest())
}

// refund takes back a deletion; empty says that none is left.
func (h *history) refund(d *Record) (empty bool) {
	for _, list := range h.lists() {
		*list = remove(*list, d)
	}
	h.last = time.Time{}
	for _, list := range [][]*Record{h.own, h.others} {
		for _, o := range list {
			h.last = later(h.last, o.latest())
		}
	}
	return h.empty()
}

// prune forgets deletions that are more than an hour old; empty says that none is left.
func (h *history) prune(now time.Time) (empty bool) {
	for _, list := range h.lists() {
		i := slices.IndexFunc(*list, func(d *Record) bool { return d.counts(now) })
		switch {
		case i < 0:
			*list = nil
		case i > 0:
			*list = slices.Clone((*list)[i:])
		}
	}
	return h.empty()
}

func (h *history) empty() bool { return len(h.own)+len(h.others) == 0 }

// counts: it is less than an hour old.
func (d *Record) counts(now time.Time) bool { return now.Sub(d.At) < remembered }

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

// replaced says whether the pod came after one of the deletions. A pod that we knew before the workload's first deletion
// replaces nothing, nor does one that the API server surely created before it.
func (h *history) replaced(p *Pod, firstSeen, now time.Time) bool {
	createdAfter := func(d *Record) bool {
		return d.counts(now) && d.UID != p.UID && p.Created.Add(uncertainCreation).After(d.Server)
	}
	if slices.ContainsFunc(h.others, createdAfter) {
		return true
	}
	for _, d := range h.own {
		switch {
		case !firstSeen.After(d.At): // nor after those that follow
			return false
		case createdAfter(d):
			return true
		}
	}
	return false
}
