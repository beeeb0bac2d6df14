package checking

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
)

const (
	// failureTTL is for how long a question about a kind that failed isn't asked again: checks may name one that is served later, a right
	// may be missing, and each target's look would be a request.
	failureTTL = 5 * time.Second
	// layoutTTL is for how long a kind's layout is trusted, unless it is invalidated.
	layoutTTL = time.Hour
	// requestTimeout is for how long a question is waited for: all who ask for the kind meanwhile wait with it, and nobody asks anew.
	requestTimeout = 10 * time.Second
)

// kindCache knows something of kinds. However many ask for a kind at a time, the API server is asked once, and nobody waits longer than its
// context. It is safe for concurrent use.
type kindCache[T any] struct {
	// ask may make a request, whoever still waits for it.
	ask   func(context.Context, schema.GroupVersionKind) (T, error)
	clock clock.PassiveClock
	// ttl is for how long an answer is trusted; zero: for good.
	ttl time.Duration

	requests singleflight.Group
	mu       sync.Mutex
	known    map[schema.GroupVersionKind]cachedAnswer[T] // needs mu
}

type cachedAnswer[T any] struct {
	value T
	err   error
	at    time.Time
}

// Of gives what is known of a kind. An error is kept for a while.
func (a *kindCache[T]) Of(ctx context.Context, kind schema.GroupVersionKind) (is T, err error) {
	a.mu.Lock()
	was, ok := a.known[kind]
	a.mu.Unlock()
	kept := a.ttl
	if was.err != nil {
		kept = failureTTL
	}
	if ok && (kept == 0 || a.clock.Since(was.at) < kept) {
		return was.value, was.err
	}
	asked := a.requests.DoChan(kind.String(), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		is, err := a.ask(ctx, kind)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.known == nil {
			a.known = map[schema.GroupVersionKind]cachedAnswer[T]{}
		}
		a.known[kind] = cachedAnswer[T]{is, err, a.clock.Now()}
		return is, err
	})
	select {
	case answered := <-asked:
		return answered.Val.(T), answered.Err
	case <-ctx.Done():
		return is, context.Cause(ctx)
	}
}

// Invalidate has a kind asked for anew, if it wasn't just now: a write failed, of which there may be thousands, or can't be made.
func (a *kindCache[T]) Invalidate(kind schema.GroupVersionKind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clock.Since(a.known[kind].at) >= failureTTL {
		delete(a.known, kind)
	}
}

// scopes knows whether kinds have namespaces.
type scopes = kindCache[meta.RESTScopeName]

func scopeBy(mapper meta.RESTMapper) func(context.Context, schema.GroupVersionKind) (meta.RESTScopeName, error) {
	return func(_ context.Context, kind schema.GroupVersionKind) (meta.RESTScopeName, error) {
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return "", err
		}
		return mapping.Scope.Name(), nil
	}
}

// Layouts knows how kinds keep conditions.
type Layouts struct{ kindCache[health.Layout] }

// NewLayouts reads kinds' layouts from their CustomResourceDefinitions.
func NewLayouts(live client.Reader, mapper meta.RESTMapper, now clock.PassiveClock) *Layouts {
	reads := &dependents.Live{Reader: live, Mapper: mapper}
	return &Layouts{kindCache[health.Layout]{ask: reads.Layout, clock: now, ttl: layoutTTL}}
}
