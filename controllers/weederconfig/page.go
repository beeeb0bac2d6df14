package weederconfig

import (
	"sync"
	"time"
)

const (
	// gather is how long a write waits for deletions that are decided at the same moment. Without it a recovery's first pod
	// would be written down alone, and all others would wait for a second write.
	gather = 2 * time.Millisecond
	// enough deletions that are written down and not over let the next write wait: two for each sender.
	enough = 2 * senders
)

// page lets the deletions of one config share writes: those that are decided at the same moment, while another write is on
// its way, or while the senders have enough to do.
type page struct {
	users int           // needs Book's mu
	pen   chan struct{} // has room for whoever writes
	// version is the config's resource version as far as writers know, "" before the first; needs the pen.
	version string

	mu   sync.Mutex
	low  sync.Cond // on mu: stock has shrunk
	next *batch    // needs mu: has no write yet; nil for none
	// stock are those written down and not over; needs mu.
	stock int
}

// batch shares one write.
type batch struct {
	size    int           // needs the page's mu
	written chan struct{} // closed once the write is over
	err     error         // to be read then
}

func newPage() *page {
	p := &page{pen: make(chan struct{}, 1)}
	p.low.L = &p.mu
	return p
}

// enter returns when a write is over that began after enter was called. Without an error, leave must follow.
func (p *page) enter(write func() error) error {
	b, first := p.join()
	if first {
		b.err = p.turn(b, write)
		close(b.written)
	}
	<-b.written
	return b.err
}

// leave says that what was written down is over.
func (p *page) leave() { p.add(-1) }

// join takes a place in the next write; whoever is first must write.
func (p *page) join() (b *batch, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first = p.next == nil; first {
		p.next = &batch{written: make(chan struct{})}
	}
	p.next.size++
	return p.next, first
}

func (p *page) turn(b *batch, write func() error) error {
	p.pen <- struct{}{}
	defer func() { <-p.pen }()
	<-time.After(gather)
	p.shut(b)
	err := write()
	if err != nil {
		p.add(-b.size)
	}
	return err
}

// shut waits until the senders run low, and lets nobody join any more.
func (p *page) shut(b *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.stock >= enough {
		p.low.Wait()
	}
	p.next = nil
	p.stock += b.size
}

func (p *page) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stock += n
	p.low.Signal()
}
