package weeder

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// quorum is the least number of members of which one can be lost.
const quorum = 3

// Forecast is what a config would do if it were in force now. Counts are of all; samples are sorted and at most sample.Size,
// pods and Services as namespace/name. Rules read all but Items.
type Forecast struct {
	// Namespaces that the config holds in.
	Namespaces int

	// Services watched, in all those namespaces; MissingServices of them don't exist.
	Services            int
	MissingServices     int
	MissingServiceNames []string
	// SelectorlessServices have pods only where someone else writes their EndpointSlices.
	SelectorlessServices     int
	SelectorlessServiceNames []string
	// ExternalServices are of type ExternalName: no pod is behind them, so they never turn Ready.
	ExternalServices     int
	ExternalServiceNames []string
	// PublishingServices publish not-ready addresses: their clients may have reached them before they were Ready.
	PublishingServices     int
	PublishingServiceNames []string

	// SelectedPods depend on some Service; SelectedPodNames samples them.
	SelectedPods     int
	SelectedPodNames []string
	// CrashLoopingPods of them crash-loop now.
	CrashLoopingPods     int
	CrashLoopingPodNames []string
	// WouldDelete of these would be deleted at once: their Service recovered less than a watchDuration ago and has been Ready since, and nothing but
	// the cluster-wide limit blocks it.
	WouldDelete         int
	WouldDeletePodNames []string
	// Limit is how many pods may be deleted in a minute, over all configs.
	Limit int

	// LargestShare is the largest share of one namespace's pods that is selected, in percent, and LargestShareNamespace
	// where that is.
	LargestShare          int
	LargestShareNamespace string

	// BackingPods are selected for a Service that they are themselves behind.
	BackingPods     int
	BackingPodNames []string
	// AutohealerPods, OwnerlessPods and MirrorPods are selected and never deleted; JobPods are deleted, which counts as a
	// failure of their Job.
	AutohealerPods     int
	AutohealerPodNames []string
	OwnerlessPods      int
	OwnerlessPodNames  []string
	MirrorPods         int
	MirrorPodNames     []string
	JobPods            int
	JobPodNames        []string
	// QuorumStatefulSets have at least three pods, of which some are selected: deleting several may cost their quorum.
	QuorumStatefulSets     int
	QuorumStatefulSetNames []string

	// SharedPods are selected by another config, too, that may act; SharedWith names these configs.
	SharedPods int
	SharedWith []string

	// Cycles are ways, over all configs that may act, on which Services wait for each other ("namespace: a → b → a"): each recovery would
	// delete pods behind the next.
	Cycles     int
	CyclePaths []string

	// Items are the same by Service and pod, for people. Reviews leave them out.
	Items Items
}

// Forecast is what a WeederConfig would do if it were in force now, in place of a stored one of its name. It is empty for a
// spec that can't be read; Terms.Unreadable says why.
func (s *State) Forecast(wc *v1alpha1.WeederConfig, limits limit.Limits, at timing.Moment) Forecast {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.forecast(wc, limits, at, nil)
}

// ForecastItems is the forecast with items, for a config in that state.
func (s *State) ForecastItems(wc *v1alpha1.WeederConfig, state lifecycle.State, limits limit.Limits, at timing.Moment) Forecast {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.forecast(wc, limits, at, &state)
}

func (s *State) forecast(wc *v1alpha1.WeederConfig, limits limit.Limits, at timing.Moment, state *lifecycle.State) Forecast {
	c, err := NewConfig(wc, s.ownNamespace)
	if err != nil {
		return Forecast{}
	}
	f := &forecaster{known: s, config: &configState{Config: c}, claims: claims{}, stored: s.named[c.Key()], at: at, state: state, sharing: sets.New[types.NamespacedName]()}
	f.claims.add(f.config)
	namespaces := s.namespacesOf(f.config)
	slices.Sort(namespaces)
	f.Namespaces, f.Services, f.Limit = len(namespaces), len(namespaces)*len(c.Services), limits.MaxPodDeletionsPerMinute
	if state != nil {
		f.Items = Items{Services: []ServiceForecast{}, DeletedLastMinute: len(s.log.lastMinute(at.Now))}
	}
	for _, namespace := range namespaces {
		f.namespace(namespace)
	}
	for other := range f.sharing {
		sample.Add(new(int), &f.SharedWith, other.String())
	}
	return f.Forecast
}

// forecaster works out a forecast.
type forecaster struct {
	Forecast
	known  *State
	config *configState
	claims claims       // of the config
	stored *configState // nil when none of its name is stored
	at     timing.Moment
	// state of the config for the items; nil leaves them out.
	state *lifecycle.State
	// planned counts the items' deletions for open windows so far.
	planned int
	sharing sets.Set[types.NamespacedName]
}

