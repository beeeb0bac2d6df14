package xds

import (
	"maps"
	"sync"
)

// table has the resources of one type, and the watches of streams for it, which have what changed since their last response.
type table struct {
	// omitsRemovals: removals aren't sent. Envoys drop endpoints by themselves once no cluster subscribes to them.
	quiet bool
	// resolve makes an entry that a stream subscribes to and that doesn't exist, or returns nil. It needs mu.
	resolve func(name string, scope Scope) *entry

	mu      sync.Mutex
	entries map[string]*entry
	feeds   map[*feed]struct{}
	// incomplete: clients may have what isn't in entries and isn't known to be gone.
	partial bool
}

func newTable(quiet bool) *table {
	return &table{quiet: quiet, entries: map[string]*entry{}, feeds: map[*feed]struct{}{}}
}

func (t *table) join(f *feed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.feeds[f] = struct{}{}
}

func (t *table) leave(f *feed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.feeds, f)
}

// setIncomplete sets incomplete. Watches that were deferred because of it get a response with the next apply.
func (t *table) lack(partial bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partial = partial
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
	for f := range t.feeds {
		for name, e := range changed {
			if f.scope.allows(e.namespace) {
				f.mark(name)
			}
		}
		if t.quiet {
			continue
		}
		for _, name := range gone {
			// Names that only the client has are marked too: it sent them, and now they are confirmed to be gone.
			if e := before[name]; e == nil || f.scope.allows(e.namespace) {
				f.markGone(name)
			}
		}
	}
	for f := range t.feeds {
		f.wake()
	}
}

// subscribed says whether a stream subscribes to a name, or may do so.
func (t *table) subscribed(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for f := range t.feeds {
		if f.waiting == nil || f.waiting.wants(name) {
			return true
		}
	}
	return false
}

// lookup returns the entry that a watch may see; nil for none. It needs mu.
func (t *table) lookup(name string, f *feed) *entry {
	e := t.entries[name]
	if e == nil && t.resolve != nil && f.mayBring(name) {
		if e = t.resolve(name, f.scope); e != nil {
			t.entries[name] = e
			f.bring(name)
		}
	}
	if e == nil || !f.scope.allows(e.namespace) {
		return nil
	}
	return e
}
