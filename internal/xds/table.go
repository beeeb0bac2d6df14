package xds

import (
	"maps"
	"sync"
)

// table has the resources of one type, and the watches of streams for it, which have what changed since their last response.
type table struct {
	// endpoints: the entries are endpoints, by their cluster. They are served under every NAME#HASH that a client subscribes to: an Envoy that
	// rejected the new cluster keeps the old one, and it may have its cluster from another replica. Removals aren't sent: Envoys drop
	// endpoints by themselves once no cluster subscribes to them.
	endpoints bool

	mu sync.Mutex
	// entries by the name of the cluster.
	entries map[string]*entry
	watches map[*watch]struct{}
	// incomplete: clients may have what isn't in entries and isn't known to be gone.
	incomplete bool
}

func newTable(endpoints bool) *table {
	return &table{endpoints: endpoints, entries: map[string]*entry{}, watches: map[*watch]struct{}{}}
}

func (t *table) addWatch(w *watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watches[w] = struct{}{}
}

func (t *table) removeWatch(w *watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.watches, w)
}

// setIncomplete sets incomplete. Watches that were deferred because of it get a response with the next apply.
func (t *table) setIncomplete(incomplete bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.incomplete = incomplete
}

// apply stores changed entries and removes others, and answers the open requests that they concern.
func (t *table) apply(changed map[string]*entry, gone []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := make(map[string]*entry, len(gone))
	for _, name := range gone {
		before[name] = t.entries[name]
		delete(t.entries, name)
	}
	maps.Copy(t.entries, changed)
	for w := range t.watches {
		for name, e := range changed {
			if w.scope.allows(e.namespace) {
				w.markChanged(name, e)
			}
		}
		if t.endpoints {
			continue
		}
		for _, name := range gone {
			// Names that only the client has are marked too: it sent them, and now they are confirmed to be gone.
			if e := before[name]; e == nil || w.scope.allows(e.namespace) {
				w.dirty[name] = true
			}
		}
	}
	for w := range t.watches {
		w.replyIfChanged()
	}
}

// lookup returns the entry that a watch gets under a name; nil for none. It needs mu.
func (t *table) lookup(name string, w *watch) *entry {
	key := name
	if t.endpoints {
		key = clusterOf(name)
	}
	e := t.entries[key]
	if e == nil || !w.scope.allows(e.namespace) || e.name != name && !w.subscribes(name) {
		return nil
	}
	return e
}