// namespace looks at the Services of a namespace, and once at each of its pods that depends on one.
func (f *forecaster) namespace(namespace string) {
	services, open := map[string]*ServiceForecast{}, map[string]*Window{}
	for name := range f.config.Services {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		f.countService(key)
		var window *Window
		if services[name], window = f.service(key); window != nil {
			open[name] = window
		}
	}
	var looping []*podState
	statefulSets, selected := sets.New[Workload](), 0
	for p := range f.known.candidates(namespace, slices.Concat(slices.Collect(maps.Values(f.config.Services))...)) {
		on := f.claims.of(p.Pod)
		if len(on) == 0 {
			continue
		}
		selected++
		loops := p.actionable() && p.Loop(f.config.IncludeInit).Container != ""
		if f.countPod(p, on, loops); p.Controller.Kind == "StatefulSet" {
			statefulSets.Insert(p.Workload())
		}
		for _, name := range on {
			if services[name].Dependents++; loops {
				services[name].CrashLooping++
			}
		}
		if loops && f.known.sent[p.UID] == nil {
			looping = append(looping, p)
		}
	}
	slices.SortFunc(looping, func(a, b *podState) int { return compareKeys(a.Key(), b.Key()) })
	f.countDeletions(looping, open)
	f.countSets(namespace, statefulSets)
	f.countShare(namespace, selected)
	f.countCycles(namespace)
	if f.state != nil {
		f.items(namespace, looping, services, open)
	}
}

func (f *forecaster) countService(key types.NamespacedName) {
	svc := f.known.services[key]
	switch {
	case svc == nil || svc.declared == nil:
		sample.Add(&f.MissingServices, &f.MissingServiceNames, key.String())
		return
	case svc.declared.external:
		sample.Add(&f.ExternalServices, &f.ExternalServiceNames, key.String())
	case svc.declared.selector == nil:
		sample.Add(&f.SelectorlessServices, &f.SelectorlessServiceNames, key.String())
	}
	if svc.declared.publishNotReady {
		sample.Add(&f.PublishingServices, &f.PublishingServiceNames, key.String())
	}
}

func (f *forecaster) countPod(p *podState, services []string, loops bool) {
	add := func(count *int, names *[]string) { sample.Add(count, names, p.Namespace, "/", p.Name) }
	add(&f.SelectedPods, &f.SelectedPodNames)
	if loops {
		add(&f.CrashLoopingPods, &f.CrashLoopingPodNames)
	}
	if i := slices.IndexFunc(services, func(service string) bool { return f.backs(p, service) }); i >= 0 {
		sample.Add(&f.BackingPods, &f.BackingPodNames, p.Namespace, "/", p.Name, " (", services[i], ")")
	}
	switch {
	case p.Mirror:
		add(&f.MirrorPods, &f.MirrorPodNames)
	case p.Controller.Kind == "":
		add(&f.OwnerlessPods, &f.OwnerlessPodNames)
	case p.Controller.Kind == "Job":
		add(&f.JobPods, &f.JobPodNames)
	}
	if p.autohealers(f.known.ownNamespace) {
		add(&f.AutohealerPods, &f.AutohealerPodNames)
	}
	f.countSharing(p)
}

func (f *forecaster) backs(p *podState, service string) bool {
	return f.known.services[types.NamespacedName{Namespace: p.Namespace, Name: service}].backs(p.Pod)
}

func (f *forecaster) countSharing(p *podState) {
	shared := false
	for c := range f.known.claimsOn(p.Pod, f.enforces) {
		shared = true
		f.sharing.Insert(c.Key())
	}
	if shared {
		f.SharedPods++
	}
}

// enforces: another config does. What only observes is judged itself when it begins to.
func (f *forecaster) enforces(cs *configState) bool { return !cs.Observe && cs.Key() != f.config.Key() }

// acting are the configs in force, and this one.
func (f *forecaster) acting() *actors {
	others := func(cs *configState) bool { return cs.Key() != f.config.Key() && cs.mayAct() }
	return &actors{State: f.known, counts: others, also: f.config, claims: f.claims}
}

// countDeletions asks the planner, as if the config were admitted and enforced, for the windows that would be open. It leaves out
// the API server's clock: that the clocks differ now says nothing about the config.
func (f *forecaster) countDeletions(looping []*podState, open map[string]*Window) {
	fresh := map[string]*Window{}
	for name, w := range open {
		fresh[name] = &Window{Namespace: w.Namespace, Service: name, Ends: f.at.Now.Add(f.config.WatchDuration)}
	}
	enforcing := *f.config.Config
	enforcing.Observe = false
	t := &simulation{actors: f.acting(), config: &enforcing, state: lifecycle.Active, at: timing.Moment{Now: f.at.Now}, windows: fresh}
	for _, p := range looping {
		if plan := t.plan(p, f.claims.of(p.Pod)); plan.Delete != nil {
			sample.Add(&f.WouldDelete, &f.WouldDeletePodNames, p.Namespace, "/", p.Name)
		}
	}
}

func (f *forecaster) countSets(namespace string, selected sets.Set[Workload]) {
	if len(selected) == 0 {
		return
	}
	members := map[Workload]int{}
	for _, p := range f.known.pods[namespace] {
		if p.Controller.Kind == "StatefulSet" {
			members[p.Workload()]++
		}
	}
	for w := range selected {
		if members[w] >= quorum {
			sample.Add(&f.QuorumStatefulSets, &f.QuorumStatefulSetNames, w.Namespace, "/", w.Name)
		}
	}
}

func (f *forecaster) countShare(namespace string, selected int) {
	if selected == 0 {
		return
	}
	if share := selected * 100 / len(f.known.pods[namespace]); share > f.LargestShare || f.LargestShareNamespace == "" {
		f.LargestShare, f.LargestShareNamespace = share, namespace
	}
}
