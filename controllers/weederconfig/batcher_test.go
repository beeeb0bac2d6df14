package weederconfig

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// notes is a batcher whose writes end when the test says how.
type notes struct {
	*batcher
	outcomes chan error

	mu            sync.Mutex
	began         int   // writes; needs mu, as below
	noted, failed []int // deletions
}

func newNotes() *notes { return &notes{batcher: newBatcher(), outcomes: make(chan error)} }

// decide enters deletions at the same moment.
func (n *notes) decide(deletions ...int) {
	for _, d := range deletions {
		go func() {
			err := n.enter(func() error {
				n.mu.Lock()
				n.began++
				n.mu.Unlock()
				return <-n.outcomes
			})
			n.mu.Lock()
			defer n.mu.Unlock()
			if err == nil {
				n.noted = append(n.noted, d)
			} else {
				n.failed = append(n.failed, d)
			}
		}()
	}
	n.settle()
}

func (n *notes) end(outcome error) {
	n.outcomes <- outcome
	n.settle()
}

// settle lets everything happen that happens by itself.
func (n *notes) settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

func (n *notes) expect(t *testing.T, began int, noted, failed []int) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	slices.Sort(n.noted)
	slices.Sort(n.failed)
	if n.began != began || !slices.Equal(n.noted, noted) || !slices.Equal(n.failed, failed) {
		t.Errorf("%d writes began, %v are noted and %v failed; want %d, %v and %v", n.began, n.noted, n.failed, began, noted, failed)
	}
}

func upTo(n int) (numbers []int) {
	for i := range n {
		numbers = append(numbers, i)
	}
	return numbers
}

func TestDeletionsDecidedAtTheSameMomentShareOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNotes()
		n.decide(0, 1, 2, 3, 4)
		n.expect(t, 1, nil, nil)
		n.end(nil)
		n.expect(t, 1, []int{0, 1, 2, 3, 4}, nil)
	})
}

func TestADeletionDecidedDuringAWriteWaitsForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNotes()
		n.decide(0)
		n.decide(1)
		n.decide(2)
		n.end(nil) // the write that began before 1 and 2 were decided, so that it can't have them
		n.expect(t, 2, []int{0}, nil)
		n.end(nil)
		n.expect(t, 2, []int{0, 1, 2}, nil)
	})
}

func TestAWriteThatFailsFailsForAllWhoShareIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNotes()
		n.decide(0, 1)
		n.decide(2)
		n.end(errors.New("gone"))
		n.expect(t, 2, nil, []int{0, 1})
		n.end(nil)
		n.expect(t, 2, []int{2}, []int{0, 1})
	})
}

func TestWhileTheSendersHaveEnoughToDoTheNextWriteWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNotes()
		n.decide(upTo(64)...)
		n.end(nil)
		n.decide(64)
		n.decide(65, 66)
		n.expect(t, 1, upTo(64), nil)
		n.leave()
		n.settle()
		n.expect(t, 2, upTo(64), nil)
		n.end(nil)
		n.expect(t, 2, upTo(67), nil)
	})
}

func TestWhatFailedIsNothingToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNotes()
		n.decide(upTo(100)...)
		n.end(errors.New("gone"))
		n.decide(100)
		n.end(nil)
		n.expect(t, 2, []int{100}, upTo(100))
	})
}
