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

// stale are the namespaces in which something may have changed since they were translated; "" stands for all. What a namespace has, its
// policies' judgements and its clusters that were removed concern no other namespace, but for Autohealer's own, where the cluster's default is.
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

// take gives all of them, which are the caller's then. What it reads afterwards is at least as new.
func (s *stale) take() sets.Set[string] {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.namespaces
	s.namespaces = nil
	return taken
}

// routed takes news of Services, endpoints and routes; policies are judged first.
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

// blank is a picture without policies, of the namespaces that are to be translated. Those are all when what concerns all of them is
// no longer as it was in the last picture.
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

// goesOnFrom says whether nothing is different from the picture before that concerns all namespaces.
func (pic *picture) goesOnFrom(before *picture) bool {
	return before != nil && pic.paused == before.paused && maps.Equal(pic.routes, before.routes)
}

// look at what a picture is to be of.
func (p *Publisher) look(ctx context.Context, pic *picture) (world outlier.World, err error) {
	if pic.only != nil {
		return p.Routed.Namespaces(ctx, pic.only)
	}
	if world, err = p.Routed.World(ctx, ""); err == nil && len(pic.unread) > 0 && p.waits() {
		err = fmt.Errorf("not all routes are read yet")
	}
	return world, err
}
