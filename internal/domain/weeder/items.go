package weeder

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// Items are what a config would do, Service by Service and pod by pod.
type Items struct {
	// Services that the config watches, by namespace and name.
	Services []ServiceForecast
	// DeletedLastMinute counts the pods that were deleted in the last minute, of all that the limit allows.
	DeletedLastMinute int
}

// ServiceForecast is what a config would do for one Service.
type ServiceForecast struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Endpoints says that the Service has EndpointSlices; without them nothing is known of its readiness.
	Endpoints bool `json:"endpoints"`
	Ready     bool `json:"ready"`
	// ReadySince is when a Ready Service turned so, by its pods' kubelets; nil while that isn't known.
	ReadySince *time.Time `json:"readySince"`
	// WindowEnds is when the window ends that is open, or would be as soon as the config is in force; nil when none is.
	WindowEnds *time.Time `json:"windowEnds"`
	// Dependents counts the pods that depend on the Service, CrashLooping those of them that crash-loop.
	Dependents   int `json:"dependents"`
	CrashLooping int `json:"-"`
	// Pods are those that crash-loop, by name, judged for the open window, or where none is open, as if the Service recovered
	// now. A pod that is deleted for another Service's window is there only.
	Pods []PodForecast `json:"crashLooping"`
}

// PodForecast is what becomes of a crash-looping pod.
type PodForecast struct {
	Name string `json:"name"`
	CrashLoop
	Delete bool `json:"delete"`
	// Hold says why it isn't deleted.
	Hold
}

// Deletions counts the pods that would be deleted.
func (s *ServiceForecast) Deletions() (n int) {
	for _, p := range s.Pods {
		if p.Delete {
			n++
		}
	}
	return n
}

// service is how a Service is, and the window that is or would be open; nil when none is.
func (f *forecaster) service(key types.NamespacedName) (*ServiceForecast, *Window) {
	s := &ServiceForecast{Namespace: key.Namespace, Name: key.Name, Pods: []PodForecast{}}
	window := Window{Namespace: key.Namespace, Service: key.Name}
	if svc := f.known.services[key]; svc != nil && len(svc.slices) > 0 {
		s.Endpoints, s.Ready = true, svc.ready(f.config.AllReady)
	}
	if s.Ready {
		if since, age, known := f.known.recovery(f.config, key, f.at); known {
			s.ReadySince = &since
			if age > -f.config.WatchDuration { // else that clock can't be trusted
				window.Trigger, window.Opened = since, f.at.Now.Add(-max(0, age))
			}
		}
	}
	if w := f.storedWindow(key); w != nil && s.Ready { // else it is over, and the status doesn't say so yet
		window = *w
	}
	window.Ends = window.Opened.Add(f.config.WatchDuration)
	if window.Opened.IsZero() || !window.open(f.at.Now) {
		return s, nil
	}
	s.WindowEnds = &window.Ends
	return s, &window
}

// storedWindow is the latest window that the config of this name has for a Service, or that its status lists; nil when
// there is none. One that its manager saw open may have been open for longer than its pods' readiness shows.
func (f *forecaster) storedWindow(key types.NamespacedName) *Window {
	if f.stored == nil {
		return nil
	}
	if w := f.stored.windows[key]; w != nil {
		return &w.Window
	}
	if w, listed := f.stored.inherited.byService[key]; listed {
		return &w
	}
	return nil
}

// items forecasts a namespace's Services: first the open windows together, since a pod may be selected by several, then each
// other Service as if it alone recovered.
func (f *forecaster) items(namespace string, looping []*podState, services map[string]*ServiceForecast, open map[string]*Window) {
	now := f.simulate(looping, open, f.planned, services)
	for name := range services {
		if open[name] == nil {
			recovered := &Window{Namespace: namespace, Service: name, Opened: f.at.Now, Ends: f.at.Now.Add(f.config.WatchDuration), Trigger: f.at.ServerNow()}
			f.simulate(looping, map[string]*Window{name: recovered}, f.planned+now, services)
		}
	}
	f.planned += now
	for _, name := range slices.Sorted(maps.Keys(services)) {
		f.Items.Services = append(f.Items.Services, *services[name])
	}
}

