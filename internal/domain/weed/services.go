package weed

import (
	"iter"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// sliceState is an EndpointSlice as it was seen last, and its Service.
type sliceState struct {
	of      types.NamespacedName
	uid     types.UID
	version string
}

// ghostsKept is for how long a slice that is gone is remembered: what was read before that may still be on its way.
const ghostsKept = time.Minute

// ObserveSlice takes in an EndpointSlice and gives the pods to decide on: those that crash-loop where a window opens. Older
// news than what is known is ignored: slices are read live as well.
func (y *Yard) ObserveSlice(slice *discoveryv1.EndpointSlice, at Moment) (due []types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	key := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name}
	of := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	was, known := y.slices[key]
	if _, gone := y.ghosts[slice.UID]; gone || older(slice.ResourceVersion, was.version) {
		return nil
	}
	if known && was.of != of {
		y.removeSlice(key, at)
	}
	if of.Name == "" {
		return nil
	}
	y.slices[key] = sliceState{of: of, uid: slice.UID, version: slice.ResourceVersion}
	svc, endpoints := y.serviceOf(of), endpointsOf(slice)
	if sameEndpoints(svc.slices[slice.Name], endpoints) {
		return nil
	}
	svc.put(slice.Name, endpoints)
	for _, cs := range y.naming[of.Name] {
		if y.holds(cs, of.Namespace) {
			due = append(due, y.judge(cs, of, at)...)
		}
	}
	return due
}

// ForgetSlice removes an EndpointSlice that is gone. That opens no window, whatever is left.
func (y *Yard) ForgetSlice(key types.NamespacedName, uid types.UID, at Moment) {
	y.mu.Lock()
	defer y.mu.Unlock()
	maps.DeleteFunc(y.ghosts, func(_ types.UID, gone time.Time) bool { return at.Now.Sub(gone) >= ghostsKept })
	if uid != "" {
		y.ghosts[uid] = at.Now
	}
	if was, known := y.slices[key]; known && was.uid == uid { // else it is another by now
		y.removeSlice(key, at)
	}
}

func (y *Yard) removeSlice(key types.NamespacedName, at Moment) {
	of := y.slices[key].of
	delete(y.slices, key)
	svc := y.services[of]
	svc.put(key.Name, nil)
	for _, cs := range y.naming[of.Name] {
		if _, seen := cs.seen[of]; seen {
			if svc.ready(cs.AllReady) {
				y.seeUp(cs, of)
			} else {
				y.seeDown(cs, of, at)
			}
		}
		if len(svc.slices) == 0 {
			y.unsee(cs, of)
		}
	}
	y.discard(of)
}

// unsee makes the config's next look at a Service the first.
func (y *Yard) unsee(cs *configState, key types.NamespacedName) {
	delete(cs.seen, key)
	delete(y.unproven, watchKey{cs.UID, key})
}

func (y *Yard) serviceOf(key types.NamespacedName) *service {
	svc := y.services[key]
	if svc == nil {
		svc = &service{slices: map[string][]endpoint{}, up: map[string]time.Time{}}
		y.services[key] = svc
	}
	return svc
}

// discard drops what is known of a Service when nothing is left of it.
func (y *Yard) discard(key types.NamespacedName) {
	if svc := y.services[key]; svc.declared == nil && len(svc.slices) == 0 {
		delete(y.services, key)
	}
}

// ObserveService takes in a Service: whose pods are its own, and what forecasts tell of it. Older news than what is known is
// ignored.
func (y *Yard) ObserveService(svc *corev1.Service) {
	y.mu.Lock()
	defer y.mu.Unlock()
	of := y.serviceOf(types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name})
	if of.declared == nil || !older(svc.ResourceVersion, of.declared.version) {
		of.declared = declare(svc)
	}
}

// ForgetService removes a Service that is gone.
func (y *Yard) ForgetService(key types.NamespacedName, uid types.UID) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if svc := y.services[key]; svc != nil && svc.declared != nil && svc.declared.uid == uid {
		svc.declared = nil
		y.discard(key)
	}
}

// namespace is what is known of one.
type namespace struct {
	labels.Set
	uid     types.UID
	version string
}

// ObserveNamespace takes in a namespace's labels, by which configs choose it, and gives the pods to decide on. Older news
// than what is known is ignored.
func (y *Yard) ObserveNamespace(ns *corev1.Namespace, at Moment) (due []types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	before, known := y.namespaces[ns.Name]
	if known && older(ns.ResourceVersion, before.version) {
		return nil
	}
	after := namespace{Set: ns.Labels, uid: ns.UID, version: ns.ResourceVersion}
	y.namespaces[ns.Name] = after
	for _, cs := range y.configs {
		if cs.Namespaces == nil {
			continue
		}
		held, holds := known && cs.Namespaces.Matches(before), cs.Namespaces.Matches(after)
		switch {
		case holds && !held:
			due = append(due, y.judgeIn(cs, ns.Name, at)...)
			y.touch(cs)
		case held && !holds:
			y.narrow(cs)
			y.touch(cs)
		}
	}
	return due
}

// ForgetNamespace removes a namespace that is gone.
func (y *Yard) ForgetNamespace(name string, uid types.UID) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.namespaces[name].uid != uid { // it is another by now
		return
	}
	delete(y.namespaces, name)
	for _, cs := range y.configs {
		if cs.Namespaces != nil {
			y.narrow(cs)
			maps.DeleteFunc(cs.left.windows, func(key types.NamespacedName, _ Window) bool { return key.Namespace == name })
			y.touch(cs)
		}
	}
}

// Backs says whether a pod with such labels stands behind a Service.
func (y *Yard) Backs(key types.NamespacedName, pods labels.Selector) bool {
	y.mu.RLock()
	defer y.mu.RUnlock()
	svc := y.services[key]
	for p := range y.near(key.Namespace, one(pods)) {
		if svc.backs(p.Pod) && pods.Matches(labels.Set(p.Labels)) {
			return true
		}
	}
	return false
}

// RunsAutohealer says whether a pod with such labels is one of Autohealer's own.
func (y *Yard) RunsAutohealer(namespace string, pods labels.Selector) bool {
	y.mu.RLock()
	defer y.mu.RUnlock()
	for _, p := range y.labelled[namespace][label{labelName, nameAutohealer}] {
		if p.autohealers(y.ownNamespace) && pods.Matches(labels.Set(p.Labels)) {
			return true
		}
	}
	return false
}

func one(s labels.Selector) iter.Seq[labels.Selector] {
	return func(yield func(labels.Selector) bool) { yield(s) }
}
