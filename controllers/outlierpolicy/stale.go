package outlierpolicy

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// staleNamespaces are the namespaces in which something may have changed since they were translated; "" stands for all. The objects of a
// namespace, verdicts on its policies and removals of its clusters concern no other namespace, but for Autohealer's own, which has the
// cluster's default.
type stale struct {
	mu         sync.Mutex
	namespaces sets.Set[string] // needs mu
}

func (s *stale) add(namespaces ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespaces == nil {
		s.namespaces = sets.New[string]()
	}
	s.namespaces.Insert(namespaces...)
}

// take returns and clears them. What the caller reads afterwards is at least as new.
func (s *stale) take() sets.Set[string] {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.namespaces
	s.namespaces = nil
	return taken
}

// onObject handles changes of Services, endpoints and routes; onPolicy and onVerdict handle policies.
func (p *Publisher) routed(object any) {
	if last, unseen := object.(toolscache.DeletedFinalStateUnknown); unseen {
		object = last.Obj
	}
	switch o := object.(type) {
	case *v1alpha1.OutlierPolicy:
		return
	case client.Object:
		p.stale.add(o.GetNamespace())
	default:
		p.stale.add("")
	}
	p.changed()
}

// newSnapshot is a snapshot without policies, of the namespaces that are to be translated. These are all when something changed that
// concerns all namespaces.
func (p *Publisher) blank(changed sets.Set[string]) (*picture, error) {
	pic := &picture{
		policies: map[types.NamespacedName]*standing{}, services: map[string][]*corev1.Service{}, seen: map[types.NamespacedName]bool{},
		routes: p.Routed.Known(), unread: map[string]bool{},
	}
	for kind, known := range pic.routes {
		if !known.Read {
			pic.unread[kind] = true
		}
	}
	var known bool
	if pic.paused, known = p.policies.PausedBy(); !known && p.told == nil {
		return nil, fmt.Errorf("no Guardrail is read yet")
	}
	if p.told == nil || changed.HasAny("", p.Routed.OwnNamespace) || p.Clock.Since(p.complete) >= atLeast || !pic.goesOnFrom(p.picture()) {
		return pic, nil
	}
	pic.only = map[string]bool{}
	for namespace := range changed {
		pic.only[namespace] = true
	}
	return pic, nil
}

// canExtend says whether nothing changed since the snapshot before that concerns all namespaces.
func (pic *picture) goesOnFrom(before *picture) bool {
	return before != nil && pic.paused == before.paused && maps.Equal(pic.routes, before.routes)
}

// listObjects lists the objects that a snapshot covers.
func (p *Publisher) look(ctx context.Context, pic *picture) (world outlier.World, err error) {
	if pic.only != nil {
		return p.Routed.Namespaces(ctx, pic.only)
	}
	if world, err = p.Routed.World(ctx, ""); err == nil && len(pic.unread) > 0 && p.waits() {
		err = fmt.Errorf("not all routes are read yet")
	}
	return world, err
}
