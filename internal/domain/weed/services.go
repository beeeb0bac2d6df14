package weed

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// ObserveSlice takes in an EndpointSlice and gives the pods to decide on: those that crash-loop where a window opens.
func (y *Yard) ObserveSlice(slice *discoveryv1.EndpointSlice, at Moment) (due []types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	key := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name}
	of := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	if was, known := y.sliceOf[key]; known && was != of {
		y.removeSlice(key)
	}
	if of.Name == "" {
		return nil
	}
	y.sliceOf[key] = of
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
func (y *Yard) ForgetSlice(key types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if _, known := y.sliceOf[key]; known {
		y.removeSlice(key)
	}
}

func (y *Yard) removeSlice(key types.NamespacedName) {
	of := y.sliceOf[key]
	delete(y.sliceOf, key)
	svc := y.services[of]
	svc.put(key.Name, nil)
	for _, cs := range y.naming[of.Name] {
		if _, seen := cs.ready[of]; seen {
			cs.ready[of] = svc.ready(cs.AllReady)
		}
		if len(svc.slices) == 0 {
			y.unsee(cs, of)
		}
	}
	y.discard(of)
}

// unsee makes the config's next look at a Service the first.
func (y *Yard) unsee(cs *configState, key types.NamespacedName) {
	delete(cs.ready, key)
	delete(y.unproven, watchKey{cs.UID, key})
}

func (y *Yard) serviceOf(key types.NamespacedName) *service {
	svc := y.services[key]
	if svc == nil {
		svc = &service{slices: map[string][]endpoint{}}
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

// ObserveService takes in a Service: whose pods are its own, and what previews tell of it.
func (y *Yard) ObserveService(svc *corev1.Service) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.serviceOf(types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}).declared = declare(svc)
}

// ForgetService removes a Service that is gone.
func (y *Yard) ForgetService(key types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if svc := y.services[key]; svc != nil {
		svc.declared = nil
		y.discard(key)
	}
}

// ObserveNamespace takes in a namespace's labels, by which configs choose it, and gives the pods to decide on.
func (y *Yard) ObserveNamespace(name string, of map[string]string, at Moment) (due []types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	before, known := y.namespaces[name]
	after := labels.Set(of)
	y.namespaces[name] = after
	for _, cs := range y.configs {
		if cs.Namespaces == nil {
			continue
		}
		held, holds := known && cs.Namespaces.Matches(before), cs.Namespaces.Matches(after)
		switch {
		case holds && !held:
			due = append(due, y.judgeIn(cs, name, at)...)
			y.touch(cs)
		case held && !holds:
			y.narrow(cs)
			y.touch(cs)
		}
	}
	return due
}

// ForgetNamespace removes a namespace that is gone.
func (y *Yard) ForgetNamespace(name string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	delete(y.namespaces, name)
	for _, cs := range y.configs {
		if cs.Namespaces != nil {
			y.narrow(cs)
			y.touch(cs)
		}
	}
}

// Backs says whether a pod with such labels stands behind a Service.
func (y *Yard) Backs(key types.NamespacedName, pods labels.Selector) bool {
	y.mu.RLock()
	defer y.mu.RUnlock()
	svc := y.services[key]
	for _, p := range y.pods[key.Namespace] {
		if svc.backs(p.Pod) && pods.Matches(labels.Set(p.Labels)) {
			return true
		}
	}
	return false
}
