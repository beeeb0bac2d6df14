package checking

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// failureKept is for how long a question about a kind that failed isn't asked again: checks may name one that is served later, a right
// may be missing, and each target's look would be a request.
const failureKept = 5 * time.Second

// scopes knows whether kinds have namespaces. However many ask for a kind at a time, the API server is asked once, and nobody waits
// longer than its context. It is safe for concurrent use.
type scopes struct {
	// ask may make a request.
	ask   func(schema.GroupVersionKind) (meta.RESTScopeName, error)
	clock clock.PassiveClock

	asking singleflight.Group
	mu     sync.Mutex
	known  map[schema.GroupVersionKind]scope // needs mu
}

// scope is what was answered.
type scope struct {
	name meta.RESTScopeName
	err  error
	at   time.Time
}

func scopeBy(mapper meta.RESTMapper) func(schema.GroupVersionKind) (meta.RESTScopeName, error) {
	return func(kind schema.GroupVersionKind) (meta.RESTScopeName, error) {
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return "", err
		}
		return mapping.Scope.Name(), nil
	}
}

// of gives a kind's scope. An error is kept for a while, and a scope for good.
func (s *scopes) of(ctx context.Context, kind schema.GroupVersionKind) (meta.RESTScopeName, error) {
	s.mu.Lock()
	known, ok := s.known[kind]
	s.mu.Unlock()
	if ok && (known.err == nil || s.clock.Since(known.at) < failureKept) {
		return known.name, known.err
	}
	answer := s.asking.DoChan(kind.String(), func() (any, error) {
		name, err := s.ask(kind)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.known == nil {
			s.known = map[schema.GroupVersionKind]scope{}
		}
		s.known[kind] = scope{name, err, s.clock.Now()}
		return name, err
	})
	select {
	case a := <-answer:
		return a.Val.(meta.RESTScopeName), a.Err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
