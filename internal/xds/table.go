package xds

import (
	"maps"
	"sync"
)

// table has the resources of one type, and knows for each stream what changed since it was last told.
type table struct {
	// quiet tables don't tell of removals: nobody keeps endpoints that no cluster asks for.
	quiet bool
	// resolve makes an entry that somebody asks for and that isn't there, or gives nil. It is called with mu held.
	resolve func(name string, scope Scope) *entry

	mu      sync.Mutex
	entries map[string]*entry
	feeds   map[*feed]struct{}
	// partial: clients may have what isn't in entries and isn't known to be gone.
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

// lack notes whether clients may have what isn't there. Those that wait because of it are told with what is applied next.
func (t *table) lack(partial bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partial = partial
}

// apply publishes changed entries and removes others, and tells the streams that want to know.
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
			// Names that only the client knows are marked too: it told of them, and now they are confirmed to be gone.
			if e := before[name]; e == nil || f.scope.allows(e.namespace) {
				f.markGone(name)
			}
		}
	}
	for f := range t.feeds {
		f.wake()
	}
}

// subscribed is true while a stream asks for a name, or may do so.
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

// lookup gives the entry that a stream sees; t.mu is held.
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
