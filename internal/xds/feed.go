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

// watch is one type of resource on one stream. The table's mutex guards its fields, but for the subscription of a request: that
// belongs to the stream's goroutine, and to the table only while the request is open.
type feed struct {
	table    *table
	identity string
	scope    Scope

	// allDirty: everything may differ, as on a stream's first request.
	full bool
	// sotw: the client speaks the state of the world, and removes what a response doesn't have. It gets no response while the table is
	// incomplete. mustReply: it is to get a response even if nothing changed.
	state, owed bool
	// wildcard: the last request subscribed to all resources.
	wildcard bool
	// dirty has the names that may differ from what the client was sent last; true: the resource is removed.
	dirty map[string]bool
	// openRequest is answered by the next change; nil while a response is being sent.
	waiting *request
	// sending are the names in the response that is being sent, which has no nonce yet.
	telling map[string]struct{}
	// unacked are the names in each response that the client hasn't answered yet, by nonce.
	sent map[string]map[string]struct{}
	// unackedSince is when the oldest response in unacked was sent; zero when there is none.
	unanswered time.Time
	// rejections are the messages of the client's NACKs of what it was sent last, by name.
	rejected map[string]string
	// onDemand are names of endpoints that exist because this stream subscribes to them, by cluster.
	brought map[string]set.Set[string]
}

// maxOnDemand bounds how many names of one cluster's endpoints are made for one stream: an Envoy has the cluster as it is, and as it
// was while it warms the next. Names of other streams don't count, or one client could exhaust the limit for all.
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

// removeOnDemand drops names that the client no longer subscribes to.
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

// onDemandNames are the names that were made for the stream.
func (f *feed) broughtAll() (names []string) {
	for _, of := range f.brought {
		names = append(names, of.UnsortedList()...)
	}
	return names
}

// request is a client's request, with its subscription, that is answered once, by calling respond.
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

// replyIfChanged answers the open request if something changed that it subscribes to.
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

// isDeferred: the client would remove what this replica doesn't know yet. It gets no response, and keeps what it has, until the table is
// complete.
func (f *feed) held() bool { return f.state && f.table.partial && !f.table.quiet }

// reply answers the open request.
func (f *feed) reply() {
	f.waiting.respond()
	f.waiting, f.owed = nil, false
}

// handleRequest answers a request now, or with the next change. The names are those that the request subscribes to, or ends the
// subscription of.
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

// cancel withdraws an open request, which isn't answered then.
func (f *feed) cancel(r *request) {
	f.table.mu.Lock()
	defer f.table.mu.Unlock()
	if f.waiting == r {
		f.waiting = nil
	}
}

// clearDirty forgets what was marked: the client has it, or doesn't subscribe to it. A new map is made since a map that was large once
// stays slow to iterate over.
func (f *feed) settle() {
	f.dirty = map[string]bool{}
	f.full = false
}

// differences are the names whose entry differs from what the client has, among those that may; the entry of a removed one is nil.
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

// difference is what a response is to have.
type difference struct {
	updated []*entry
	removed []string
}

// takeDifference returns what the next response is to have, and records that the client has it; with all, everything that it
// subscribes to. The stream's goroutine calls it right before sending: a response that is dropped before loses nothing.
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

// allEntries are the entries that a subscription covers, sorted by name.
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
