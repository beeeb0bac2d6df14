package weederconfig

import (
	"sync"
	"time"
)

const (
	// batchDelay is how long a write waits for deletions that are decided at the same moment. Without it a recovery's first pod
	// would be written down alone, and all others would wait for a second write.
	batchDelay = 2 * time.Millisecond
	// maxInFlight deletions that are written down and not over let the next write wait: two for each sender.
	maxInFlight = 2 * senders
)

// batcher lets the deletions of one config share writes: those that are decided at the same moment, while another write is on
// its way, or while the senders have enough to do.
type batcher struct {
	writeLock chan struct{} // has room for whoever writes
	// version is the config's resource version as far as writers know, "" before the first; needs the writeLock.
	version string

	mu       sync.Mutex
	fewer    sync.Cond // on mu: inFlight has shrunk
	next     *batch    // needs mu: has no write yet; nil for none
	inFlight int       // needs mu: those written down and not over
}

// batch shares one write.
type batch struct {
	size    int           // needs the batcher's mu
	written chan struct{} // closed once the write is over
	err     error         // to be read then
}

func newBatcher() *batcher {
	b := &batcher{writeLock: make(chan struct{}, 1)}
	b.fewer.L = &b.mu
	return b
}

// enter returns when a write is over that began after enter was called. Without an error, leave must follow.
func (b *batcher) enter(write func() error) error {
	in, first := b.join()
	if first { // it must write
		in.err = b.writeFor(in, write)
		close(in.written)
	}
	<-in.written
	return in.err
}

// leave says that what was written down is over.
func (b *batcher) leave() { b.add(-1) }

func (b *batcher) join() (in *batch, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if first = b.next == nil; first {
		b.next = &batch{written: make(chan struct{})}
	}
	b.next.size++
	return b.next, first
}

func (b *batcher) writeFor(in *batch, write func() error) error {
	b.writeLock <- struct{}{}
	defer func() { <-b.writeLock }()
	<-time.After(batchDelay)
	b.seal(in)
	err := write()
	if err != nil {
		b.add(-in.size)
	}
	return err
}

// seal waits until the senders run low, and lets nobody join any more.
func (b *batcher) seal(in *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.inFlight >= maxInFlight {
		b.fewer.Wait()
	}
	b.next = nil
	b.inFlight += in.size
}

func (b *batcher) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight += n
	b.fewer.Signal()
}
