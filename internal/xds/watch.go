package xds

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
)

// watch is one type of resource on one stream. The table's mutex guards its fields, but for the subscription of a request: that
// belongs to the stream's goroutine, and to the table only while the request is open.
type watch struct {
	table    *table
	identity string
	scope    Scope

	// allDirty: everything may differ, as on a stream's first request.
	allDirty bool
	// sotw: the client speaks the state of the world, and removes what a response doesn't have. It gets no response while the table is
	// incomplete. mustReply: it is to get a response even if nothing changed.
	sotw, mustReply bool
	// wildcard: the last request subscribed to all resources.
	wildcard bool
	// dirty has the names that may differ from what the client was sent last; true: the resource is removed.
	dirty map[string]bool
	// openRequest is answered by the next change; nil while a response is being sent.
	openRequest *request
	// sending are the names in the response that is being sent, which has no nonce yet.
	sending map[string]struct{}
	// unacked are the names in each response that the client hasn't answered yet, by nonce.
	unacked map[string]map[string]struct{}
	// unackedSince is when the oldest response in unacked was sent; zero when there is none.
	unackedSince time.Time
	// rejections are the messages of the client's NACKs of what it was sent last, by name.
	rejections map[string]string
	// otherNames are the names of endpoints that the client may subscribe to, but for those that entries have, by their cluster. Few clusters
	// have any for long, and a stream may have tens of thousands: the map is nil when none has.
	otherNames map[string][]string
	// unsureNames are those of them of which the next request shows whether the client subscribes to them.
	unsureNames []string
}

// maxNames bounds under how many other names a stream gets one cluster's endpoints: an Envoy has the cluster as it is, and as it
// was while it warms the next.
const maxNames = 4

// serves says whether a cluster's endpoints are there for the client under a name, if it subscribes to that.
func (w *watch) serves(e *entry, name string) bool {
	return e.name == name || slices.Contains(w.otherNames[clusterOf(name)], name)
}

// updateNames takes in which names of endpoints a request subscribes to, and to which it doesn't any more.
func (w *watch) updateNames(r *request, names []string, sotw bool) {
	concerned := slices.Values(slices.Concat(w.unsureNames, names))
	if sotw { // the request has all names
		w.otherNames, concerned = nil, maps.Keys(r.subscription.SubscribedResources())
	}
	w.unsureNames = nil
	for name := range concerned {
		if r.names(name) {
			w.addName(name)
		} else {
			w.dropName(name)
		}
	}
	if len(w.otherNames) == 0 { // a map that was large once stays so
		w.otherNames = nil
	}
	maps.DeleteFunc(w.rejections, func(name, _ string) bool { return !r.names(name) })
}

// addName adds a name of endpoints, unless it is the entry's, or there are too many.
func (w *watch) addName(name string) (added bool) {
	cluster := clusterOf(name)
	e, others := w.table.entries[cluster], w.otherNames[cluster]
	if e != nil && e.name == name || slices.Contains(others, name) || len(others) >= maxNames {
		return false
	}
	if w.otherNames == nil {
		w.otherNames = map[string][]string{}
	}
	w.otherNames[cluster] = append(others, name)
	return true
}

func (w *watch) dropName(name string) {
	cluster := clusterOf(name)
	others := slices.DeleteFunc(w.otherNames[cluster], func(other string) bool { return other == name })
	if len(others) > 0 {
		w.otherNames[cluster] = others
	} else {
		delete(w.otherNames, cluster)
	}
}

// keepNames keeps the names that entries had, if the client subscribes to them. While a response is being sent nobody knows.
func (w *watch) keepNames(outdated map[string]*entry) {
	for _, was := range outdated {
		unsure := w.openRequest == nil
		if w.scope.allows(was.namespace) && (unsure || w.openRequest.names(was.name)) && w.addName(was.name) && unsure {
			w.unsureNames = append(w.unsureNames, was.name)
		}
	}
}

// request is a client's request, with its subscription, that is answered once, by calling respond.
type request struct {
	subscription cache.Subscription
	respond      func()
}

// names says whether the request subscribes to something by its name.
func (r *request) names(name string) bool {
	_, named := r.subscription.SubscribedResources()[name]
	return named
}

func newWatch(t *table, identity string, scope Scope) *watch {
	w := &watch{
		table: t, identity: identity, scope: scope, allDirty: true,
		dirty: map[string]bool{}, unacked: map[string]map[string]struct{}{}, rejections: map[string]string{},
	}
	t.addWatch(w)
	return w
}

