package weed

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// queue is the order in which pods wait for the cluster-wide limit: who came first goes first.
type queue struct {
	places map[types.NamespacedName]uint64
	// order has the places taken, in order, and whose they are.
	order []place
	next  uint64
}

type place struct {
	number uint64
	pod    types.NamespacedName
}

func newQueue() queue { return queue{places: map[types.NamespacedName]uint64{}} }

// ahead is how many wait before the pod; all, for one that doesn't wait yet.
func (q *queue) ahead(pod types.NamespacedName) int {
	number, waits := q.places[pod]
	if !waits {
		return len(q.order)
	}
	return q.find(number)
}

func (q *queue) find(number uint64) int {
	i, _ := slices.BinarySearchFunc(q.order, number, func(p place, n uint64) int {
		switch {
		case p.number < n:
			return -1
		case p.number > n:
			return 1
		}
		return 0
	})
	return i
}

func (q *queue) enter(pod types.NamespacedName) {
	if _, waits := q.places[pod]; waits {
		return
	}
	q.next++
	q.places[pod] = q.next
	q.order = append(q.order, place{q.next, pod})
}

func (q *queue) leave(pod types.NamespacedName) {
	number, waits := q.places[pod]
	if !waits {
		return
	}
	delete(q.places, pod)
	i := q.find(number)
	q.order = slices.Delete(q.order, i, i+1)
}

// heads are the first to go.
func (q *queue) heads(most int) (pods []types.NamespacedName) {
	for _, p := range q.order[:min(most, len(q.order))] {
		pods = append(pods, p.pod)
	}
	return pods
}
