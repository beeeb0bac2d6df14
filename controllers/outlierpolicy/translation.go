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

// tell has clusters served, and gives what was told of each. One about which there is doubt keeps what was told before. Namespaces with
// doubt, or where something is missing, stay stale.
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
		log.FromContext(ctx).V(1).Info("Envoys keep a cluster as it was, looking again", "cluster", c.Key.String(), "reason", held[c.Key].Error())
		if before, was := p.told[c.Key.Service.Namespace][c.Key]; was {
			told[c.Key] = before
		} else if p.told == nil {
			told[c.Key] = c.InDoubt()
		}
	}
	pic.doubt(held)
	return told, again, nil
}

// keep what was told of the namespaces that a picture covers, and what Envoys still have of Services and routes that are missing there:
// one that comes back during a freeze, or while there is doubt about its policy, goes on as it was.
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

// covered are the namespaces of something that a picture covers.
func covered[V any](pic *picture, all map[string]V) iter.Seq[string] {
	if pic.only == nil {
		return maps.Keys(all)
	}
	return maps.Keys(pic.only)
}

// before is what a translation goes on from.
type before struct {
	// told is what Envoys were told last, by namespace and cluster; nil when nobody was told anything yet.
	told map[string]map[outlier.Key]actuate.Cluster
	// served are the clusters that Envoys may have in the namespaces that are translated, by Service.
	served map[types.NamespacedName]map[outlier.Key]outlier.Protocol
}

// translate is what Envoys are to be told of the namespaces that a picture covers. A process that has told nothing yet takes what it
// finds as told by the one before, whatever is paused since: else detection would end with each restart during an incident.
func translate(pic *picture, world outlier.World, b before) []actuate.Cluster {
	clusters := make([]actuate.Cluster, 0, len(world.Services))
	for _, svc := range world.Services {
		name := client.ObjectKeyFromObject(svc)
		served := b.served[name]
		for _, a := range pic.index.Assign(svc, slices.Collect(maps.Keys(served))) {
			told, was := b.told[svc.Namespace][a.Key]
			if _, may := served[a.Key]; a.Policy != nil && a.Policy.Doubtful && b.told != nil && !was && !may {
				continue // no Envoy has it: it comes once its policy is judged
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

// cluster is what Envoys are to be told of one, where they were told of before; first: nobody was told anything yet. Protocol is how
// they speak with it, as far as is known.
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
	if route != (outlier.RouteKey{}) && (a.TLS || !pic.index.HasRoute(a.Key.Service.Namespace, route)) { // which only the route could tell
		c.TCP, c.HTTP2 = a.TCP || before.TCP, a.HTTP2 || protocol == outlier.H2C
	}
	return c
}

// absent are the served clusters whose Services or routes are missing in the namespaces that a picture covers, which are all where
// something was missing before; and those of them that are gone by the API server's word. A
// freeze keeps them.
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
