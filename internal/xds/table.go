package xds

import (
	"maps"
	"sync"
)

// table has the resources of one type, and the watches of streams for it, which have what changed since their last response.
type table struct {
	// omitsRemovals: removals aren't sent. Envoys drop endpoints by themselves once no cluster subscribes to them.
	omitsRemovals bool
	// resolve makes an entry that a stream subscribes to and that doesn't exist, or returns nil. It needs mu.
	resolve func(name string, scope Scope) *entry

	mu      sync.Mutex
	entries map[string]*entry
	watches map[*watch]struct{}
	// incomplete: clients may have what isn't in entries and isn't known to be gone.
	incomplete bool
}

func newTable(omitsRemovals bool) *table {
	return &table{omitsRemovals: omitsRemovals, entries: map[string]*entry{}, watches: map[*watch]struct{}{}}
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
				w.markChanged(name)
			}
		}
		if t.omitsRemovals {
			continue
		}
		for _, name := range gone {
			// Names that only the client has are marked too: it sent them, and now they are confirmed to be gone.
			if e := before[name]; e == nil || w.scope.allows(e.namespace) {
				w.markRemoved(name)
			}
		}
	}
	for w := range t.watches {
		w.replyIfChanged()
	}
}

// subscribed says whether a stream subscribes to a name, or may do so.
func (t *table) subscribed(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.watches {
		if w.openRequest == nil || w.openRequest.covers(name) {
			return true
		}
	}
	return false
}

// lookup returns the entry that a watch may see; nil for none. It needs mu.
func (t *table) lookup(name string, w *watch) *entry {
	e := t.entries[name]
	if e == nil && t.resolve != nil && w.mayAddOnDemand(name) {
		if e = t.resolve(name, w.scope); e != nil {
			t.entries[name] = e
			w.addOnDemand(name)
		}
	}
	if e == nil || !w.scope.allows(e.namespace) {
		return nil
	}
	return e
}
