package checking

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

// layoutKept is for how long a kind's layout is believed, unless somebody doubts it.
const layoutKept = time.Hour

var definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// Layouts knows how kinds keep conditions. It is safe for concurrent use.
type Layouts struct {
	Live   client.Reader
	Mapper meta.RESTMapper
	Clock  clock.PassiveClock

	mu    sync.Mutex
	known map[schema.GroupVersionKind]layout // needs mu
}

type layout struct {
	health.Layout
	err error
	at  time.Time
}

// kept is for how long it is believed.
func (l layout) kept() time.Duration {
	if l.err != nil {
		return failureKept
	}
	return layoutKept
}

// Of gives a kind's layout, by its CustomResourceDefinition.
func (l *Layouts) Of(ctx context.Context, kind schema.GroupVersionKind) (health.Layout, error) {
	l.mu.Lock()
	known, ok := l.known[kind]
	l.mu.Unlock()
	if ok && l.Clock.Since(known.at) < known.kept() {
		return known.Layout, known.err
	}
	is, err := l.read(ctx, kind)
	if err != nil && ctx.Err() != nil { // which says nothing about the kind
		return is, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[schema.GroupVersionKind]layout{}
	}
	l.known[kind] = layout{is, err, l.Clock.Now()}
	return is, err
}

func (l *Layouts) read(ctx context.Context, kind schema.GroupVersionKind) (health.Layout, error) {
	mapping, err := l.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return health.Layout{}, fmt.Errorf("find the resource of %s: %w", kind.Kind, err)
	}
	definition := empty(definitionKind)
	name := mapping.Resource.GroupResource().String()
	if err := l.Live.Get(ctx, client.ObjectKey{Name: name}, definition); err != nil {
		return health.Layout{}, fmt.Errorf("read how %s keeps conditions: %w", kind.Kind, err)
	}
	return health.LayoutOf(definition, kind.Version), nil
}

// Doubt has a kind's layout read anew, if it wasn't just now: a write failed, of which there may be thousands, or can't be made.
func (l *Layouts) Doubt(kind schema.GroupVersionKind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Clock.Since(l.known[kind].at) >= failureKept {
		delete(l.known, kind)
	}
}
