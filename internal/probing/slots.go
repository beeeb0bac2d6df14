package probing

import (
	"context"
	"sync"
)

const (
	// maxListings is how many clusters' leases are listed at once: a page takes memory, and servers say how much.
	maxListings = 16
	// maxSlow is how many of those are besides whose servers let us wait before: who trickles its answers must not keep
	// everybody's places.
	maxSlow = 4
	// maxPerNamespace is how many a namespace has at once, with however many configs. A tenant can make these.
	maxPerNamespace = 2
)

// listSlots are the places of listings. It is safe for concurrent use.
type listSlots struct {
	prompt, slow chan struct{}

	mu sync.Mutex
	// byNamespace has how many each namespace has, or waits for; needs mu.
	byNamespace map[string]int
}

func newSlots() *listSlots {
	return &listSlots{prompt: make(chan struct{}, maxListings), slow: make(chan struct{}, maxSlow), byNamespace: map[string]int{}}
}

// acquire waits for a place until ctx ends; ok is false when there is none, and free is to be called otherwise.
func (s *listSlots) acquire(ctx context.Context, namespace string, slow bool) (free func(), ok bool) {
	if !s.reserve(namespace) {
		return nil, false
	}
	places := s.prompt
	if slow {
		places = s.slow
	}
	select {
	case places <- struct{}{}:
		return func() {
			<-places
			s.release(namespace)
		}, true
	case <-ctx.Done():
		s.release(namespace)
		return nil, false
	}
}

func (s *listSlots) reserve(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byNamespace[namespace] >= maxPerNamespace {
		return false
	}
	s.byNamespace[namespace]++
	return true
}

func (s *listSlots) release(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byNamespace[namespace]--; s.byNamespace[namespace] == 0 {
		delete(s.byNamespace, namespace)
	}
}
