package condition

import (
	"slices"
	"strings"
	"time"
)

// queues are the nodes held back by each limit, in order of when their match had held: the longest-waiting goes first.
type queues struct {
	lines map[string][]waiter
	// places are a node's, by line.
	places map[string]map[string]time.Time
}

type waiter struct {
	since time.Time
	name  string
}

func byWait(a, b waiter) int {
	if c := a.since.Compare(b.since); c != 0 {
		return c
	}
	return strings.Compare(a.name, b.name)
}

func newQueues() queues {
	return queues{lines: map[string][]waiter{}, places: map[string]map[string]time.Time{}}
}

// before is how many nodes wait longer than this one would, if it had waited since then.
func (q *queues) before(line, name string, since time.Time) int {
	n, _ := slices.BinarySearchFunc(q.lines[line], waiter{since, name}, byWait)
	if place, waits := q.places[name][line]; waits && place.Before(since) {
		n-- // itself
	}
	return n
}

// enter puts the node into the lines that its holds are of, and takes it out of the others. It gives the heads of the
// lines that it left, who may go on if it went without taking the place that was free.
func (q *queues) enter(name string, holds []Hold) (next []string) {
	before, places := q.places[name], placesOf(holds)
	for line, was := range before {
		is, waits := places[line]
		if waits && is.Equal(was) {
			continue
		}
		if head := q.step(line, waiter{was, name}); head != "" && (!waits || was.Before(is)) {
			next = append(next, head)
		}
	}
	for line, since := range places {
		if was, waits := before[line]; !waits || !was.Equal(since) {
			at, _ := slices.BinarySearchFunc(q.lines[line], waiter{since, name}, byWait)
			q.lines[line] = slices.Insert(q.lines[line], at, waiter{since, name})
		}
	}
	if q.places[name] = places; len(places) == 0 {
		delete(q.places, name)
	}
	return next
}

func placesOf(holds []Hold) map[string]time.Time {
	places := map[string]time.Time{}
	for _, h := range holds {
		if h.dimension != "" {
			places[h.dimension] = earlier(places[h.dimension], h.At)
		}
	}
	return places
}

// step takes a waiter out of a line and gives who is its head then, "" for nobody.
func (q *queues) step(line string, w waiter) (head string) {
	at, _ := slices.BinarySearchFunc(q.lines[line], w, byWait)
	if q.lines[line] = slices.Delete(q.lines[line], at, at+1); len(q.lines[line]) == 0 {
		delete(q.lines, line)
		return ""
	}
	return q.lines[line][0].name
}

// headsWoken bounds how many nodes one freed place wakes; each that leaves the line wakes the next.
const headsWoken = 16

// heads are the longest-waiting nodes of every line.
func (q *queues) heads() []string {
	woken := names{}
	for line := range q.lines {
		for _, name := range q.first(line) {
			woken.put(name, true)
		}
	}
	return woken.sorted()
}

// first are the longest-waiting nodes of a line.
func (q *queues) first(line string) (first []string) {
	for _, w := range q.lines[line][:min(len(q.lines[line]), headsWoken)] {
		first = append(first, w.name)
	}
	return first
}
