package outlierpolicy

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/kube"
)

// setSnapshot makes a snapshot the latest, and has statuses and Gateways updated from it.
func (p *Publisher) show(pic *picture) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = pic
	for key, s := range pic.policies {
		if pic.covers(key.Namespace) || pic.index.IsGlobal(s.policy) {
			p.enqueue(key)
		}
	}
	select {
	case p.shown <- struct{}{}:
	default: // it is signaled already
	}
}

// onProgress is called when Envoys accept or reject clusters: for each ACK, also when thousands connect at once.
func (p *Publisher) progressed([]string) {
	select {
	case p.further <- struct{}{}:
	default: // it is signaled already
	}
}

// handleProgress has statuses updated after onProgress, once each minInterval at most, until the context ends.
func (p *Publisher) followProgress(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.further:
		}
		p.mu.Lock()
		p.enqueueAll()
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-p.Clock.After(coalesce):
		}
	}
}

// enqueueAll needs mu.
func (p *Publisher) enqueueAll() {
	if p.last == nil {
		return
	}
	for key := range p.last.policies {
		p.enqueue(key)
	}
}

func (p *Publisher) enqueue(key types.NamespacedName) { p.policies.Statuses.Add(key, 0) }

// attachQueue attaches the leader's queue of statuses.
func (p *Publisher) lead(q kube.Queue) {
	p.policies.Statuses.Attach(q)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enqueueAll()
}

// snapshot returns the latest; nil before the first.
func (p *Publisher) picture() *picture {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}
