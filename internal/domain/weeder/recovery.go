package weeder

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// lastReadiness is how a config saw a Service last.
type lastReadiness struct {
	ready bool
	// down is since when it has been seen notReady, by the API server's clock; zero while it is Ready.
	down time.Time
	// upAt is the latest of its pods' Ready transitions with which it was seen Ready: it went down after that. Zero when it
	// wasn't seen Ready.
	upAt time.Time
}

// pendingRecovery is of a Service that is Ready, and of which it isn't known yet when it turned so.
type pendingRecovery struct {
	// seen is when it was seen Ready, by our clock.
	seen time.Time
	// was is how it was seen before; the zero value at first sight.
	was lastReadiness
}

// judgeAll judges every Service that a config watches.
func (s *State) judgeAll(cs *configState, at Moment) (due []types.NamespacedName) {
	for _, namespace := range s.namespacesOf(cs) {
		due = append(due, s.judgeIn(cs, namespace, at)...)
	}
	return due
}

func (s *State) judgeIn(cs *configState, namespace string, at Moment) (due []types.NamespacedName) {
	for name := range cs.Services {
		due = append(due, s.judge(cs, types.NamespacedName{Namespace: namespace, Name: name}, at)...)
	}
	return due
}

// judge compares a Service with how the config saw it last. Only the turn to Ready opens a window; a Service that is Ready
// at first sight, or without EndpointSlices until now, opens one only when it turned Ready lately.
func (s *State) judge(cs *configState, key types.NamespacedName, at Moment) (due []types.NamespacedName) {
	svc, was := s.services[key], cs.seen[key]
	if !s.synced || svc == nil || len(svc.slices) == 0 { // not there yet
		return nil
	}
	if !s.see(cs, key, at) {
		return nil
	}
	if !was.ready {
		s.pending[watchKey{cs.UID, key}] = pendingRecovery{seen: at.Now, was: was}
	}
	return s.resolve(cs, key, at)
}

// see notes how a Service is. While it is notReady its dependents fail for want of it: a window ends, and the next recovery opens another.
func (s *State) see(cs *configState, key types.NamespacedName, at Moment) (ready bool) {
	svc, was := s.services[key], cs.seen[key]
	if svc.ready(cs.AllReady) {
		cs.seen[key] = lastReadiness{ready: true, upAt: later(was.upAt, svc.latestUp(s.pods[key.Namespace]))}
		return true
	}
	delete(s.pending, watchKey{cs.UID, key})
	if w := s.windowOf(cs.UID, key.Namespace, key.Name); w != nil {
		s.close(w)
	}
	delete(cs.inherited.byService, key)
	if was.ready || was.down.IsZero() {
		cs.seen[key] = lastReadiness{down: at.server(), upAt: was.upAt}
	}
	return false
}

// unsee makes the config's next look at a Service the first.
func (s *State) unsee(cs *configState, key types.NamespacedName) {
	delete(cs.seen, key)
	delete(s.pending, watchKey{cs.UID, key})
}

// resolve opens a window for a Service that turned Ready less than a watchDuration ago, as its pods' kubelets tell: news of it
// may be late. The window begins then, too. While a pod isn't known that could tell otherwise, it waits.
func (s *State) resolve(cs *configState, key types.NamespacedName, at Moment) (due []types.NamespacedName) {
	watch := watchKey{cs.UID, key}
	turned, waits := s.pending[watch]
	if !waits {
		return nil
	}
	opened, trigger, known := s.turnedReady(cs, key, turned, at)
	if !known {
		return nil
	}
	delete(s.pending, watch)
	s.see(cs, key, at) // its pods are known by now
	firstSight := turned.was.down.IsZero()
	if firstSight {
		opened = cs.inherited.since(key, opened, trigger)
	}
	if !at.Now.Before(opened.Add(cs.WatchDuration)) {
		s.touch(cs) // the status may tell of one that is left
		return nil
	}
	return s.wanted(s.open(cs, key, opened, trigger, firstSight, at), at)
}

// turnedReady is when a Ready Service turned so: by our clock, and as its pods tell. A node's clock may be ahead: it was no
// later than we saw it.
func (s *State) turnedReady(cs *configState, key types.NamespacedName, turned pendingRecovery, at Moment) (opened, since time.Time, known bool) {
	if turned.was.down.IsZero() {
		since, age, known := s.recovery(cs, key, at)
		if known && age <= -cs.WatchDuration { // that clock tells nothing
			return time.Time{}, since, true
		}
		return earlier(turned.seen, at.Now.Add(-age)), since, known
	}
	since, missing := s.services[key].readySince(cs.AllReady, s.pods[key.Namespace])
	if missing || since.IsZero() {
		return time.Time{}, since, false
	}
	age := at.server().Sub(since)
	if turned.was.byOthers(since, age >= cs.WatchDuration) {
		return turned.seen, at.server().Truncate(time.Second), true
	}
	return earlier(turned.seen, at.Now.Add(-age)), since, true
}

// byOthers says that its pods, Ready since then, were so before it went down: not they turned it, but its selector, say, or
// one of AllReady went. Of a Service that wasn't seen Ready before it is taken for granted where that is long ago.
func (was lastReadiness) byOthers(since time.Time, long bool) bool {
	if was.upAt.IsZero() {
		return long && since.Before(was.down.Add(-uncertainCreation))
	}
	return !since.After(was.upAt)
}

// recovery is when a Ready Service turned so, and how long ago by the API server's clock. It is known once no pod that isn't
// known could make it another time, or one within the watchDuration.
func (s *State) recovery(cs *configState, key types.NamespacedName, at Moment) (since time.Time, age time.Duration, known bool) {
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

// resolvePending looks again at the Services behind which the pod stands.
func (s *State) resolvePending(p *podState, at Moment) (due []types.NamespacedName) {
	for watch := range s.pending {
		if watch.service.Namespace == p.Namespace && s.stands(p, watch.service.Name) {
			due = append(due, s.resolve(s.configs[watch.config], watch.service, at)...)
		}
	}
	return due
}
