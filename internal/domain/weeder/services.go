package weeder

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// sliceState is an EndpointSlice as it was seen last, and its Service.
type sliceState struct {
	of      types.NamespacedName
	uid     types.UID
	version string
}

// deletedSlicesKept is for how long a slice that is gone is remembered: what was read before that may still be on its way.
const deletedSlicesKept = time.Minute

// ObserveSlice takes in an EndpointSlice and gives the pods to decide on: those that crash-loop where a window opens. A
// version older than the known one is ignored: slices are read live as well.
func (s *State) ObserveSlice(slice *discoveryv1.EndpointSlice, at timing.Moment) (due []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name}
	of := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	was, known := s.slices[key]
	if _, gone := s.deletedSlices[slice.UID]; gone || older(slice.ResourceVersion, was.version) {
		return nil
	}
	if known && was.of != of {
		s.removeSlice(key, at)
	}
	if of.Name == "" {
		return nil
	}
	s.slices[key] = sliceState{of: of, uid: slice.UID, version: slice.ResourceVersion}
	svc, endpoints := s.serviceOf(of), endpointsOf(slice)
	if same := svc.slices[slice.Name]; same != nil && slices.Equal(same, endpoints) {
		return nil
	}
	svc.setSlice(slice.Name, endpoints)
	for cs := range s.watching(of) {
		due = append(due, s.evaluate(cs, of, at)...)
	}
	return due
}

// ForgetSlice removes an EndpointSlice that is gone. That opens no window, whatever is left.
func (s *State) ForgetSlice(key types.NamespacedName, uid types.UID, at timing.Moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.deletedSlices, func(_ types.UID, gone time.Time) bool { return at.Now.Sub(gone) >= deletedSlicesKept })
	if uid != "" {
		s.deletedSlices[uid] = at.Now
	}
	if was, known := s.slices[key]; known && was.uid == uid { // else it is another by now
		s.removeSlice(key, at)
	}
}

func (s *State) removeSlice(key types.NamespacedName, at timing.Moment) {
	of := s.slices[key].of
	delete(s.slices, key)
	svc := s.services[of]
	svc.setSlice(key.Name, nil)
	for cs := range s.watching(of) {
		w := cs.windows[of]
		if _, seen := cs.seen[of]; seen {
			s.recordReadiness(cs, of, at)
		}
		if len(svc.slices) == 0 {
			s.forgetReadiness(cs, of)
		}
		if len(svc.slices) == 0 && w != nil { // its slices may come again, and its pods be those that turned it Ready
			cs.inherited.byService[of] = w.Window
		}
	}
	s.discardService(of)
}

func (s *State) serviceOf(key types.NamespacedName) *service {
	svc := s.services[key]
	if svc == nil {
		svc = &service{slices: map[string][]endpoint{}, readyAt: map[string]time.Time{}}
		s.services[key] = svc
	}
	return svc
}

// discardService drops what is known of a Service when nothing is left of it.
func (s *State) discardService(key types.NamespacedName) {
	if svc := s.services[key]; svc.declared == nil && len(svc.slices) == 0 {
		delete(s.services, key)
	}
}

// markWatchersDirty marks the configs that watch a Service dirty: their status counts how many exist.
func (s *State) markWatchersDirty(key types.NamespacedName) {
	for cs := range s.watching(key) {
		s.markDirty(cs)
	}
}

// ObserveService records a Service: which pods are its own, and what forecasts need of it. A version older than the known one
// is ignored.
func (s *State) ObserveService(svc *corev1.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}
	of := s.serviceOf(key)
	switch {
	case of.declared == nil:
		s.markWatchersDirty(key)
	case older(svc.ResourceVersion, of.declared.version):
		return
	}
	of.declared = declaredOf(svc)
}

// ForgetService removes a Service that is gone.
func (s *State) ForgetService(key types.NamespacedName, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if svc := s.services[key]; svc != nil && svc.declared != nil && svc.declared.uid == uid {
		svc.declared = nil
		s.markWatchersDirty(key)
		s.discardService(key)
	}
}

// namespace is what is known of one.
type namespace struct {
	labels.Set
	uid     types.UID
	version string
}

// ObserveNamespace takes in a namespace's labels, by which configs choose it, and gives the pods to decide on. A version
// older than the known one is ignored.
func (s *State) ObserveNamespace(ns *corev1.Namespace, at timing.Moment) (due []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.namespaces[ns.Name]
	if known && older(ns.ResourceVersion, before.version) {
		return nil
	}
	after := namespace{Set: ns.Labels, uid: ns.UID, version: ns.ResourceVersion}
	s.namespaces[ns.Name] = after
	for _, cs := range s.scopes[everywhere].configs {
		held, holds := known && cs.Namespaces.Matches(before), cs.Namespaces.Matches(after)
		switch {
		case holds && !held:
			due = append(due, s.evaluateNamespace(cs, ns.Name, at)...)
			s.markDirty(cs)
		case held && !holds:
			s.endUnwatched(cs)
			s.markDirty(cs)
		}
	}
	return due
}

// ForgetNamespace removes a namespace that is gone.
func (s *State) ForgetNamespace(name string, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespaces[name].uid != uid { // it is another by now
		return
	}
	delete(s.namespaces, name)
	for _, cs := range s.scopes[everywhere].configs {
		s.endUnwatched(cs)
		maps.DeleteFunc(cs.inherited.byService, func(key types.NamespacedName, _ Window) bool { return key.Namespace == name })
		s.markDirty(cs)
	}
}

// Backs says whether a pod with such labels backs a Service.
func (s *State) Backs(key types.NamespacedName, pods labels.Selector) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	svc := s.services[key]
	for p := range s.candidates(key.Namespace, []labels.Selector{pods}) {
		if svc.backs(p.Pod) && pods.Matches(labels.Set(p.Labels)) {
			return true
		}
	}
	return false
}

// RunsAutohealer says whether a pod with such labels is one of Autohealer's own.
func (s *State) RunsAutohealer(namespace string, pods labels.Selector) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, p := range s.labelled[namespace][label{labelName, nameAutohealer}] {
		if p.autohealers(s.ownNamespace) && pods.Matches(labels.Set(p.Labels)) {
			return true
		}
	}
	return false
}
