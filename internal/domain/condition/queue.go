package condition

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// queuePosition is a node's position in the queue for a limit. The node whose match expired first goes first.
type queuePosition struct {
	since time.Time
	name  string
}

func byQueueOrder(a, b queuePosition) int {
	return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.name, b.name))
}

// positionIn gives a node's position in a queue; ok is false when it doesn't wait there.
func (n *nodeState) positionIn(queue string) (position queuePosition, ok bool) {
	for _, h := range n.holds {
		if h.queue == queue {
			position, ok = queuePosition{earlier(position.since, h.At), n.Name}, true
		}
	}
	return position, ok
}

// waitingBefore is how many nodes wait longer than this one would, if it had waited since then.
func (f *Fleet) waitingBefore(queue string, n *nodeState, since time.Time) (nodes int) {
	for other := range f.held {
		if position, waits := other.positionIn(queue); waits && other != n && byQueueOrder(position, queuePosition{since, n.Name}) < 0 {
			nodes++
		}
	}
	return nodes
}

// maxRequeued bounds how many nodes one freed slot requeues; each that leaves the queue requeues the next.
const maxRequeued = 16

// firstInQueue are the longest-waiting nodes of a queue.
func (f *Fleet) firstInQueue(queue string) (nodes []string) {
	var first []queuePosition
	for n := range f.held {
		if position, waits := n.positionIn(queue); waits {
			at, _ := slices.BinarySearchFunc(first, position, byQueueOrder)
			first = slices.Insert(first, at, position)
			first = first[:min(len(first), maxRequeued)]
		}
	}
	for _, position := range first {
		nodes = append(nodes, position.name)
	}
	return nodes
}

// queueHeads are the longest-waiting nodes of every queue.
func (f *Fleet) queueHeads() []string {
	queues, heads := sets.New[string](), sets.New[string]()
	for n := range f.held {
		for _, h := range n.holds {
			queues.Insert(h.queue)
		}
	}
	delete(queues, "") // where nothing but time is waited for
	for queue := range queues {
		heads.Insert(f.firstInQueue(queue)...)
	}
	return sets.List(heads)
}

// setHolds puts the node into the queues of its holds, and takes it out of the others. The heads of the queues that it left, or in which
// it moved back, are requeued: it didn't take the slot that was free.
func (f *Fleet) setHolds(n *nodeState, holds []Hold) {
	was := *n
	n.holds = holds
	if delete(f.held, n); len(holds) > 0 {
		f.held[n] = struct{}{}
	}
	for _, h := range was.holds {
		before, waited := was.positionIn(h.queue)
		if after, waits := n.positionIn(h.queue); waited && h.queue != "" && (!waits || byQueueOrder(before, after) < 0) {
			first := f.firstInQueue(h.queue)
			if next := slices.IndexFunc(first, func(name string) bool { return name != n.Name }); next >= 0 { // alone it would requeue itself forever
				f.requeues.Insert(first[next])
			}
		}
	}
}
