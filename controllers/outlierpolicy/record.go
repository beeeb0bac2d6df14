package outlierpolicy

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// Record is where all replicas record which clusters Envoys were sent.
type Record interface {
	Read(context.Context) (map[outlier.Key]outlier.Protocol, error)
	Change(ctx context.Context, before, now map[outlier.Key]outlier.Protocol) error
}

// readRecord reads the clusters that Envoys were sent before this process started. Nothing is published until then: a cluster whose
// policy is gone would be missing.
func (p *Publisher) readRecord(ctx context.Context) {
	if p.Record == nil {
		return
	}
	_ = wait.PollUntilContextCancel(ctx, retryAfter, true, func(ctx context.Context) (bool, error) {
		clusters, err := p.Record.Read(ctx)
		if err != nil {
			log.FromContext(ctx).Error(err, "Can't read which clusters Envoys have; none is served until that is known")
			return false, nil
		}
		p.addServed(clusters)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.recorded = clusters
		return true, nil
	}) // it ends with the context only
}

// record writes the record where the served clusters changed.
func (p *Publisher) record(ctx context.Context) (again time.Duration) {
	if p.Record == nil {
		return 0
	}
	if err := p.writeRecord(ctx); err != nil {
		log.FromContext(ctx).Error(err, "Can't record which clusters Envoys have; those without a policy might be missed after a restart")
		return recordRetryAfter
	}
	return 0
}

func (p *Publisher) writeRecord(ctx context.Context) error {
	if serves := p.Clusters.Server.Serves; serves != nil && !serves() {
		return fmt.Errorf("the cluster isn't known to be this installation's")
	}
	now := map[outlier.Key]outlier.Protocol{}
	p.mu.Lock()
	before := p.recorded
	for _, clusters := range p.served {
		maps.Copy(now, clusters)
	}
	p.mu.Unlock()
	if maps.Equal(before, now) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := p.Record.Change(ctx, before, now); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recorded = now
	return nil
}

// forgetRemoved drops clusters that were removed from Envoys, since their Services or routes are gone.
func (p *Publisher) forgetRemoved(names []string) {
	if len(names) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		key, ok := outlier.ParseKey(name)
		if !ok {
			continue
		}
		clusters := p.served[key.Service.Namespace]
		if delete(clusters, key); len(clusters) == 0 {
			delete(p.served, key.Service.Namespace)
		}
		p.stale.add(key.Service.Namespace)
	}
	p.recording.fire()
}

// addServed adds clusters that Envoys were sent.
func (p *Publisher) addServed(clusters map[outlier.Key]outlier.Protocol) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := false
	for key, protocol := range clusters {
		ofNamespace := p.served[key.Service.Namespace]
		if ofNamespace == nil {
			ofNamespace = map[outlier.Key]outlier.Protocol{}
			p.served[key.Service.Namespace] = ofNamespace
		}
		if before, is := ofNamespace[key]; !is || before != protocol {
			ofNamespace[key], changed = protocol, true
		}
	}
	if changed {
		p.recording.fire()
	}
}

// missingObjects are the objects of served clusters that a snapshot doesn't have in the namespaces that it covers: a cluster's Service, and
// its route if it belongs to one. Routes of a kind that isn't read don't count as missing.
func (p *Publisher) missingObjects(snap *policySnapshot) map[objectRef][]outlier.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	missing := map[objectRef][]outlier.Key{}
	for namespace := range coveredNamespaces(snap, p.served) {
		for key := range p.served[namespace] {
			if o, is := p.missingObject(snap, key); is {
				missing[o] = append(missing[o], key)
			}
		}
	}
	return missing
}

// missingObject returns the missing object of a served cluster, if there is one.
func (p *Publisher) missingObject(snap *policySnapshot, key outlier.Key) (o objectRef, is bool) {
	service := key.Service
	if !snap.presentServices[service] {
		return objectRef{corev1.SchemeGroupVersion.WithKind("Service"), service}, true
	}
	if key.Route == (outlier.RouteKey{}) || snap.unreadKinds[key.Route.Kind] || snap.index.HasRoute(service.Namespace, key.Route) {
		return o, false
	}
	kind, known := p.Informers.RouteKind(key.Route.Kind)
	return objectRef{kind, types.NamespacedName{Namespace: service.Namespace, Name: key.Route.Name}}, known
}

// previous is the state before for the namespaces that a snapshot covers.
func (p *Publisher) previous(snap *policySnapshot) previousState {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := previousState{p.latest == nil || p.Clusters == nil, p.Clusters.Last, map[types.NamespacedName]map[outlier.Key]outlier.Protocol{}}
	for namespace := range coveredNamespaces(snap, p.served) {
		for key, protocol := range p.served[namespace] {
			if b.served[key.Service] == nil {
				b.served[key.Service] = map[outlier.Key]outlier.Protocol{}
			}
			b.served[key.Service][key] = protocol
		}
	}
	return b
}

// coveredNamespaces are the namespaces of a map that a snapshot covers.
func coveredNamespaces[V any](snap *policySnapshot, all map[string]V) iter.Seq[string] {
	if snap.onlyNamespaces == nil {
		return maps.Keys(all)
	}
	return maps.Keys(snap.onlyNamespaces)
}
