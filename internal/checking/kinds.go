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
	// failureKept is for how long a question about a kind that failed isn't asked again: checks may name one that is served later, a right
	// may be missing, and each target's look would be a request.
	failureKept = 5 * time.Second
	// layoutKept is for how long a kind's layout is believed, unless somebody doubts it.
	layoutKept = time.Hour
	// askTimeout is for how long a question is waited for: all who ask for the kind meanwhile wait with it, and nobody asks anew.
	askTimeout = 10 * time.Second
)

// answers knows something of kinds. However many ask for a kind at a time, the API server is asked once, and nobody waits longer than its
// context. It is safe for concurrent use.
type answers[T any] struct {
	// ask may make a request, whoever still waits for it.
	ask   func(context.Context, schema.GroupVersionKind) (T, error)
	clock clock.PassiveClock
	// kept is for how long an answer is believed; zero: for good.
	kept time.Duration

	asking singleflight.Group
	mu     sync.Mutex
	known  map[schema.GroupVersionKind]known[T] // needs mu
}

type known[T any] struct {
	is  T
	err error
	at  time.Time
}

// Of gives what is known of a kind. An error is kept for a while.
func (a *answers[T]) Of(ctx context.Context, kind schema.GroupVersionKind) (is T, err error) {
	a.mu.Lock()
	was, ok := a.known[kind]
	a.mu.Unlock()
	kept := a.kept
	if was.err != nil {
		kept = failureKept
	}
	if ok && (kept == 0 || a.clock.Since(was.at) < kept) {
		return was.is, was.err
	}
	asked := a.asking.DoChan(kind.String(), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		is, err := a.ask(ctx, kind)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.known == nil {
			a.known = map[schema.GroupVersionKind]known[T]{}
		}
		a.known[kind] = known[T]{is, err, a.clock.Now()}
		return is, err
	})
	select {
	case answered := <-asked:
		return answered.Val.(T), answered.Err
	case <-ctx.Done():
		return is, context.Cause(ctx)
	}
}

// Doubt has a kind asked for anew, if it wasn't just now: a write failed, of which there may be thousands, or can't be made.
func (a *answers[T]) Doubt(kind schema.GroupVersionKind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clock.Since(a.known[kind].at) >= failureKept {
		delete(a.known, kind)
	}
}

// scopes knows whether kinds have namespaces.
type scopes = answers[meta.RESTScopeName]

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
type Layouts struct{ answers[health.Layout] }

// NewLayouts reads kinds' layouts from their CustomResourceDefinitions.
func NewLayouts(live client.Reader, mapper meta.RESTMapper, now clock.PassiveClock) *Layouts {
	reads := &dependents.Live{Reader: live, Mapper: mapper}
	return &Layouts{answers[health.Layout]{ask: reads.Layout, clock: now, kept: layoutKept}}
}
