package outlierpolicy

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/kube/outliers"
	"github.com/resourcestack/autohealer/internal/policy"
)

// policySnapshot is the state of all policies at one moment. It is immutable once it is set.
type picture struct {
	index    *outlier.Index
	policies map[types.NamespacedName]*standing
	services map[string][]*corev1.Service
	// onlyNamespaces were translated for it, and presentServices are the Services in them; other namespaces are as in the snapshot before.
	// It is nil for all namespaces.
	only map[string]bool
	seen map[types.NamespacedName]bool
	// routeKinds is the state of the informers of routes, by kind; unreadKinds are those that aren't synced.
	routes map[string]outliers.Known
	unread map[string]bool
	paused policy.Pause
}

// covers says whether a namespace was translated for the snapshot.
func (pic *picture) covers(namespace string) bool { return pic.only == nil || pic.only[namespace] }

// build completes a new snapshot with the state of all policies.
func (p *Publisher) paint(pic *picture, world outlier.World) (*picture, error) {
	before := p.picture()
	policies, err := p.stands(pic, before, world.Policies)
	if err != nil {
		return nil, err
	}
	if pic.only == nil {
		pic.index = outlier.NewIndex(policies, world.Routes, p.Routed.OwnNamespace)
	} else {
		pic.index = before.index.With(pic.only, policies, world.Routes)
		pic.takeOver(before)
	}
	for _, svc := range world.Services {
		pic.services[svc.Namespace] = append(pic.services[svc.Namespace], svc)
	}
	return pic, nil
}

// policyStates sets the states of the policies in the namespaces that a snapshot covers.
func (p *Publisher) stands(pic, before *picture, stored []*v1alpha1.OutlierPolicy) (policies []*outlier.Policy, err error) {
	for _, op := range stored {
		if op.DeletionTimestamp != nil {
			continue
		}
		key := client.ObjectKeyFromObject(op)
		var was *standing
		if before != nil {
			was = before.policies[key]
		}
		s, ok := p.stand(op, was)
		if !ok && p.waits() {
			return nil, fmt.Errorf("OutlierPolicy %s isn't judged yet", key)
		}
		if !ok {
			s = doubtful(op)
		}
		pic.policies[key] = s
		policies = append(policies, s.policy)
	}
	return policies, nil
}

// carryOver copies from the snapshot before the namespaces that this one doesn't cover. The cluster's default applies in all namespaces: of
// its state the clusters in uncovered namespaces are copied.
func (pic *picture) takeOver(before *picture) {
	for namespace, services := range before.services {
		if !pic.only[namespace] {
			pic.services[namespace] = services
		}
	}
	for key, s := range before.policies {
		switch {
		case pic.only[key.Namespace]:
		case before.index.IsGlobal(s.policy):
			pic.policies[key] = s.outside(pic.only)
		default:
			pic.policies[key] = s
		}
	}
}

// outside is a policy's state with the clusters outside of some namespaces.
func (s *standing) outside(namespaces map[string]bool) *standing {
	kept := s.anew()
	kept.clusters = make([]cluster, 0, len(s.clusters))
	for _, c := range s.clusters {
		if !namespaces[c.Key.Service.Namespace] {
			kept.clusters = append(kept.clusters, c)
		}
	}
	inside := func(a *outlier.Assignment) bool { return namespaces[a.Key.Service.Namespace] }
	kept.overridden = slices.DeleteFunc(slices.Clone(s.overridden), inside)
	kept.conflicted = slices.DeleteFunc(slices.Clone(s.conflicted), inside)
	return kept
}

// addCluster adds a cluster to the states of the policies for it.
func (pic *picture) add(a *outlier.Assignment, hosts []outlier.Host, withheld bool) {
	if a.Policy != nil {
		s := pic.policies[a.Policy.Key()]
		s.clusters = append(s.clusters, cluster{Assignment: a, hosts: hosts, withheld: withheld})
	}
	for _, o := range a.Overridden {
		s := pic.policies[o.Key()]
		s.overridden = append(s.overridden, a)
	}
	for _, c := range a.Conflicted {
		s := pic.policies[c.Key()]
		s.conflicted = append(s.conflicted, a)
	}
}

// setUnconfirmed sets why Envoys keep clusters as they were. All of these are in namespaces that the snapshot covers: the states of others
// may be in use already.
func (pic *picture) doubt(held map[outlier.Key]error) {
	if len(held) == 0 {
		return
	}
	for _, s := range pic.policies {
		for i := range s.clusters {
			if why := held[s.clusters[i].Key]; why != nil {
				s.clusters[i].doubt = why
			}
		}
	}
}

// clustersFor are the clusters for which a policy holds by one of its targets; all of them for a nil target.
func (s *standing) of(ref *v1alpha1.OutlierTargetReference) []cluster {
	return slices.DeleteFunc(slices.Clone(s.clusters), func(c cluster) bool { return ref != nil && !c.For(*ref) })
}
