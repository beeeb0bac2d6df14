package weeder

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// service is what is known of a Service and of the pods behind it.
type service struct {
	// slices are its EndpointSlices' endpoints by slice name.
	slices map[string][]endpoint
	// backing are the pods in any of them, by name.
	backing map[string]endpoint
	// readyAt are the Ready transitions of those that are ready, as far as they were known when that was seen.
	readyAt map[string]time.Time
	// declared is the Service itself, nil while it isn't known to exist.
	declared *declaredService
}

// declaredService is what the planner reads of a Service object.
type declaredService struct {
	uid                       types.UID
	version                   string
	external, publishNotReady bool
	// selector is nil when there is none.
	selector labels.Selector
}

// endpoint is a pod behind a Service.
type endpoint struct {
	pod                string
	ready, terminating bool
}

func declaredOf(svc *corev1.Service) *declaredService {
	d := &declaredService{uid: svc.UID, version: svc.ResourceVersion, external: svc.Spec.Type == corev1.ServiceTypeExternalName, publishNotReady: svc.Spec.PublishNotReadyAddresses}
	if len(svc.Spec.Selector) > 0 {
		d.selector = labels.SelectorFromSet(svc.Spec.Selector)
	}
	return d
}

// endpointsOf reads a slice's endpoints that are pods; others have no readiness that anyone reports. A missing condition
// counts as the API says: ready and serving are true, terminating is false. Ready alone isn't the pod's readiness: a
// Service that publishes not-ready addresses has it always true.
func endpointsOf(slice *discoveryv1.EndpointSlice) []endpoint {
	endpoints := make([]endpoint, 0, len(slice.Endpoints))
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
			continue
		}
		terminating := e.Conditions.Terminating != nil && *e.Conditions.Terminating
		ready := isTrue(e.Conditions.Ready) && isTrue(e.Conditions.Serving) && !terminating
		endpoints = append(endpoints, endpoint{pod: e.TargetRef.Name, ready: ready, terminating: terminating})
	}
	return endpoints
}

func isTrue(claim *bool) bool { return claim == nil || *claim }

// setSlice takes in a slice's endpoints; nil removes the slice.
func (s *service) setSlice(slice string, endpoints []endpoint) {
	if endpoints == nil {
		delete(s.slices, slice)
	} else {
		s.slices[slice] = endpoints
	}
	s.backing = make(map[string]endpoint, len(s.backing))
	for _, slice := range s.slices {
		for _, e := range slice { // a dual-stack Service lists each pod twice
			b := s.backing[e.pod]
			s.backing[e.pod] = endpoint{pod: e.pod, ready: b.ready || e.ready, terminating: b.terminating || e.terminating}
		}
	}
	maps.DeleteFunc(s.readyAt, func(name string, _ time.Time) bool { return !s.backing[name].ready })
}

// ready says whether the Service is Ready. One without endpoints isn't.
func (s *service) ready(all bool) bool {
	some := false
	for _, e := range s.backing {
		if all && !e.ready && !e.terminating {
			return false
		}
		some = some || e.ready
	}
	return some
}

// backs says whether a pod is one of the Service's own, ready or not.
func (s *service) backs(p *Pod) bool {
	if s == nil {
		return false
	}
	if _, ok := s.backing[p.Name]; ok {
		return true
	}
	return s.declared != nil && s.declared.selector != nil && s.declared.selector.Matches(labels.Set(p.Labels))
}

// readySince is when the Service became Ready as its ready pods' kubelets report: when the first of them did, or, where all
// must be ready, the last. Pods are those of its namespace; missing says that one of them isn't known to be ready.
func (s *service) readySince(all bool, pods map[string]*podState) (since time.Time, missing bool) {
	for name, e := range s.backing {
		if !e.ready {
			continue
		}
		p := pods[name]
		switch {
		case p == nil || !p.Ready:
			missing = true
		case since.IsZero() || p.ReadySince.Before(since) != all:
			since = p.ReadySince
		}
	}
	return since, missing
}

// latestReady is the latest Ready transition of its ready pods, as it was when each was seen ready in a slice first: a transition
// that is observed later may precede the event that the pod was notReady.
func (s *service) latestReady(pods map[string]*podState) (latest time.Time) {
	for name, e := range s.backing {
		if p := pods[name]; e.ready && s.readyAt[name].IsZero() && p != nil && p.Ready {
			s.readyAt[name] = p.ReadySince
		}
		latest = later(latest, s.readyAt[name])
	}
	return latest
}
