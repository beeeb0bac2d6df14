package outlierpolicy

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/kube"
)

// show gives a picture to who writes statuses.
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
	default: // it will be looked at
	}
}

// progressed: some Envoys are further with some clusters. When thousands connect at once it is called for each answer.
func (p *Publisher) progressed([]string) {
	select {
	case p.further <- struct{}{}:
	default: // it will be told
	}
}

// followProgress has statuses looked at when Envoys are further, not more often than every coalesce, until the context ends.
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

// lead takes the queue of the replica that leads.
func (p *Publisher) lead(q kube.Queue) {
	p.policies.Statuses.Attach(q)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enqueueAll()
}

// picture is the latest.
func (p *Publisher) picture() *picture {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}
