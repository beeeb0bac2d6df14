package xds

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"k8s.io/utils/set"
)

// feed is one type of resource on one stream. Its fields are guarded by the table's mutex, but for the subscription of
// a request: that belongs to the stream's goroutine, and to the table only while the feed waits.
type feed struct {
	table    *table
	identity string
	scope    Scope

	// full: everything is to be looked at, as on a stream's first request.
	full bool
	// state: the client takes what it isn't sent for gone. It gets no answer while the table is partial. owed: it is to get one in any
	// case.
	state, owed bool
	// wildcard is what the subscription was at the last request.
	wildcard bool
	// dirty has what may differ from what the client was told last; true: it is confirmed to be gone.
	dirty map[string]bool
	// waiting is the open request, which the next change answers; nil while a response is under way.
	waiting *request
	// telling are the names in the response that is being sent, which has no nonce yet.
	telling map[string]struct{}
	// sent are the names in each response that wasn't answered yet, by nonce.
	sent map[string]map[string]struct{}
	// unanswered is since when the client owes an answer; zero while it doesn't.
	unanswered time.Time
	// rejected has the client's words about what it was sent last, by name.
	rejected map[string]string
	// brought are names of endpoints that were made because this stream asks for them, by cluster.
	brought map[string]set.Set[string]
}

// maxBrought names of one cluster's endpoints are made for one stream: an Envoy has the cluster as it is, and as it was while it
// warms the next. Another stream's don't count, or one client could keep the endpoints from all.
const maxBrought = 4

func (f *feed) mayBring(service string) bool {
	names := f.brought[clusterOf(service)]
	return names.Has(service) || len(names) < maxBrought
}

func (f *feed) bring(service string) {
	cluster := clusterOf(service)
	if f.brought[cluster] == nil {
		f.brought[cluster] = set.New[string]()
	}
	f.brought[cluster].Insert(service)
}

// forget names that the client doesn't ask for any more.
func (f *feed) forget(r *request, names []string) {
	for _, service := range names {
		cluster := clusterOf(service)
		if r.wants(service) {
			continue
		}
		if f.brought[cluster].Delete(service); len(f.brought[cluster]) == 0 {
			delete(f.brought, cluster)
		}
	}
}

// broughtAll are the names that were made for the stream.
func (f *feed) broughtAll() (names []string) {
	for _, of := range f.brought {
		names = append(names, of.UnsortedList()...)
	}
	return names
}

// request is a subscription that is to be answered once, by calling respond.
type request struct {
	subscription cache.Subscription
	respond      func()
}

func (r *request) wants(name string) bool {
	_, named := r.subscription.SubscribedResources()[name]
	return named || r.subscription.IsWildcard()
}

func newFeed(t *table, identity string, scope Scope) *feed {
	f := &feed{
		table: t, identity: identity, scope: scope, full: true,
		dirty: map[string]bool{}, sent: map[string]map[string]struct{}{}, rejected: map[string]string{},
		brought: map[string]set.Set[string]{},
	}
	t.join(f)
	return f
}

func (f *feed) mark(name string)     { f.dirty[name] = false }
func (f *feed) markGone(name string) { f.dirty[name] = true }

// wake answers the open request if something changed that it asks for.
func (f *feed) wake() {
	if f.waiting == nil || f.held() || (!f.full && !f.owed && len(f.dirty) == 0) {
		return
	}
	if f.owed {
		f.reply()
		return
	}
	for range f.differences(f.waiting.subscription) {
		f.reply()
		return
	}
	f.settle()
}

// held: the client would take for gone what only isn't known here. It keeps what it has until that is settled.
func (f *feed) held() bool { return f.state && f.table.partial && !f.table.quiet }

// reply to the open request.
func (f *feed) reply() {
	f.waiting.respond()
	f.waiting, f.owed = nil, false
}

// ask answers a request now, or with the next change. named are the names of which the client spoke.
func (f *feed) ask(r *request, named []string, all, reply bool) {
	f.table.mu.Lock()
	defer f.table.mu.Unlock()
	wildcard := r.subscription.IsWildcard()
	f.full = f.full || all || wildcard != f.wildcard
	f.wildcard = wildcard
	for _, name := range named {
		if _, marked := f.dirty[name]; !marked {
			f.mark(name)
		}
	}
	if all {
		named = f.broughtAll()
	}
	f.forget(r, named)
	f.waiting, f.state, f.owed = r, all, f.owed || reply
	f.wake()
}

// cancel withdraws an open request; after it nothing is sent to it any more.
func (f *feed) cancel(r *request) {
	f.table.mu.Lock()
	defer f.table.mu.Unlock()
	if f.waiting == r {
		f.waiting = nil
	}
}

// settle forgets what was marked: the client knows, or doesn't care. A map that was large once would take long to go through for ever.
func (f *feed) settle() {
	f.dirty = map[string]bool{}
	f.full = false
}

// differences are what a client knows otherwise than it is, as far as something may differ; without an entry it is gone.
func (f *feed) differences(s cache.Subscription) iter.Seq2[string, *entry] {
	known, named, wildcard := s.ReturnedResources(), s.SubscribedResources(), s.IsWildcard()
	return func(yield func(string, *entry) bool) {
		for name := range f.candidates(s) {
			if _, ok := named[name]; !wildcard && !ok {
				continue
			}
			version, told := known[name]
			e := f.table.lookup(name, f)
			differs := e != nil && (!told || version != e.version) || e == nil && told && f.dirty[name]
			if differs && !yield(name, e) {
				return
			}
		}
	}
}

func (f *feed) candidates(s cache.Subscription) func(func(string) bool) {
	if !f.full {
		return maps.Keys(f.dirty)
	}
	names := make(map[string]struct{}, len(f.table.entries))
	for name := range f.dirty {
		names[name] = struct{}{}
	}
	if s.IsWildcard() {
		for name := range f.table.entries {
			names[name] = struct{}{}
		}
	}
	maps.Copy(names, s.SubscribedResources())
	return maps.Keys(names)
}

// difference is what a client must be told.
type difference struct {
	updated []*entry
	removed []string
}

// tell takes what the client must be told, and notes that it knows; with all, everything that it asks for. It is called when
// the response is about to be sent, by the stream's goroutine: a response that is dropped on the way loses nothing.
func (f *feed) tell(s cache.Subscription, all bool) (d difference) {
	f.table.mu.Lock()
	defer f.table.mu.Unlock()
	for name, e := range f.differences(s) {
		if e == nil {
			d.removed = append(d.removed, name)
		} else {
			d.updated = append(d.updated, e)
		}
	}
	if all {
		d.updated = f.all(s)
	}
	f.telling = make(map[string]struct{}, len(d.updated))
	known := s.ReturnedResources()
	for _, e := range d.updated {
		known[e.name] = e.version
		f.telling[e.name] = struct{}{}
	}
	for _, name := range d.removed {
		delete(known, name)
		delete(f.rejected, name)
	}
	f.settle()
	return d
}

// all gives every entry that a subscription covers, by name.
func (f *feed) all(s cache.Subscription) []*entry {
	var entries []*entry
	for name := range f.table.entries {
		if _, named := s.SubscribedResources()[name]; !named && !s.IsWildcard() {
			continue
		}
		if e := f.table.lookup(name, f); e != nil {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b *entry) int { return strings.Compare(a.name, b.name) })
	return entries
}
