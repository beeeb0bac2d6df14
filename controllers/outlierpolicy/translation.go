package outlierpolicy

import (
	"context"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// tell has clusters served, and gives what was told of each. One about which there is doubt keeps what was told before.
func (p *Publisher) tell(ctx context.Context, pic *picture, clusters []actuate.Cluster) (told map[outlier.Key]actuate.Cluster, again time.Duration, err error) {
	var held map[outlier.Key]error
	if p.Clusters != nil {
		absent := p.absent(pic)
		if len(absent.Missing) > 0 && !pic.paused.Frozen {
			again = askSoon
		}
		if held, err = p.Clusters.Apply(ctx, clusters, absent); err != nil {
			return nil, 0, err
		}
	}
	told = make(map[outlier.Key]actuate.Cluster, len(clusters))
	for _, c := range clusters {
		if held[c.Key] == nil {
			told[c.Key] = c
			continue
		}
		again = lookAgain
		log.FromContext(ctx).V(1).Info("Envoys keep a cluster as it was, looking again", "cluster", c.Key.String(), "reason", held[c.Key].Error())
		if before, was := p.told[c.Key]; was {
			told[c.Key] = before
		}
	}
	pic.doubt(held)
	return told, again, nil
}

// withMissing adds to what was told now what Envoys still have of Services and routes that are missing: one that comes back during a
// freeze, or while there is doubt about its policy, goes on as it was.
func (p *Publisher) withMissing(told map[outlier.Key]actuate.Cluster) map[outlier.Key]actuate.Cluster {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, before := range p.told {
		if _, is := told[key]; is {
			continue
		}
		if _, is := p.served[key.Service][key]; is {
			told[key] = before
		}
	}
	return told
}

// translate is what Envoys are to be told. A process that has told nothing yet takes what it finds as told by the one before,
// whatever is paused since: else detection would end with each restart during an incident.
func (p *Publisher) translate(pic *picture, world outlier.World) []actuate.Cluster {
	clusters := make([]actuate.Cluster, 0, len(p.told))
	for _, svc := range world.Services {
		name := client.ObjectKeyFromObject(svc)
		served := p.servedOf(name)
		for _, a := range pic.index.Assign(svc, slices.Collect(maps.Keys(served))) {
			before, was := p.told[a.Key]
			if a.Policy != nil && a.Policy.Doubtful && p.told != nil && !was {
				continue // it comes once its policy is judged
			}
			c := p.cluster(pic, a, before, served[a.Key])
			c.Hosts = outlier.HostsOf(svc, a.Port, world.Slices[name])
			clusters = append(clusters, c)
			pic.add(a, c.Hosts, c.Policy != a.Policy)
		}
		pic.seen[name] = true
	}
	return clusters
}

// cluster is what Envoys are to be told of one, where they were told of before; protocol is how they speak with it, as far as is known.
func (p *Publisher) cluster(pic *picture, a *outlier.Assignment, before actuate.Cluster, protocol outlier.Protocol) actuate.Cluster {
	c := actuate.Cluster{Assignment: *a}
	stance := stanceOf(pic.paused)
	switch {
	case p.told == nil:
		stance = outlier.Acting
	case a.Policy != nil && a.Policy.Doubtful:
		stance = outlier.Frozen
	}
	switch c.Policy = outlier.Under(stance, a.Policy, before.Policy); c.Policy {
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

// absent are the served clusters whose Services or routes are missing, and those of them that are gone by the API server's word. A
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
