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
type staleNamespaces struct {
	mu         sync.Mutex
	namespaces sets.Set[string] // needs mu
}

func (s *staleNamespaces) add(namespaces ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespaces == nil {
		s.namespaces = sets.New[string]()
	}
	s.namespaces.Insert(namespaces...)
}

// take returns and clears them. What the caller reads afterwards is at least as new.
func (s *staleNamespaces) take() sets.Set[string] {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.namespaces
	s.namespaces = nil
	return taken
}

// onObject handles changes of Services, endpoints and routes; onPolicy and onVerdict handle policies.
func (p *Publisher) onObject(object any) {
	if last, missed := object.(toolscache.DeletedFinalStateUnknown); missed {
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
	p.requestTranslation()
}

// newSnapshot is a snapshot without policies, of the namespaces that are to be translated. These are all when something changed that
// concerns all namespaces.
func (p *Publisher) newSnapshot(changed sets.Set[string]) (*policySnapshot, error) {
	snap := &policySnapshot{
		policies: map[types.NamespacedName]*policyState{}, services: map[string][]*corev1.Service{}, presentServices: map[types.NamespacedName]bool{},
		routeKinds: p.Informers.RouteKindStates(), unreadKinds: map[string]bool{},
	}
	for kind, known := range snap.routeKinds {
		if !known.Read {
			snap.unreadKinds[kind] = true
		}
	}
	var known bool
	if snap.paused, known = p.policies.PausedBy(); !known && p.sent == nil {
		return nil, fmt.Errorf("no Guardrail is read yet")
	}
	if p.sent == nil || changed.HasAny("", p.Informers.OwnNamespace) || p.Clock.Since(p.lastFull) >= fullInterval || !snap.canExtend(p.snapshot()) {
		return snap, nil
	}
	snap.onlyNamespaces = map[string]bool{}
	for namespace := range changed {
		snap.onlyNamespaces[namespace] = true
	}
	return snap, nil
}

// canExtend says whether nothing changed since the snapshot before that concerns all namespaces.
func (snap *policySnapshot) canExtend(before *policySnapshot) bool {
	return before != nil && snap.paused == before.paused && maps.Equal(snap.routeKinds, before.routeKinds)
}

// listObjects lists the objects that a snapshot covers.
func (p *Publisher) listObjects(ctx context.Context, snap *policySnapshot) (objects outlier.Objects, err error) {
	if snap.onlyNamespaces != nil {
		return p.Informers.ObjectsIn(ctx, snap.onlyNamespaces)
	}
	if objects, err = p.Informers.Objects(ctx, ""); err == nil && len(snap.unreadKinds) > 0 && p.isStarting() {
		err = fmt.Errorf("not all routes are read yet")
	}
	return objects, err
}