// markChanged marks the entry of a cluster, under each name that the client may subscribe to it.
func (w *watch) markChanged(cluster string, e *entry) {
	w.dirty[e.name] = false
	for _, name := range w.otherNames[cluster] {
		w.dirty[name] = false
	}
}

// markGone marks clusters that are removed. Those that only the client has are marked too: it sent them, and now they are confirmed to be gone.
func (w *watch) markGone(gone []string, outdated map[string]*entry) {
	for _, name := range gone {
		if e := outdated[name]; e == nil || w.scope.allows(e.namespace) {
			w.dirty[name] = true
		}
	}
}

// replyIfChanged answers the open request if something changed that it subscribes to.
func (w *watch) replyIfChanged() {
	if w.openRequest == nil || w.isDeferred() || (!w.allDirty && !w.mustReply && len(w.dirty) == 0) {
		return
	}
	if w.mustReply {
		w.reply()
		return
	}
	for range w.differences(w.openRequest.subscription) {
		w.reply()
		return
	}
	w.clearDirty()
}

// isDeferred: the client would remove what this replica doesn't know yet. It gets no response, and keeps what it has, until the table is
// complete.
func (w *watch) isDeferred() bool { return w.sotw && w.table.incomplete && !w.table.endpoints }

// reply answers the open request.
func (w *watch) reply() {
	w.openRequest.respond()
	w.openRequest, w.mustReply = nil, false
}

// handleRequest answers a request now, or with the next change. The names are those that the request subscribes to, or ends the
// subscription of.
func (w *watch) handleRequest(r *request, names []string, sotw, mustReply bool) {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	wildcard := r.subscription.IsWildcard()
	w.allDirty = w.allDirty || sotw || wildcard != w.wildcard
	w.wildcard = wildcard
	for _, name := range names {
		if _, marked := w.dirty[name]; !marked {
			w.dirty[name] = false
		}
	}
	if w.table.endpoints {
		w.updateNames(r, names, sotw)
	}
	w.openRequest, w.sotw, w.mustReply = r, sotw, w.mustReply || mustReply
	w.replyIfChanged()
}

// cancel withdraws an open request, which isn't answered then.
func (w *watch) cancel(r *request) {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	if w.openRequest == r {
		w.openRequest = nil
	}
}

// clearDirty forgets what was marked: the client has it, or doesn't subscribe to it. A new map is made since a map that was large once
// stays slow to iterate over.
func (w *watch) clearDirty() {
	w.dirty = map[string]bool{}
	w.allDirty = false
}

// differences are the names whose entry differs from what the client has, among those that may; the entry of a removed one is nil.
func (w *watch) differences(s cache.Subscription) iter.Seq2[string, *entry] {
	known, named, wildcard := s.ReturnedResources(), s.SubscribedResources(), s.IsWildcard()
	return func(yield func(string, *entry) bool) {
		for name := range w.candidates(s) {
			if _, ok := named[name]; !wildcard && !ok {
				continue
			}
			version, returned := known[name]
			e := w.table.lookup(name, w)
			differs := e != nil && (!returned || version != e.version) || e == nil && returned && w.dirty[name]
			if differs && !yield(name, e) {
				return
			}
		}
	}
}

func (w *watch) candidates(s cache.Subscription) func(func(string) bool) {
	if !w.allDirty {
		return maps.Keys(w.dirty)
	}
	names := make(map[string]struct{}, len(w.table.entries))
	for name := range w.dirty {
		names[name] = struct{}{}
	}
	if s.IsWildcard() {
		for _, e := range w.table.entries {
			names[e.name] = struct{}{}
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
func (w *watch) takeDifference(s cache.Subscription, all bool) (d difference) {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	for name, e := range w.differences(s) {
		if e == nil {
			d.removed = append(d.removed, name)
		} else {
			d.updated = append(d.updated, e.named(name))
		}
	}
	if all {
		d.updated = w.allEntries(s)
	}
	w.sending = make(map[string]struct{}, len(d.updated))
	known := s.ReturnedResources()
	for _, e := range d.updated {
		known[e.name] = e.version
		w.sending[e.name] = struct{}{}
	}
	for _, name := range d.removed {
		delete(known, name)
		delete(w.rejections, name)
	}
	w.clearDirty()
	return d
}

// allEntries are the entries that a subscription covers, sorted by name.
func (w *watch) allEntries(s cache.Subscription) []*entry {
	var entries []*entry
	for name := range w.table.entries {
		if _, named := s.SubscribedResources()[name]; !named && !s.IsWildcard() {
			continue
		}
		if e := w.table.lookup(name, w); e != nil {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b *entry) int { return strings.Compare(a.name, b.name) })
	return entries
}
