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
	// maxOfNamespace is how many a namespace has at once, with however many configs. A tenant can make these.
	maxOfNamespace = 2
)

// slots are the places of listings. It is safe for concurrent use.
type slots struct {
	prompt, slow chan struct{}

	mu sync.Mutex
	// of has how many each namespace has, or waits for; needs mu.
	of map[string]int
}

func newSlots() *slots {
	return &slots{prompt: make(chan struct{}, maxListings), slow: make(chan struct{}, maxSlow), of: map[string]int{}}
}

// take waits for a place until ctx ends; ok is false when there is none, and free is to be called otherwise.
func (s *slots) take(ctx context.Context, namespace string, slow bool) (free func(), ok bool) {
	if !s.enter(namespace) {
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
			s.leave(namespace)
		}, true
	case <-ctx.Done():
		s.leave(namespace)
		return nil, false
	}
}

func (s *slots) enter(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[namespace] >= maxOfNamespace {
		return false
	}
	s.of[namespace]++
	return true
}

func (s *slots) leave(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[namespace]--; s.of[namespace] == 0 {
		delete(s.of, namespace)
	}
}
