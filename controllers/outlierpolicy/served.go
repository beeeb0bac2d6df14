package outlierpolicy

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// unknown are clusters that an Envoy has and this process never served. They stay as if it had.
func (p *Publisher) unknown(names []string) {
	for _, name := range names {
		if key, ok := outlier.ParseKey(name); ok {
			p.remember(key)
		}
	}
	p.changed()
}

// removed are clusters that Envoys were told to remove, since their Services are gone.
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
}

func (p *Publisher) remember(key outlier.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.served[key.Service] == nil {
		p.served[key.Service] = map[outlier.Key]bool{}
	}
	p.served[key.Service][key] = true
}

// missing are the served Services that a picture doesn't have.
func (p *Publisher) missing(seen map[types.NamespacedName]bool) (names []types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.served {
		if !seen[name] {
			names = append(names, name)
		}
	}
	return names
}

func (p *Publisher) servedOf(name types.NamespacedName) (keys []outlier.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.served[name] {
		keys = append(keys, key)
	}
	return keys
}
