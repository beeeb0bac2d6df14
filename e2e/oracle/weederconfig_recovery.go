package oracle

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// services follows what backs which Service, and when each turned Ready.
type services struct {
	lag    time.Duration
	pods   map[types.NamespacedName]*pod
	slices map[types.NamespacedName]map[string]*slice // by Service, then by name
	own    map[types.NamespacedName]map[string]string // selectors by Service
	turns  map[readiness][]stamp
	falls  map[readiness]time.Time // when it turned notReady last
}

// readiness is a Service's under one readyPolicy.
type readiness struct {
	service types.NamespacedName
	all     bool
}

func newServices(lag time.Duration) *services {
	return &services{
		lag: lag, pods: map[types.NamespacedName]*pod{}, slices: map[types.NamespacedName]map[string]*slice{},
		own: map[types.NamespacedName]map[string]string{}, turns: map[readiness][]stamp{}, falls: map[readiness]time.Time{},
	}
}

// slice takes in an EndpointSlice. Only an update of what was there turns a Service Ready: whether the first slice tells of a
// recovery, its pods say.
func (s *services) slice(at stamp, before, after *slice) {
	service := cmp.Or(after, before).service
	r := []readiness{{service, false}, {service, true}}
	known, was := len(s.slices[service]) > 0, []bool{s.ready(r[0]), s.ready(r[1])}
	switch {
	case after == nil:
		delete(s.slices[service], before.key.Name)
	case known:
		s.slices[service][after.key.Name] = after
	default:
		s.slices[service] = map[string]*slice{after.key.Name: after}
	}
	for i, of := range r {
		switch is := s.ready(of); {
		case was[i] && !is && len(s.slices[service]) > 0: // else who sees it anew goes by its pods
			s.falls[of] = at.at
		case !was[i] && is && known && after != nil:
			s.turns[of] = append(s.turns[of], at)
		}
		if after != nil {
			s.byPods(of, at)
		}
	}
}

// pod takes in a pod, by whose readiness a manager that sees its Service first tells when it recovered.
func (s *services) pod(at stamp, before, after *pod) {
	if after == nil {
		delete(s.pods, before.key)
		return
	}
	s.pods[after.key] = after
	for service := range s.slices {
		if service.Namespace == after.key.Namespace && s.backed(service, after.key.Name) {
			s.byPods(readiness{service, false}, at)
			s.byPods(readiness{service, true}, at)
		}
	}
}

func (s *services) endpoints(service types.NamespacedName) map[string]endpoint {
	all := map[string]endpoint{}
	for _, slice := range s.slices[service] {
		for _, e := range slice.endpoints {
			known := all[e.pod]
			all[e.pod] = endpoint{pod: e.pod, ready: known.ready || e.ready, terminating: known.terminating || e.terminating}
		}
	}
	return all
}

func (s *services) backed(service types.NamespacedName, pod string) bool {
	_, backs := s.endpoints(service)[pod]
	return backs
}

// backs says whether a pod is one of the Service's own.
func (s *services) backs(service types.NamespacedName, p *pod) bool {
	pairs := s.own[service]
	selected := len(pairs) > 0
	for label, value := range pairs {
		selected = selected && p.labels[label] == value
	}
	return selected || s.backed(service, p.key.Name)
}

func (s *services) ready(of readiness) bool {
	some, every := false, true
	for _, e := range s.endpoints(of.service) {
		some = some || e.ready
		every = every && (e.ready || e.terminating)
	}
	return some && (every || !of.all)
}

// byPods notes the recovery that the pods of a Ready Service tell of: when the first, or the last, of them turned ready.
func (s *services) byPods(of readiness, at stamp) {
	if !s.ready(of) {
		return
	}
	var since time.Time
	for name, e := range s.endpoints(of.service) {
		p := s.pods[types.NamespacedName{Namespace: of.service.Namespace, Name: name}]
		if e.ready && p != nil && !p.readySince.IsZero() && (since.IsZero() || p.readySince.Before(since) != of.all) {
			since = p.readySince
		}
	}
	told := slices.ContainsFunc(s.turns[of], func(t stamp) bool { return t.at.Sub(since).Abs() <= s.lag })
	if !since.IsZero() && !told {
		s.turns[of] = append(s.turns[of], stamp{at.version, since})
	}
}

// windows are the recoveries after which a window of this length may be open at a moment, the latest first. One is over when the Service
// is notReady again, and a manager could know it.
func (s *services) windows(of readiness, length time.Duration, at time.Time) []stamp {
	fell := s.falls[of]
	open := slices.DeleteFunc(slices.Clone(s.turns[of]), func(t stamp) bool {
		return at.Sub(t.at) > length+s.lag || t.at.Before(fell) && at.Sub(fell) > s.lag
	})
	slices.SortStableFunc(open, func(a, b stamp) int { return b.at.Compare(a.at) })
	return open
}
