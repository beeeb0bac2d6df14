package outlierpolicy

import (
	"context"
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

// apply has clusters served. One whose policy can't be confirmed stays as it was sent before. Namespaces with such clusters, or where
// something is missing, stay stale.
func (p *Publisher) apply(ctx context.Context, snap *policySnapshot, clusters []actuate.Cluster) (again time.Duration, err error) {
	missing := p.clusters(snap)
	if len(missing.Missing) > 0 && !snap.paused.Frozen {
		again = unansweredRetry
	}
	held, removed, err := p.Clusters.Apply(ctx, clusters, missing)
	if err != nil {
		return 0, err
	}
	for _, key := range missing.Missing {
		p.stale.add(key.Service.Namespace)
	}
	for key, err := range held {
		again = retryAfter
		p.stale.add(key.Service.Namespace)
		log.FromContext(ctx).V(1).Info("Can't confirm a cluster's policy; Envoys keep the cluster as it was; retrying", "cluster", key.String(), "reason", err.Error())
	}
	snap.setUnconfirmed(held)
	sent := make(map[outlier.Key]outlier.Protocol, len(clusters))
	for i := range clusters {
		if last, wasSent := p.Clusters.Last(clusters[i].Key); wasSent {
			sent[last.Key] = last.Protocol()
		}
	}
	p.addServed(sent)
	p.forgetRemoved(removed)
	return again, nil
}

// previousState is what a translation starts from.
type previousState struct {
	// isFirst: nothing was sent yet, or no xDS is served.
	isFirst bool
	// last is a cluster as Envoys were sent it last. Those of Services and routes that are missing stay: one that returns during a freeze, or
	// while its policy is doubtful, continues as it was.
	last func(outlier.Key) (cluster actuate.Cluster, sent bool)
	// served are the clusters that Envoys may have in the namespaces that are translated, by Service.
	served map[types.NamespacedName]map[outlier.Key]outlier.Protocol
}

// translate returns the desired clusters of the namespaces that a snapshot covers. A process that has sent nothing yet takes what it finds
// as sent by the process before, whatever is paused since: else detection would end with each restart during an incident.
func translate(snap *policySnapshot, objects outlier.Objects, previous previousState) []actuate.Cluster {
	clusters := make([]actuate.Cluster, 0, len(objects.Services))
	for _, svc := range objects.Services {
		name := client.ObjectKeyFromObject(svc)
		served := previous.served[name]
		for _, a := range snap.index.Assign(svc, slices.Collect(maps.Keys(served))) {
			last, was := previous.last(a.Key)
			if _, isServed := served[a.Key]; a.Policy != nil && a.Policy.Doubtful && !previous.isFirst && !was && !isServed {
				continue // no Envoy has it: it is served once the rules are evaluated for its policy
			}
			c := snap.desiredCluster(a, last, previous.isFirst, served[a.Key])
			c.Hosts = outlier.HostsOf(svc, a.Port, objects.Slices[name])
			clusters = append(clusters, c)
			snap.addCluster(a, c.Hosts, c.Policy != a.Policy)
		}
		snap.presentServices[name] = true
	}
	return clusters
}

// desiredCluster returns a cluster as it is to be served, given what Envoys were sent before; first: nothing was sent yet. Protocol is the
// recorded one.
func (snap *policySnapshot) desiredCluster(a *outlier.Assignment, before actuate.Cluster, first bool, protocol outlier.Protocol) actuate.Cluster {
	c := actuate.Cluster{Assignment: *a}
	state := snap.state()
	switch {
	case first:
		state = lifecycle.Active
	case a.Policy != nil && a.Policy.Doubtful:
		state = lifecycle.Frozen
	}
	switch c.Policy = outlier.EffectivePolicy(state, a.Policy, before.Policy); c.Policy {
	case nil:
	case before.Policy:
		c.Admitted = before.Admitted
	default:
		c.Admitted = snap.policies[c.Policy.Key()].admitted
	}
	route := a.Key.Route
	if route != (outlier.RouteKey{}) && (a.TLS || !snap.index.HasRoute(a.Key.Service.Namespace, route)) { // which only the route says
		c.TCP, c.HTTP2 = a.TCP || before.TCP, a.HTTP2 || protocol == outlier.H2C
	}
	return c
}

// missingClusters are the served clusters whose Services or routes are missing in the namespaces that a snapshot covers, which include all
// where something was missing before; and those of them that live reads confirm to be gone, unless a freeze keeps them.
func (p *Publisher) clusters(snap *policySnapshot) (clusters actuate.Absent) {
	all := p.missingObjects(snap)
	for _, keys := range all {
		clusters.Missing = append(clusters.Missing, keys...)
	}
	if snap.paused.Frozen {
		return clusters
	}
	objects := make(map[objectRef]bool, len(all))
	for o := range all {
		objects[o] = true
	}
	for o := range p.confirmer.confirmedGone(objects) {
		clusters.Gone = append(clusters.Gone, all[o]...)
	}
	return clusters
}
