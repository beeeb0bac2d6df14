package weed

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// window is an open window of one config's Service.
type window struct {
	Window
	of *configState
	// noted are the pods that were held back in it, by reason: each is counted once.
	noted map[note]struct{}
}

type note struct {
	pod    types.UID
	reason Reason
}

// wants says whether the window would have the pod deleted, whatever stands before that.
func (w *window) wants(p *podState, now time.Time) bool {
	return w.open(now) && p.actionable() && p.Loop(w.of.IncludeInit).Container != "" && w.of.Selects(w.Service, p.Pod)
}

// Opened tells of a window that opened.
type Opened struct {
	Config types.UID
	Key    types.NamespacedName // of the config
	Window
	// FirstSight: the Service was Ready already when it was seen first, so that this recovery may have been told before.
	FirstSight bool
	// Acts: the config may delete pods for it, and isn't only observing.
	Acts bool
}

// openedKept bounds what waits to be told where nobody asks.
const openedKept = 1000

// TakeOpened gives the windows that opened since it was last asked, for Events.
func (y *Yard) TakeOpened() []Opened {
	y.mu.Lock()
	defer y.mu.Unlock()
	opened := y.opened
	y.opened = nil
	return opened
}

// judgeAll judges every Service that a config watches.
func (y *Yard) judgeAll(cs *configState, at Moment) (due []types.NamespacedName) {
	for _, namespace := range y.scope(cs) {
		due = append(due, y.judgeIn(cs, namespace, at)...)
	}
	return due
}

func (y *Yard) judgeIn(cs *configState, namespace string, at Moment) (due []types.NamespacedName) {
	for name := range cs.Services {
		due = append(due, y.judge(cs, types.NamespacedName{Namespace: namespace, Name: name}, at)...)
	}
	return due
}

// scope are the namespaces that a config holds in.
func (y *Yard) scope(cs *configState) (namespaces []string) {
	if cs.Namespaces == nil {
		return []string{cs.Namespace}
	}
	for name, of := range y.namespaces {
		if cs.Namespaces.Matches(of) {
			namespaces = append(namespaces, name)
		}
	}
	return namespaces
}

// holds says whether a config is about a namespace.
func (y *Yard) holds(cs *configState, namespace string) bool {
	if cs.Namespaces == nil {
		return namespace == cs.Namespace
	}
	of, known := y.namespaces[namespace]
	return known && cs.Namespaces.Matches(of)
}

// sight is how a config saw a Service last.
type sight struct {
	ready bool
	// down is since when it has been seen notReady, by the API server's clock; zero while it is Ready.
	down time.Time
}

// turn is a Service that is Ready and may have turned so lately.
type turn struct {
	// seen is when it was seen Ready, by our clock.
	seen time.Time
	// down is since when it had been seen notReady, by the API server's clock; zero at first sight.
	down time.Time
}

// judge compares a Service with how the config saw it last. Only the turn to Ready opens a window; a Service that is Ready
// at first sight, or without EndpointSlices until now, opens one only when it turned Ready lately.
func (y *Yard) judge(cs *configState, key types.NamespacedName, at Moment) (due []types.NamespacedName) {
	svc, watch := y.services[key], watchKey{cs.UID, key}
	if !y.synced {
		return nil
	}
	if svc == nil || len(svc.slices) == 0 { // not there yet
		return nil
	}
	was, known := cs.seen[key]
	if !svc.ready(cs.AllReady) {
		y.seeDown(cs, key, at)
		return nil
	}
	cs.seen[key] = sight{ready: true}
	if !known || !was.ready {
		y.unproven[watch] = turn{seen: at.Now, down: was.down}
	}
	return y.prove(cs, watch, at)
}

// seeDown notes that a Service is notReady.
func (y *Yard) seeDown(cs *configState, key types.NamespacedName, at Moment) {
	delete(y.unproven, watchKey{cs.UID, key})
	if was, known := cs.seen[key]; !known || was.ready {
		cs.seen[key] = sight{down: at.server()}
	}
}

// prove opens a window for a Service that turned Ready less than a watchDuration ago, as its pods' kubelets tell: news of it
// may be late. The window begins then, too. While a pod isn't known that could tell otherwise, it waits.
func (y *Yard) prove(cs *configState, watch watchKey, at Moment) (due []types.NamespacedName) {
	turned, waits := y.unproven[watch]
	if !waits {
		return nil
	}
	opened, trigger, known := y.turnedReady(cs, watch.service, turned, at)
	if !known {
		return nil
	}
	delete(y.unproven, watch)
	firstSight := turned.down.IsZero()
	if firstSight {
		opened = cs.left.since(watch.service, opened, trigger)
	}
	if !at.Now.Before(opened.Add(cs.WatchDuration)) {
		y.touch(cs) // the status may tell of one that is left
		return nil
	}
	due = y.open(cs, watch.service, opened, trigger, at.Now)
	if firstSight {
		y.opened[len(y.opened)-1].FirstSight = true
		y.spend(cs, y.windows[watch.service.Namespace][watch])
	}
	return due
}

