package weed

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

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
	// upAt is the latest of its pods' Ready transitions with which it was seen Ready: it went down after that. Zero when it
	// wasn't seen Ready.
	upAt time.Time
}

// turn is a Service that is Ready and may have turned so lately.
type turn struct {
	// seen is when it was seen Ready, by our clock.
	seen time.Time
	// down is since when it had been seen notReady, by the API server's clock; zero at first sight.
	down time.Time
	// upAt is the latest Ready transition that lies before it went down; zero when none is known.
	upAt time.Time
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
	y.seeUp(cs, key)
	if !known || !was.ready {
		y.unproven[watch] = turn{seen: at.Now, down: was.down, upAt: was.upAt}
	}
	return y.prove(cs, watch, at)
}

// seeUp notes that a Service is Ready.
func (y *Yard) seeUp(cs *configState, key types.NamespacedName) {
	cs.seen[key] = sight{ready: true, upAt: later(cs.seen[key].upAt, y.services[key].latestUp(y.pods[key.Namespace]))}
}

// seeDown notes that a Service is notReady.
func (y *Yard) seeDown(cs *configState, key types.NamespacedName, at Moment) {
	delete(y.unproven, watchKey{cs.UID, key})
	if was, known := cs.seen[key]; !known || was.ready {
		cs.seen[key] = sight{down: at.server(), upAt: was.upAt}
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
	y.seeUp(cs, watch.service) // its pods are known by now
	firstSight := turned.down.IsZero()
	if firstSight {
		opened = cs.left.since(watch.service, opened, trigger)
	}
	if !at.Now.Before(opened.Add(cs.WatchDuration)) {
		y.touch(cs) // the status may tell of one that is left
		return nil
	}
	due = y.open(cs, watch.service, opened, trigger, at)
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
	if turned.byOthers(since) || turned.upAt.IsZero() && age >= cs.WatchDuration && since.Before(turned.down.Add(-uncertainCreation)) {
		return turned.seen, at.server().Truncate(time.Second), true
	}
	return earlier(turned.seen, at.Now.Add(-age)), since, true
}

// byOthers says that its pods, Ready since then, were so before it went down: not they turned it, but its selector, say, or
// one of AllReady went.
func (t turn) byOthers(since time.Time) bool { return !t.upAt.IsZero() && !since.After(t.upAt) }

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
