package weeder

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// lastReadiness is how a config saw a Service last.
type lastReadiness struct {
	ready bool
	// notReadySince is since when it has been seen notReady, by the API server's clock; zero while it is Ready.
	notReadySince time.Time
	// latestReady is the latest of its pods' Ready transitions with which it was seen Ready: it went down after that. Zero when it
	// wasn't seen Ready.
	latestReady time.Time
}

// pendingRecovery is of a Service that is Ready, and of which it isn't known yet when it turned so.
type pendingRecovery struct {
	// seen is when it was seen Ready, by our clock.
	seen time.Time
	// was is how it was seen before; the zero value when first observed.
	was lastReadiness
}

// evaluateAll judges every Service that a config watches.
func (s *State) evaluateAll(cs *configState, at timing.Moment) (due []types.NamespacedName) {
	for _, namespace := range s.namespacesOf(cs) {
		due = append(due, s.evaluateNamespace(cs, namespace, at)...)
	}
	return due
}

func (s *State) evaluateNamespace(cs *configState, namespace string, at timing.Moment) (due []types.NamespacedName) {
	for name := range cs.Services {
		due = append(due, s.evaluate(cs, types.NamespacedName{Namespace: namespace, Name: name}, at)...)
	}
	return due
}

// evaluate compares a Service with how the config saw it last. Only the turn to Ready opens a window; a Service that is Ready
// when first observed, or without EndpointSlices until now, opens one only when it turned Ready lately.
func (s *State) evaluate(cs *configState, key types.NamespacedName, at timing.Moment) (due []types.NamespacedName) {
	svc, was := s.services[key], cs.seen[key]
	if !s.synced || svc == nil || len(svc.slices) == 0 { // not there yet
		return nil
	}
	if !s.recordReadiness(cs, key, at) {
		return nil
	}
	if !was.ready {
		s.pending[watchKey{cs.UID, key}] = pendingRecovery{seen: at.Now, was: was}
	}
	return s.resolve(cs, key, at)
}

// recordReadiness notes how a Service is. While it is notReady its dependents fail for want of it: a window ends, and the next recovery opens another.
func (s *State) recordReadiness(cs *configState, key types.NamespacedName, at timing.Moment) (ready bool) {
	svc, was := s.services[key], cs.seen[key]
	if svc.ready(cs.AllReady) {
		cs.seen[key] = lastReadiness{ready: true, latestReady: timing.Later(was.latestReady, svc.latestReady(s.pods[key.Namespace]))}
		return true
	}
	delete(s.pending, watchKey{cs.UID, key})
	if w := cs.windows[key]; w != nil {
		s.close(w)
	}
	delete(cs.inherited.byService, key)
	if was.ready || was.notReadySince.IsZero() {
		cs.seen[key] = lastReadiness{notReadySince: at.ServerNow(), latestReady: was.latestReady}
	}
	return false
}

// forgetReadiness makes the config's next look at a Service the first.
func (s *State) forgetReadiness(cs *configState, key types.NamespacedName) {
	delete(cs.seen, key)
	delete(s.pending, watchKey{cs.UID, key})
}

// resolve opens a window for a Service that turned Ready less than a watchDuration ago, as its pods' kubelets report: the event
// may be late. The window begins then, too. While a pod isn't known that could show another time, it waits.
func (s *State) resolve(cs *configState, key types.NamespacedName, at timing.Moment) (due []types.NamespacedName) {
	watch := watchKey{cs.UID, key}
	pending, waits := s.pending[watch]
	if !waits {
		return nil
	}
	opened, trigger, known := s.turnedReady(cs, key, pending, at)
	if !known {
		return nil
	}
	delete(s.pending, watch)
	s.recordReadiness(cs, key, at) // its pods are known by now
	firstObservation := pending.was.notReadySince.IsZero()
	if firstObservation {
		opened = cs.inherited.since(key, opened, trigger)
	}
	if !at.Now.Before(opened.Add(cs.WatchDuration)) {
		s.markDirty(cs) // the status may list an inherited one
		return nil
	}
	return s.selectedPods(s.open(cs, key, opened, trigger, firstObservation, at), at)
}

// turnedReady is when a Ready Service turned so: by our clock, and as its pods report. A node's clock may be ahead: it was no
// later than we saw it.
func (s *State) turnedReady(cs *configState, key types.NamespacedName, pending pendingRecovery, at timing.Moment) (opened, since time.Time, known bool) {
	if pending.was.notReadySince.IsZero() {
		since, age, known := s.recovery(cs, key, at)
		if known && age <= -cs.WatchDuration { // that clock can't be trusted
			return time.Time{}, since, true
		}
		return timing.Earlier(pending.seen, at.Now.Add(-age)), since, known
	}
	since, missing := s.services[key].readySince(cs.AllReady, s.pods[key.Namespace])
	if missing || since.IsZero() {
		return time.Time{}, since, false
	}
	age := at.ServerNow().Sub(since)
	if pending.was.causedByOthers(since, age >= cs.WatchDuration) {
		return pending.seen, at.ServerNow().Truncate(time.Second), true
	}
	return timing.Earlier(pending.seen, at.Now.Add(-age)), since, true
}

// causedByOthers says that its pods, Ready since then, were so before it went down: not they turned it, but its selector, say, or
// one of AllReady went. Of a Service that wasn't seen Ready before it is taken for granted where that is long ago.
func (was lastReadiness) causedByOthers(since time.Time, longAgo bool) bool {
	if was.latestReady.IsZero() {
		return longAgo && since.Before(was.notReadySince.Add(-uncertainCreation))
	}
	return !since.After(was.latestReady)
}

