package weed

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// Outlook is what a config would do if it were in force now, Service by Service and pod by pod. A Preview counts the same
// for rules; this is for people.
type Outlook struct {
	// Services that the config watches, by namespace and name.
	Services []ServiceOutlook
	// Limit is how many pods may be deleted in a minute, over all configs; Spent of them were in the last one.
	Limit, Spent int

	config *Config
}

// ServiceOutlook is what a config would do for one Service.
type ServiceOutlook struct {
	Namespace, Service string
	// Endpoints says that the Service has EndpointSlices; without them nothing is known of its readiness.
	Endpoints bool
	Ready     bool
	// ReadySince is when a Ready Service turned so, by its pods' kubelets; zero while that isn't known.
	ReadySince time.Time
	// Open says that a window is open, or would be as soon as the config is in force; Window is that one.
	Open   bool
	Window Window
	// Dependents counts the pods that depend on the Service, CrashLooping those of them that crash-loop.
	Dependents, CrashLooping int
	// Pods are those that crash-loop, by name, judged for the open window, or where none is open, as if the Service recovered
	// now. A pod that is deleted for another Service's window is there only.
	Pods []PodOutlook
}

// PodOutlook is what becomes of a crash-looping pod.
type PodOutlook struct {
	Pod  types.NamespacedName
	Loop CrashLoop
	// Hold says why it isn't deleted; its Reason is "" when it is.
	Hold Hold
}

// Outlook tells what a WeederConfig would do if it were in force now in a state, in place of a stored one of its name.
// A spec that can't be read gives that error.
func (y *Yard) Outlook(wc *v1alpha1.WeederConfig, state lifecycle.State, limits limit.Limits, at Moment) (Outlook, error) {
	c, err := NewConfig(wc, y.ownNamespace)
	if err != nil {
		return Outlook{}, err
	}
	y.mu.Lock() // the ledger forgets what is too old to count
	defer y.mu.Unlock()
	o := &onlooker{Yard: y, cs: newMatcher(&configState{Config: c}), state: state, limit: limits.MaxPodDeletionsPerMinute, at: at}
	for _, cs := range y.configs {
		if cs.Key() == c.Key() {
			o.stored = cs
		}
	}
	y.ledger.pruneLately(at.Now)
	outlook := Outlook{Limit: o.limit, Spent: len(y.ledger.lately), config: c}
	namespaces := y.scope(o.cs.configState)
	slices.Sort(namespaces)
	for _, namespace := range namespaces {
		outlook.Services = append(outlook.Services, o.namespace(namespace)...)
	}
	return outlook, nil
}

// onlooker works out an Outlook.
type onlooker struct {
	*Yard
	cs     *matcher
	stored *configState // nil when none of its name is stored
	state  lifecycle.State
	limit  int
	at     Moment
	// planned counts the deletions for open windows so far.
	planned int
}

// namespace tells of a namespace's Services: first of the open windows together, as pods stand in all of theirs, then of each
// other Service as if it alone recovered.
func (o *onlooker) namespace(namespace string) []ServiceOutlook {
	services := map[string]*ServiceOutlook{}
	open := map[string]*Window{}
	for name := range o.cs.Services {
		s := o.service(types.NamespacedName{Namespace: namespace, Name: name})
		if services[name] = s; s.Open {
			open[name] = &s.Window
		}
	}
	var looping []*podState
	for _, p := range o.pods[namespace] {
		loops := p.actionable() && p.Loop(o.cs.IncludeInit).Container != ""
		for _, name := range o.cs.of(p.Pod) {
			if services[name].Dependents++; loops {
				services[name].CrashLooping++
			}
		}
		if loops {
			looping = append(looping, p)
		}
	}
	slices.SortFunc(looping, byName)
	now := o.try(looping, open, o.planned, services)
	for name, s := range services {
		if !s.Open {
			recovered := &Window{Namespace: namespace, Service: name, Opened: o.at.Now, Ends: o.at.Now.Add(o.cs.WatchDuration), Trigger: o.at.server()}
			o.try(looping, map[string]*Window{name: recovered}, o.planned+now, services)
		}
	}
	o.planned += now
	var all []ServiceOutlook
	for _, name := range slices.Sorted(maps.Keys(services)) {
		all = append(all, *services[name])
	}
	return all
}

// try notes what becomes of pods when windows are open, and gives how many would be deleted. Before are the deletions that
// take their place under the cluster-wide limit first.
func (o *onlooker) try(looping []*podState, open map[string]*Window, before int, services map[string]*ServiceOutlook) (deleted int) {
	t := &trial{y: o.Yard, config: o.cs.Config, state: o.state, at: o.at, open: open, limit: o.limit, acting: o.acting,
		free: func(deleted int) time.Time { return o.ledger.free(o.limit, before+deleted, o.at.Now) }}
	for _, p := range looping {
		plan := t.plan(p, o.cs.of(p.Pod))
		note := PodOutlook{Pod: p.Key(), Loop: p.Loop(o.cs.IncludeInit)}
		if d := plan.Delete; d != nil {
			services[d.Service].Pods = append(services[d.Service].Pods, note)
		}
		for _, note.Hold = range plan.Holds {
			services[note.Hold.Service].Pods = append(services[note.Hold.Service].Pods, note)
		}
	}
	return t.deleted
}

// acting are the configs in force, with this one in place of the stored one of its name.
func (o *onlooker) acting(namespace string) []*matcher {
	others := slices.DeleteFunc(o.Yard.acting(namespace), func(m *matcher) bool { return m.configState == o.stored })
	return append(others, o.cs)
}

func (o *onlooker) service(key types.NamespacedName) *ServiceOutlook {
	s := &ServiceOutlook{Namespace: key.Namespace, Service: key.Name, Window: Window{Namespace: key.Namespace, Service: key.Name}}
	if svc := o.services[key]; svc != nil && len(svc.slices) > 0 {
		s.Endpoints, s.Ready = true, svc.ready(o.cs.AllReady)
	}
	if s.Ready {
		if since, age, known := o.recovery(o.cs.configState, key, o.at); known {
			s.ReadySince, s.Window.Trigger, s.Window.Opened = since, since, o.at.Now.Add(-max(0, age))
		}
	}
	if w := o.storedWindow(key); w != nil {
		s.Window = *w
	}
	s.Window.Ends = s.Window.Opened.Add(o.cs.WatchDuration)
	s.Open = !s.Window.Opened.IsZero() && o.at.Now.Before(s.Window.Ends)
	return s
}

// storedWindow is the latest window that the config of this name has for a Service, or that its status tells of; nil when
// there is none. One that its manager saw open may have been open for longer than its pods' readiness tells.
func (o *onlooker) storedWindow(key types.NamespacedName) *Window {
	if o.stored == nil {
		return nil
	}
	if w := o.windows[key.Namespace][watchKey{o.stored.UID, key}]; w != nil {
		return &w.Window
	}
	for _, w := range o.stored.stored.Windows {
		if w.Namespace == key.Namespace && w.Service == key.Name {
			return &Window{Namespace: w.Namespace, Service: w.Service, Opened: w.Time.Time, Trigger: w.Time.Time, Deleted: int(w.Deleted)}
		}
	}
	return nil
}
