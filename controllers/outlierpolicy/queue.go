package outlierpolicy

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/kube"
)

// setSnapshot makes a snapshot the latest, and has statuses and Gateways updated from it.
func (p *Publisher) setSnapshot(snap *policySnapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest = snap
	for key, s := range snap.policies {
		if snap.covers(key.Namespace) || snap.index.IsGlobal(s.policy) {
			p.enqueue(key)
		}
	}
	select {
	case p.pendingPatches <- struct{}{}:
	default: // it is signaled already
	}
}

// onProgress is called when Envoys accept or reject clusters: for each ACK, also when thousands connect at once.
func (p *Publisher) onProgress([]string) {
	select {
	case p.pendingStatuses <- struct{}{}:
	default: // it is signaled already
	}
}

// handleProgress has statuses updated after onProgress, once each minInterval at most, until the context ends.
func (p *Publisher) handleProgress(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.pendingStatuses:
		}
		p.mu.Lock()
		p.enqueueAll()
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-p.Clock.After(minInterval):
		}
	}
}

// enqueueAll needs mu.
func (p *Publisher) enqueueAll() {
	if p.latest == nil {
		return
	}
	for key := range p.latest.policies {
		p.enqueue(key)
	}
}

func (p *Publisher) enqueue(key types.NamespacedName) { p.policies.Statuses.Add(key, 0) }

// attachQueue attaches the leader's queue of statuses.
func (p *Publisher) attachQueue(q kube.Queue) {
	p.policies.Statuses.Attach(q)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enqueueAll()
}

// snapshot returns the latest; nil before the first.
func (p *Publisher) snapshot() *policySnapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest
}
