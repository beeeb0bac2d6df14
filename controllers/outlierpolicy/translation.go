package outlierpolicy

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// apply has clusters served, and returns what Envoys were sent of each. One whose policy can't be confirmed stays as it was sent before.
// Namespaces with such clusters, or where something is missing, stay stale.
func (p *Publisher) tell(ctx context.Context, pic *picture, clusters []actuate.Cluster) (told map[outlier.Key]actuate.Cluster, again time.Duration, err error) {
	var held map[outlier.Key]error
	if p.Clusters != nil {
		absent := p.absent(pic)
		if len(absent.Missing) > 0 && !pic.paused.Frozen {
			again = askSoon
		}
		if held, err = p.Clusters.Apply(ctx, clusters, pic.only, absent); err != nil {
			return nil, 0, err
		}
		for _, key := range absent.Missing {
			p.stale.add(key.Service.Namespace)
		}
	}
	told = make(map[outlier.Key]actuate.Cluster, len(clusters))
	for _, c := range clusters {
		if held[c.Key] == nil {
			told[c.Key] = c
			continue
		}
		again = lookAgain
		p.stale.add(c.Key.Service.Namespace)
		log.FromContext(ctx).V(1).Info("Can't confirm a cluster's policy; Envoys keep the cluster as it was; retrying", "cluster", c.Key.String(), "reason", held[c.Key].Error())
		if before, was := p.told[c.Key.Service.Namespace][c.Key]; was {
			told[c.Key] = before
		} else if p.told == nil {
			told[c.Key] = c.InDoubt()
		}
	}
	pic.doubt(held)
	return told, again, nil
}

// keepSent stores what was sent of the namespaces that a snapshot covers, and keeps what Envoys still have of Services and routes that are
// missing there: one that returns during a freeze, or while its policy is doubtful, continues as it was.
func (p *Publisher) keep(pic *picture, told map[outlier.Key]actuate.Cluster) {
	next := map[string]map[outlier.Key]actuate.Cluster{}
	add := func(key outlier.Key, c actuate.Cluster) {
		if next[key.Service.Namespace] == nil {
			next[key.Service.Namespace] = map[outlier.Key]actuate.Cluster{}
		}
		next[key.Service.Namespace][key] = c
	}
	for key, c := range told {
		add(key, c)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for namespace := range covered(pic, p.told) {
		for key, before := range p.told[namespace] {
			_, is := next[namespace][key]
			if _, has := p.served[namespace][key]; has && !is {
				add(key, before)
			}
		}
	}
	if pic.only == nil {
		p.told, p.complete = next, p.Clock.Now()
		return
	}
	for namespace := range pic.only {
		delete(p.told, namespace)
	}
	maps.Copy(p.told, next)
}

// coveredNamespaces are the namespaces of a map that a snapshot covers.
func covered[V any](pic *picture, all map[string]V) iter.Seq[string] {
	if pic.only == nil {
		return maps.Keys(all)
	}
	return maps.Keys(pic.only)
}

// previousState is what a translation starts from.
type before struct {
	// sent is what Envoys were sent last, by namespace and cluster; nil when nothing was sent yet.
	told map[string]map[outlier.Key]actuate.Cluster
	// served are the clusters that Envoys may have in the namespaces that are translated, by Service.
	served map[types.NamespacedName]map[outlier.Key]outlier.Protocol
}

// translate returns the desired clusters of the namespaces that a snapshot covers. A process that has sent nothing yet takes what it finds
// as sent by the process before, whatever is paused since: else detection would end with each restart during an incident.
func translate(pic *picture, world outlier.World, b before) []actuate.Cluster {
	clusters := make([]actuate.Cluster, 0, len(world.Services))
	for _, svc := range world.Services {
		name := client.ObjectKeyFromObject(svc)
		served := b.served[name]
		for _, a := range pic.index.Assign(svc, slices.Collect(maps.Keys(served))) {
			told, was := b.told[svc.Namespace][a.Key]
			if _, may := served[a.Key]; a.Policy != nil && a.Policy.Doubtful && b.told != nil && !was && !may {
				continue // no Envoy has it: it is served once the rules are evaluated for its policy
			}
			c := pic.cluster(a, told, b.told == nil, served[a.Key])
			c.Hosts = outlier.HostsOf(svc, a.Port, world.Slices[name])
			clusters = append(clusters, c)
			pic.add(a, c.Hosts, c.Policy != a.Policy)
		}
		pic.seen[name] = true
	}
	return clusters
}

// desiredCluster returns a cluster as it is to be served, given what Envoys were sent before; first: nothing was sent yet. Protocol is the
// recorded one.
func (pic *picture) cluster(a *outlier.Assignment, before actuate.Cluster, first bool, protocol outlier.Protocol) actuate.Cluster {
	c := actuate.Cluster{Assignment: *a}
	state := lifecycle.Policy{Frozen: pic.paused.Frozen, Paused: pic.paused.By != ""}.State()
	switch {
	case first:
		state = lifecycle.Active
	case a.Policy != nil && a.Policy.Doubtful:
		state = lifecycle.Frozen
	}
	switch c.Policy = outlier.Under(state, a.Policy, before.Policy); c.Policy {
	case nil:
	case before.Policy:
		c.Admitted = before.Admitted
	default:
		c.Admitted = pic.policies[c.Policy.Key()].admitted
	}
	route := a.Key.Route
	if route != (outlier.RouteKey{}) && (a.TLS || !pic.index.HasRoute(a.Key.Service.Namespace, route)) { // which only the route says
		c.TCP, c.HTTP2 = a.TCP || before.TCP, a.HTTP2 || protocol == outlier.H2C
	}
	return c
}

// missingClusters are the served clusters whose Services or routes are missing in the namespaces that a snapshot covers, which include all
// where something was missing before; and those of them that live reads confirm to be gone, unless a freeze keeps them.
func (p *Publisher) absent(pic *picture) (absent actuate.Absent) {
	all := p.missing(pic)
	for _, keys := range all {
		absent.Missing = append(absent.Missing, keys...)
	}
	if pic.paused.Frozen {
		return absent
	}
	objects := make(map[object]bool, len(all))
	for o := range all {
		objects[o] = true
	}
	for o := range p.absences.confirmed(objects) {
		absent.Gone = append(absent.Gone, all[o]...)
	}
	return absent
}
