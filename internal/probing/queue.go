package probing

import (
	"container/heap"
	"time"
)

// entry is a task with its place in the queue.
type entry struct {
	key    Key
	task   task // nil once removed
	due    time.Time
	index  int // in the queue; -1 outside
	paused bool

	// ours is the task that a worker has, which alone may close it; nil if none has. Unless skip is set, the worker runs
	// it, and then: restart, unless zero, is when to run again; otherwise the run says that, but not after atLatest.
	ours     task
	skip     bool
	restart  time.Time
	atLatest time.Time
}

// settle ends a worker's turn. It gives the time of the next run, when the run asked for that.
func (e *entry) settle(asked time.Time) time.Time {
	next := asked
	switch {
	case !e.restart.IsZero():
		next = e.restart
	case !e.atLatest.IsZero() && e.atLatest.Before(asked):
		next = e.atLatest
	}
	e.ours, e.skip, e.restart, e.atLatest = nil, false, time.Time{}, time.Time{}
	return next
}

// replace gives the task to close now, if there is one that no worker has.
func (e *entry) replace(t task) task {
	old := e.task
	e.task = t
	if e.ours == nil {
		return old
	}
	e.skip = true
	if old != e.ours { // it was added while the worker had another, and never ran
		return old
	}
	return nil
}

// queue has the entries that wait for their time, the earliest first.
type queue []*entry

var _ heap.Interface = (*queue)(nil)

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for package heap.
func (q *queue) Push(x any) {
	e := x.(*entry)
	e.index = len(*q)
	*q = append(*q, e)
}

// Pop is for package heap.
func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	e.index = -1
	return e
}

func (q *queue) add(e *entry) { heap.Push(q, e) }

func (q *queue) drop(e *entry) {
	if e.index >= 0 {
		heap.Remove(q, e.index)
	}
}
