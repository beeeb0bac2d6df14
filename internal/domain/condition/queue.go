package condition

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// waiter is a node in the line before a limit. The longest-waiting goes first: whose match had held first.
type waiter struct {
	since time.Time
	name  string
}

func byWait(a, b waiter) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.name, b.name)) }

// waitsIn gives a node's place in a line; ok is false when it doesn't wait there.
func (n *nodeState) waitsIn(line string) (place waiter, ok bool) {
	for _, h := range n.holds {
		if h.dimension == line {
			place, ok = waiter{earlier(place.since, h.At), n.Name}, true
		}
	}
	return place, ok
}

// before is how many nodes wait longer than this one would, if it had waited since then.
func (f *Fleet) before(line string, n *nodeState, since time.Time) (nodes int) {
	for other := range f.waiting {
		if place, waits := other.waitsIn(line); waits && other != n && byWait(place, waiter{since, n.Name}) < 0 {
			nodes++
		}
	}
	return nodes
}

// headsWoken bounds how many nodes one freed place wakes; each that leaves the line wakes the next.
const headsWoken = 16

// firstInLine are the longest-waiting nodes of a line.
func (f *Fleet) firstInLine(line string) (nodes []string) {
	var first []waiter
	for n := range f.waiting {
		if place, waits := n.waitsIn(line); waits {
			at, _ := slices.BinarySearchFunc(first, place, byWait)
			first = slices.Insert(first, at, place)
			first = first[:min(len(first), headsWoken)]
		}
	}
	for _, place := range first {
		nodes = append(nodes, place.name)
	}
	return nodes
}

// heads are the longest-waiting nodes of every line.
func (f *Fleet) heads() []string {
	lines, heads := sets.New[string](), sets.New[string]()
	for n := range f.waiting {
		for _, h := range n.holds {
			lines.Insert(h.dimension)
		}
	}
	delete(lines, "") // where nothing but time is waited for
	for line := range lines {
		heads.Insert(f.firstInLine(line)...)
	}
	return sets.List(heads)
}

// enter puts the node into the lines that its holds are of, and takes it out of the others. The heads of the lines that it left, or in which
// it stepped back, may go on: it went without taking the place that was free.
func (f *Fleet) enter(n *nodeState, holds []Hold) {
	was := *n
	n.holds = holds
	if delete(f.waiting, n); len(holds) > 0 {
		f.waiting[n] = struct{}{}
	}
	for _, h := range was.holds {
		before, waited := was.waitsIn(h.dimension)
		if place, waits := n.waitsIn(h.dimension); waited && h.dimension != "" && (!waits || byWait(before, place) < 0) {
			first := f.firstInLine(h.dimension)
			if next := slices.IndexFunc(first, func(name string) bool { return name != n.Name }); next >= 0 { // alone it would wake itself without end
				f.woken.Insert(first[next])
			}
		}
	}
}
