package outlierpolicy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/kube/outliers"
	"github.com/resourcestack/autohealer/internal/policy"
)

// policySnapshot is the state of all policies at one moment. It is immutable once it is set.
type policySnapshot struct {
	index    *outlier.Index
	policies map[types.NamespacedName]*policyState
	services map[string][]*corev1.Service
	// clusters of each policy, by namespace.
	clusters map[string]map[types.NamespacedName]*policyClusters
	// onlyNamespaces were translated for it, and presentServices are the Services in them; other namespaces are as in the snapshot before.
	// It is nil for all namespaces.
	onlyNamespaces  map[string]bool
	presentServices map[types.NamespacedName]bool
	// routeKinds is the state of the informers of routes, by kind; unreadKinds are those that aren't synced.
	routeKinds  map[string]outliers.RouteKindState
	unreadKinds map[string]bool
	paused      policy.Pause
}

// covers says whether a namespace was translated for the snapshot.
func (snap *policySnapshot) covers(namespace string) bool {
	return snap.onlyNamespaces == nil || snap.onlyNamespaces[namespace]
}

// state of all policies that are admitted.
func (snap *policySnapshot) state() lifecycle.State {
	return lifecycle.Policy{Frozen: snap.paused.Frozen, Paused: snap.paused.By != ""}.State()
}

// build completes a new snapshot with the state of all policies.
func (p *Publisher) build(snap *policySnapshot, objects outlier.Objects) (*policySnapshot, error) {
	before := p.snapshot()
	policies, err := p.policyStates(snap, before, objects.Policies)
	if err != nil {
		return nil, err
	}
	if snap.onlyNamespaces == nil {
		snap.index = outlier.NewIndex(policies, objects.Routes, p.Informers.OwnNamespace)
	} else {
		snap.index = before.index.With(snap.onlyNamespaces, policies, objects.Routes)
		snap.carryOver(before)
	}
	for _, svc := range objects.Services {
		snap.services[svc.Namespace] = append(snap.services[svc.Namespace], svc)
	}
	return snap, nil
}

// policyStates sets the states of the policies in the namespaces that a snapshot covers.
func (p *Publisher) policyStates(snap, before *policySnapshot, stored []*v1alpha1.OutlierPolicy) (policies []*outlier.Policy, err error) {
	for _, op := range stored {
		if op.DeletionTimestamp != nil {
			continue
		}
		key := client.ObjectKeyFromObject(op)
		var previous *policyState
		if before != nil {
			previous = before.policies[key]
		}
		s, ok := p.stateOf(op, previous)
		if !ok && p.isStarting() {
			return nil, fmt.Errorf("OutlierPolicy %s isn't judged yet", key)
		}
		if !ok {
			s = doubtfulState(op)
		}
		snap.policies[key] = s
		policies = append(policies, s.policy)
	}
	return policies, nil
}

// carryOver copies from the snapshot before the namespaces that this one doesn't cover.
func (snap *policySnapshot) carryOver(before *policySnapshot) {
	for namespace, services := range before.services {
		if !snap.covers(namespace) {
			snap.services[namespace] = services
		}
	}
	for namespace, clusters := range before.clusters {
		if !snap.covers(namespace) {
			snap.clusters[namespace] = clusters
		}
	}
	for key, s := range before.policies {
		if !snap.covers(key.Namespace) {
			snap.policies[key] = s
		}
	}
}

// addCluster adds a cluster to those of the policies for it.
func (snap *policySnapshot) addCluster(a *outlier.Assignment, hosts []outlier.Host, paused bool) {
	namespace := a.Key.Service.Namespace
	if snap.clusters[namespace] == nil {
		snap.clusters[namespace] = map[types.NamespacedName]*policyClusters{}
	}
	of := func(p *outlier.Policy) *policyClusters {
		c := snap.clusters[namespace][p.Key()]
		if c == nil {
			c = &policyClusters{}
			snap.clusters[namespace][p.Key()] = c
		}
		return c
	}
	if a.Policy != nil {
		c := of(a.Policy)
		c.holds = append(c.holds, cluster{Assignment: a, hosts: hosts, paused: paused})
	}
	for _, p := range a.Overridden {
		of(p).overridden++
	}
	for _, p := range a.Conflicted {
		of(p).conflicted++
	}
}

// clustersOf are the clusters of a policy, in all namespaces for the cluster's default.
func (snap *policySnapshot) clustersOf(p *outlier.Policy) (all policyClusters) {
	namespaces := maps.Keys(snap.clusters)
	if !snap.index.IsGlobal(p) {
		namespaces = slices.Values([]string{p.Namespace})
	}
	for namespace := range namespaces {
		if of := snap.clusters[namespace][p.Key()]; of != nil {
			all.holds = append(all.holds, of.holds...)
			all.overridden, all.conflicted = all.overridden+of.overridden, all.conflicted+of.conflicted
		}
	}
	return all
}

// setUnconfirmed sets why Envoys keep clusters as they were. All of these are in namespaces that the snapshot covers: the clusters of others
// may be in use already.
func (snap *policySnapshot) setUnconfirmed(held map[outlier.Key]error) {
	namespaces := sets.New[string]()
	for key := range held {
		namespaces.Insert(key.Service.Namespace)
	}
	for namespace := range namespaces {
		for _, of := range snap.clusters[namespace] {
			for i := range of.holds {
				if err := held[of.holds[i].Key]; err != nil {
					of.holds[i].unconfirmed = err
				}
			}
		}
	}
}

// clustersFor are the clusters for which a policy holds by one of its targets; all of them for a nil target.
func clustersFor(ref *v1alpha1.OutlierTargetReference, holds []cluster) []cluster {
	return slices.DeleteFunc(slices.Clone(holds), func(c cluster) bool { return ref != nil && !c.IsFor(*ref) })
}

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
	p.translation.fire()
}

// newSnapshot is a snapshot without policies, of the namespaces that are to be translated. These are all when something changed that
// concerns all namespaces.
func (p *Publisher) newSnapshot(changed sets.Set[string]) (*policySnapshot, error) {
	snap := &policySnapshot{
		policies: map[types.NamespacedName]*policyState{}, services: map[string][]*corev1.Service{}, clusters: map[string]map[types.NamespacedName]*policyClusters{}, presentServices: map[types.NamespacedName]bool{},
		routeKinds: p.Informers.RouteKindStates(), unreadKinds: map[string]bool{},
	}
	for kind, known := range snap.routeKinds {
		if !known.Read {
			snap.unreadKinds[kind] = true
		}
	}
	var known bool
	before := p.snapshot()
	if snap.paused, known = p.policies.PausedBy(); !known && before == nil {
		return nil, fmt.Errorf("no Guardrail is read yet")
	}
	if !snap.canExtend(before) || changed.HasAny("", p.Informers.OwnNamespace) || p.Clock.Since(p.lastFull) >= fullInterval {
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