// recovery is when a Ready Service turned so, and how long ago by the API server's clock. It is known once no pod that isn't
// known could make it another time, or one within the watchDuration.
func (s *State) recovery(cs *configState, key types.NamespacedName, at timing.Moment) (since time.Time, age time.Duration, known bool) {
	since, missing := s.services[key].readySince(cs.AllReady, s.pods[key.Namespace])
	age = at.Server.Sub(since)
	switch {
	case at.Server.IsZero() || since.IsZero():
		return since, age, false
	case missing && (cs.AllReady || age < cs.WatchDuration):
		return since, age, false
	}
	return since, age, true
}

// resolvePending resolves the pending recoveries of the Services that the pod backs.
func (s *State) resolvePending(p *podState, at timing.Moment) (due []types.NamespacedName) {
	for watch := range s.pending {
		if watch.service.Namespace == p.Namespace && s.isEndpoint(p, watch.service.Name) {
			due = append(due, s.resolve(s.configs[watch.config], watch.service, at)...)
		}
	}
	return due
}

// window is an open window of one config's Service.
type window struct {
	Window
	of *configState
	// counted are the pods that were held back in it, by reason: each is counted once.
	counted map[countKey]struct{}
	// firstObservation: its Service was Ready already when it was seen first.
	firstObservation bool
}

type countKey struct {
	pod    types.UID
	reason Reason
}

// key names the window's Service.
func (w *window) key() types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: w.Service}
}

// selects says whether the pod is to be deleted in the window, whatever blocks that.
func (w *window) selects(p *podState, now time.Time) bool {
	return w.open(now) && p.actionable() && p.Loop(w.of.IncludeInit).Container != "" && w.of.Selects(w.Service, p.Pod)
}

// holds says whether it is the window that holds a pod back.
func (w *window) holds(h Hold) bool { return h.Config == w.of.UID && h.Service == w.Service }

// count counts a pod that is held back in the window, once for each reason.
func (w *window) count(p *podState, reason Reason) {
	n := countKey{p.UID, reason}
	if _, noted := w.counted[n]; !noted {
		w.counted[n] = struct{}{}
		w.of.skipped[reason]++
	}
}

// windowOf is the open window of a config's Service, nil for none.
func (s *State) windowOf(config types.UID, namespace, service string) *window {
	if cs := s.configs[config]; cs != nil {
		return cs.windows[types.NamespacedName{Namespace: namespace, Name: service}]
	}
	return nil
}

// open opens a window, or restarts it.
func (s *State) open(cs *configState, key types.NamespacedName, opened, trigger time.Time, firstObservation bool, at timing.Moment) *window {
	w := &window{of: cs, firstObservation: firstObservation, counted: map[countKey]struct{}{}, Window: Window{
		Namespace: key.Namespace, Service: key.Name, Opened: opened, Ends: opened.Add(cs.WatchDuration), Trigger: trigger, ClockAhead: at.AheadBy(),
	}}
	cs.inherited.charge(w)
	cs.windows[key] = w
	s.opened = append(s.opened[max(0, len(s.opened)-maxOpened+1):], Opened{Config: cs.UID, Key: cs.Key(), Window: w.Window, FirstObservation: firstObservation, Acts: cs.state == lifecycle.Active && !cs.Observe})
	if !w.Stored(opened).Add(uncertainCreation).Before(cs.last.Stored(cs.last.Opened)) { // of those that can't be ordered, it is the one that opened last
		cs.last = w.Window
	}
	s.markDirty(cs)
	return w
}

// selectedPods are the pods that a window would have deleted, in order.
func (s *State) selectedPods(w *window, at timing.Moment) (pods []types.NamespacedName) {
	for p := range s.candidates(w.Namespace, w.of.Services[w.Service]) {
		if w.selects(p, at.Now) {
			pods = append(pods, p.Key())
		}
	}
	return sortedKeys(pods)
}

// close ends a window; who was held back in it isn't any more.
func (s *State) close(w *window) {
	delete(w.of.windows, w.key())
	s.unhold(w)
	s.markDirty(w.of)
}

// unhold forgets whom a window holds back. Whoever waits in another one as well keeps its place.
func (s *State) unhold(w *window) {
	for p := range w.of.held {
		if p.Namespace == w.Namespace && slices.ContainsFunc(p.holds, w.holds) {
			remaining := slices.DeleteFunc(slices.Clone(p.holds), w.holds)
			if !slices.ContainsFunc(remaining, Hold.queued) {
				s.queue.remove(p)
			}
			s.setHolds(p, remaining)
		}
	}
}

// Expire closes the windows that are over and forgets what counts no more. It gives when the next one ends, zero when none
// is open.
func (s *State) Expire(at timing.Moment) (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cs := range s.configs {
		for _, w := range cs.windows {
			if w.open(at.Now) {
				next = timing.Earlier(next, w.Ends)
			} else {
				s.close(w)
			}
		}
	}
	for watch, pending := range s.pending {
		cs := s.configs[watch.config]
		if end := pending.seen.Add(cs.WatchDuration); at.Now.Before(end) {
			next = timing.Earlier(next, end)
			continue
		}
		delete(s.pending, watch) // its window would be over
		s.markDirty(cs)
	}
	for uid, d := range s.sent {
		if at.Now.Sub(d.record.At) >= retention && s.pods[d.pod.Namespace][d.pod.Name] != d.pod { // its outcome will stay unknown
			delete(s.sent, uid)
		}
	}
	s.log = slices.DeleteFunc(s.log, func(d *Record) bool { return at.Now.Sub(d.latest()) >= retention })
	return next
}
