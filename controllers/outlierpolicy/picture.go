package outlierpolicy

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

// picture is how all policies stood at one moment.
type picture struct {
	index    *outlier.Index
	policies map[types.NamespacedName]*standing
	services map[string][]*corev1.Service
	seen     map[types.NamespacedName]bool
	// unread are the kinds of routes of which isn't known which there are.
	unread map[string]bool
	paused status.Pause
}

// paint finds out how all policies stand.
func (p *Publisher) paint(world outlier.World) (*picture, error) {
	pic := &picture{policies: map[types.NamespacedName]*standing{}, services: map[string][]*corev1.Service{}, seen: map[types.NamespacedName]bool{}, unread: world.Unread}
	var known bool
	if pic.paused, known = p.judge.PausedBy(); !known && p.told == nil {
		return nil, fmt.Errorf("no Guardrail is read yet")
	}
	before := p.picture()
	var policies []*outlier.Policy
	for _, op := range world.Policies {
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
	pic.index = outlier.NewIndex(policies, world.Routes, p.Routed.OwnNamespace)
	for _, svc := range world.Services {
		pic.services[svc.Namespace] = append(pic.services[svc.Namespace], svc)
	}
	return pic, nil
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

// doubt notes why Envoys keep clusters as they were.
func (pic *picture) doubt(held map[outlier.Key]error) {
	if len(held) == 0 {
		return
	}
	for _, s := range pic.policies {
		for i := range s.clusters {
			s.clusters[i].doubt = held[s.clusters[i].Key]
		}
	}
}

// of gives the clusters for which a policy holds by one of its targets; all of a default's.
func (s *standing) of(ref *v1alpha1.OutlierTargetReference) []cluster {
	return slices.DeleteFunc(slices.Clone(s.clusters), func(c cluster) bool { return ref != nil && !c.For(*ref) })
}
