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

// picture is how all policies stood at one moment. It doesn't change any more once it is shown.
type picture struct {
	index    *outlier.Index
	policies map[types.NamespacedName]*standing
	services map[string][]*corev1.Service
	// only are the namespaces that were translated for it, of which seen has all Services; the others are as they were in the picture
	// before. It is nil for all.
	only map[string]bool
	seen map[types.NamespacedName]bool
	// routes is what is known of the kinds of routes, unread are those of which isn't known which there are.
	routes map[string]outliers.Known
	unread map[string]bool
	paused policy.Pause
}

// covers says whether a namespace was translated for the picture.
func (pic *picture) covers(namespace string) bool { return pic.only == nil || pic.only[namespace] }

// paint into a blank picture how all policies stand.
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

// stands finds out how the policies of the namespaces that a picture covers stand.
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

// takeOver what was in the picture before of namespaces that this one doesn't cover. The cluster's default holds in others, too: of it
// the clusters outside are taken over.
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

// outside is how a policy stands, with what was counted outside of some namespaces.
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

// add counts a cluster for the policies that it has to do with.
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

// doubt notes why Envoys keep clusters as they were. All of them are of namespaces that the picture covers: what it has of others is
// shown already.
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

// of gives the clusters for which a policy holds by one of its targets; all of a default's.
func (s *standing) of(ref *v1alpha1.OutlierTargetReference) []cluster {
	return slices.DeleteFunc(slices.Clone(s.clusters), func(c cluster) bool { return ref != nil && !c.For(*ref) })
}