// turnedReady is when a Ready Service turned so: by our clock, and as its pods tell. A node's clock may be ahead: it was no
// later than we saw it.
func (y *Yard) turnedReady(cs *configState, key types.NamespacedName, turned turn, at Moment) (opened, since time.Time, known bool) {
	if turned.down.IsZero() {
		since, age, known := y.recovery(cs, key, at)
		if known && age <= -cs.WatchDuration { // that clock tells nothing
			return time.Time{}, since, true
		}
		return earlier(turned.seen, at.Now.Add(-age)), since, known
	}
	since, missing := y.services[key].readySince(cs.AllReady, y.pods[key.Namespace])
	if missing || since.IsZero() {
		return time.Time{}, since, false
	}
	age := at.server().Sub(since)
	if age >= cs.WatchDuration && since.Before(turned.down.Add(-uncertainCreation)) {
		// Its pods were Ready before it was seen notReady: not they turned it, but its selector, say, or one of AllReady went.
		return turned.seen, at.server().Truncate(time.Second), true
	}
	return earlier(turned.seen, at.Now.Add(-age)), since, true
}

// recovery is when a Ready Service turned so, and how long ago by the API server's clock. It is known once no pod that isn't
// known could make it another time, or one within the watchDuration.
func (y *Yard) recovery(cs *configState, key types.NamespacedName, at Moment) (since time.Time, age time.Duration, known bool) {
	since, missing := y.services[key].readySince(cs.AllReady, y.pods[key.Namespace])
	age = at.Server.Sub(since)
	switch {
	case at.Server.IsZero() || since.IsZero():
		return since, age, false
	case missing && (cs.AllReady || age < cs.WatchDuration):
		return since, age, false
	}
	return since, age, true
}

// proveBy looks again at the unproven Services behind which the pod stands.
func (y *Yard) proveBy(p *podState, at Moment) (due []types.NamespacedName) {
	for watch := range y.unproven {
		if _, backs := y.services[watch.service].backing[p.Name]; backs && watch.service.Namespace == p.Namespace {
			due = append(due, y.prove(y.configs[watch.config], watch, at)...)
		}
	}
	return due
}

// open opens a window, or begins it anew, and gives the pods that crash-loop already.
func (y *Yard) open(cs *configState, key types.NamespacedName, opened, trigger, now time.Time) (due []types.NamespacedName) {
	w := &window{of: cs, noted: map[note]struct{}{}, Window: Window{
		Namespace: key.Namespace, Service: key.Name, Opened: opened, Ends: opened.Add(cs.WatchDuration), Trigger: trigger,
	}}
	here := y.windows[key.Namespace]
	if here == nil {
		here = map[watchKey]*window{}
		y.windows[key.Namespace] = here
	}
	here[watchKey{cs.UID, key}] = w
	y.opened = append(y.opened[max(0, len(y.opened)-openedKept+1):], Opened{Config: cs.UID, Key: cs.Key(), Window: w.Window, Acts: cs.standing == Active && !cs.Observe})
	if opened.After(cs.last.Opened) {
		cs.last = w.Window
	}
	y.touch(cs)
	for _, p := range y.crashing[key.Namespace] {
		if w.wants(p, now) {
			due = append(due, p.Key())
		}
	}
	return sortedKeys(due)
}

// close ends a window; who was held back in it isn't any more.
func (y *Yard) close(namespace string, watch watchKey) {
	w := y.windows[namespace][watch]
	if w == nil {
		return
	}
	if delete(y.windows[namespace], watch); len(y.windows[namespace]) == 0 {
		delete(y.windows, namespace)
	}
	for k := range w.of.held {
		if k.pod.Namespace == namespace && k.service == w.Service {
			y.queue.leave(k.pod) // whoever waits in another window as well enters again when it's decided
		}
	}
	y.releaseIn(w.of, func(k heldKey) bool { return k.pod.Namespace == namespace && k.service == w.Service })
	y.touch(w.of)
}

// Expire closes the windows that are over and forgets what counts no more. It gives when the next one ends, zero when none
// is open.
func (y *Yard) Expire(at Moment) (next time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for namespace, here := range y.windows {
		for watch, w := range maps.Clone(here) {
			if w.open(at.Now) {
				next = earlier(next, w.Ends)
			} else {
				y.close(namespace, watch)
			}
		}
	}
	for watch, turned := range y.unproven {
		cs := y.configs[watch.config]
		if end := turned.seen.Add(cs.WatchDuration); at.Now.Before(end) {
			next = earlier(next, end)
			continue
		}
		delete(y.unproven, watch) // its window would be over
		y.touch(cs)
	}
	maps.DeleteFunc(y.gone, func(_ types.UID, s *sent) bool { return at.Now.Sub(s.record.At) >= remembered }) // nobody will tell any more
	y.ledger.prune(at.Now)
	return next
}

// openings are the open windows that a pod stands in, the oldest config first.
func (y *Yard) openings(p *podState, at Moment) (openings []Opening, windows []*window) {
	for _, w := range y.windows[p.Namespace] {
		if w.wants(p, at.Now) {
			windows = append(windows, w)
		}
	}
	slices.SortFunc(windows, compareWindows)
	for _, w := range windows {
		openings = append(openings, y.opening(p, w))
	}
	return openings, windows
}

// opening is a window as it is to a pod.
func (y *Yard) opening(p *podState, w *window) Opening {
	svc := y.services[types.NamespacedName{Namespace: w.Namespace, Name: w.Service}]
	return Opening{
		Config: w.of.Config, Standing: w.of.standing, Window: w.Window,
		Backing: svc.backs(p.Pod), Cycle: y.cycle(p, w.Service, y.acting),
	}
}