// simulate notes what becomes of pods when windows are open, and gives how many would be deleted. Before are the deletions that
// take their place under the cluster-wide limit first.
func (f *forecaster) simulate(looping []*podState, open map[string]*Window, before int, services map[string]*ServiceForecast) (deleted int) {
	t := &simulation{actors: f.acting(), config: f.config.Config, state: *f.state, at: f.at, windows: open, limit: f.Limit,
		free: func(deleted int) time.Time { return f.known.log.freeAt(f.Limit, before+deleted, f.at.Now) }}
	for _, p := range looping {
		for service, pod := range f.config.forecasts(t.plan(p, f.claims.of(p.Pod))) {
			services[service].Pods = append(services[service].Pods, pod)
		}
	}
	return t.deleted
}

// forecasts is what a plan makes of its pod for the config, by Service.
func (c *Config) forecasts(plan Plan) iter.Seq2[string, PodForecast] {
	return func(yield func(string, PodForecast) bool) {
		pod := PodForecast{Name: plan.Pod.Name, CrashLoop: plan.Pod.Loop(c.IncludeInit)}
		if d := plan.Delete; d != nil && d.Config == c.UID {
			pod.Delete = true
			yield(d.Service, pod) // such a plan has no holds
			return
		}
		for _, pod.Hold = range plan.Holds {
			if pod.Config == c.UID && !yield(pod.Service, pod) {
				return
			}
		}
	}
}

// PlanAll plans all pods that open windows select, one after the other as the manager decides on them, so that
// each place in a budget or under a limit goes to whom it is given. What is planned is reserved: it is for a state that nobody
// acts by.
func (s *State) PlanAll(at timing.Moment) map[types.NamespacedName]Plan {
	s.Claim(nil, at) // what others did is in the statuses that it was fed with
	plans := map[types.NamespacedName]Plan{}
	for _, key := range s.Due(at) {
		plans[key], _ = s.Decide(key, at, "")
	}
	return plans
}

// UsePlans puts what was decided in place of what the config alone would do in its open windows: budgets and limits are of all
// configs together, and a pod that two of them would delete is deleted once.
func (i *Items) UsePlans(c *Config, plans map[types.NamespacedName]Plan) {
	for n := range i.Services {
		s := &i.Services[n]
		if s.WindowEnds == nil {
			continue
		}
		s.Pods = nil
		for key, plan := range plans {
			for service, pod := range c.forecasts(plan) {
				if key.Namespace == s.Namespace && service == s.Name {
					s.Pods = append(s.Pods, pod)
				}
			}
		}
		slices.SortFunc(s.Pods, func(a, b PodForecast) int { return strings.Compare(a.Name, b.Name) })
	}
}

// simulation plans crash-looping pods one after the other for windows that are open or might be, as Decide would, and remembers
// what each deletion takes. It changes nothing.
type simulation struct {
	*actors
	config *Config
	state  lifecycle.State
	at     timing.Moment
	// windows that are open, by Service, all of one namespace.
	windows map[string]*Window
	// free says when the cluster-wide limit, of this value, has a place after so many deletions of this trial; nil leaves
	// the limit out.
	free  func(deleted int) time.Time
	limit int

	deleted int
}

// plan plans a pod that depends on these Services.
func (t *simulation) plan(p *podState, services []string) Plan {
	in := t.input(p, t.at)
	in.Limit, in.ActsFrom = t.limit, time.Time{}
	in.Past = t.past(p, t.at)
	if t.free != nil {
		in.FreeAt = t.free(t.deleted)
	}
	for _, name := range services {
		if w := t.windows[name]; w != nil {
			backing := t.services[types.NamespacedName{Namespace: p.Namespace, Name: name}].backs(p.Pod)
			in.Openings = append(in.Openings, Opening{Config: t.config, State: t.state, Window: *w, Backing: backing, Cycle: t.cycle(p, name)})
		}
	}
	plan := PlanPod(in)
	if d := plan.Delete; d != nil {
		t.deleted++
		t.windows[d.Service].Deleted++
	}
	return plan
}
