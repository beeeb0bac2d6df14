package outlierpolicy

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// Record is where all replicas keep which clusters Envoys were told of.
type Record interface {
	Read(context.Context) ([]outlier.Key, error)
	Change(ctx context.Context, add, remove, all []outlier.Key) error
}

// recall takes in the clusters that Envoys were told of before this process began. Without them it tells nobody anything: a cluster
// whose policy is gone would be missing.
func (p *Publisher) recall(ctx context.Context) {
	if p.Record == nil {
		return
	}
	_ = wait.PollUntilContextCancel(ctx, lookAgain, true, func(ctx context.Context) (bool, error) {
		keys, err := p.Record.Read(ctx)
		if err != nil {
			log.FromContext(ctx).Error(err, "Can't read which clusters Envoys have; none is served until that is known")
			return false, nil
		}
		p.remember(keys)
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, key := range keys {
			p.recorded[key] = true
		}
		return true, nil
	}) // it ends with the context only
}

// keepRecord writes which clusters are served, whenever that has changed, until the context ends.
func (p *Publisher) keepRecord(ctx context.Context) {
	if p.Record == nil {
		return
	}
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.unrecorded:
		case <-again:
		}
		again = nil
		if err := p.record(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Can't record which clusters Envoys have; those without a policy might be missed after a restart")
			again = p.Clock.After(recordAgain)
		}
	}
}

func (p *Publisher) record(ctx context.Context) error {
	if serves := p.Clusters.Server.Serves; serves != nil && !serves() {
		return fmt.Errorf("the cluster isn't known to be this installation's")
	}
	var add, remove, all []outlier.Key
	p.mu.Lock()
	for _, keys := range p.served {
		for key := range keys {
			all = append(all, key)
			if !p.recorded[key] {
				add = append(add, key)
			}
		}
	}
	for key := range p.recorded {
		if !p.served[key.Service][key] {
			remove = append(remove, key)
		}
	}
	p.mu.Unlock()
	if len(add)+len(remove) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	if err := p.Record.Change(ctx, add, remove, all); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range add {
		p.recorded[key] = true
	}
	for _, key := range remove {
		delete(p.recorded, key)
	}
	return nil
}

// removed are clusters that Envoys were told to remove, since their Services or routes are gone.
func (p *Publisher) removed(names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		key, ok := outlier.ParseKey(name)
		if !ok {
			continue
		}
		if delete(p.served[key.Service], key); len(p.served[key.Service]) == 0 {
			delete(p.served, key.Service)
		}
	}
	p.changedRecord()
}

func (p *Publisher) remember(keys []outlier.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news := false
	for _, key := range keys {
		if p.served[key.Service] == nil {
			p.served[key.Service] = map[outlier.Key]bool{}
		}
		news = news || !p.served[key.Service][key]
		p.served[key.Service][key] = true
	}
	if news {
		p.changedRecord()
	}
}

// changedRecord has the record written, soon.
func (p *Publisher) changedRecord() {
	select {
	case p.unrecorded <- struct{}{}:
	default: // it will be
	}
}

// missing are the objects without which served clusters would be gone, and that a picture doesn't have: a cluster's Service, and the
// route whose own it is. Of a kind of routes that isn't read nothing is missing.
func (p *Publisher) missing(pic *picture) map[object][]outlier.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	missing := map[object][]outlier.Key{}
	for service, keys := range p.served {
		if !pic.seen[service] {
			o := object{corev1.SchemeGroupVersion.WithKind("Service"), service}
			for key := range keys {
				missing[o] = append(missing[o], key)
			}
			continue
		}
		for key := range keys {
			if key.Route == (outlier.RouteKey{}) || pic.unread[key.Route.Kind] || pic.index.HasRoute(service.Namespace, key.Route) {
				continue
			}
			if kind, there := p.Routed.RouteKind(key.Route.Kind); there {
				o := object{kind, types.NamespacedName{Namespace: service.Namespace, Name: key.Route.Name}}
				missing[o] = append(missing[o], key)
			}
		}
	}
	return missing
}

func (p *Publisher) servedOf(name types.NamespacedName) (keys []outlier.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.served[name] {
		keys = append(keys, key)
	}
	return keys
}
