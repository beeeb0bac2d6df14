package weed

import (
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// quorum is the least number of members of which one can be lost.
const quorum = 3

// Preview tells what a WeederConfig would do if it were in force now, in place of a stored one of its name. A spec that
// can't be read gives that error.
func (y *Yard) Preview(wc *v1alpha1.WeederConfig, limits limit.Limits, at Moment) (Preview, error) {
	c, err := NewConfig(wc, y.ownNamespace)
	if err != nil {
		return Preview{}, err
	}
	y.mu.RLock()
	defer y.mu.RUnlock()
	v := &viewer{Yard: y, cs: newMatcher(&configState{Config: c}), stored: y.named[c.Key()], at: at, shared: map[types.NamespacedName]bool{}, cycles: map[string]bool{}}
	namespaces := y.scope(v.cs.configState)
	for _, namespace := range namespaces {
		v.viewNamespace(namespace)
	}
	p := v.preview()
	p.Namespaces, p.Services, p.Limit = len(namespaces), len(namespaces)*len(c.Services), limits.MaxPodDeletionsPerMinute
	return p, nil
}

// viewer gathers what a config would do.
type viewer struct {
	*Yard
	cs     *matcher
	stored *configState
	at     Moment
	// act are the configs in force, and this one, once somebody asks; for the namespace that is looked at.
	act []*matcher

	missing, selectorless, external, publishing              sample
	selected, looping, deleted                               sample
	backing, autohealer, ownerless, mirror, job, quorums, co sample
	shared                                                   map[types.NamespacedName]bool
	cycles                                                   map[string]bool
	share                                                    int
	shareIn                                                  string
}

// sample counts objects and keeps the first.
type sample struct {
	count int
	first []example
}

// example is an object and, where that matters, the Service that it is an example for.
type example struct {
	types.NamespacedName
	service string
}

func (s *sample) add(key types.NamespacedName, service string) {
	s.count++
	i, _ := slices.BinarySearchFunc(s.first, key, func(e example, key types.NamespacedName) int { return compareKeys(e.NamespacedName, key) })
	if i == SampleSize {
		return
	}
	if len(s.first) == SampleSize {
		s.first = s.first[:SampleSize-1]
	}
	s.first = slices.Insert(s.first, i, example{key, service})
}

func (s *sample) names() (names []string) {
	for _, e := range s.first {
		name := e.String()
		if e.service != "" {
			name += " (" + e.service + ")"
		}
		names = append(names, name)
	}
	return names
}

func (v *viewer) viewNamespace(namespace string) {
	open := map[string]*Window{}
	for name := range v.cs.Services {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		v.viewService(key)
		if v.wouldOpen(key) {
			open[name] = &Window{Namespace: namespace, Service: name, Ends: v.at.Now.Add(v.cs.WatchDuration)}
		}
	}
	var looping []*podState
	sets, selected := map[Workload]bool{}, 0
	for p := range v.near(namespace, v.selectors()) {
		services := v.cs.of(p.Pod)
		if len(services) == 0 {
			continue
		}
		selected++
		v.viewPod(p, services)
		if p.Controller.Kind == "StatefulSet" {
			sets[p.Workload()] = true
		}
		v.viewNeighbors(p)
		if p.actionable() && p.sent == nil {
			looping = append(looping, p)
		}
	}
	v.viewDeletions(looping, open)
	v.viewSets(namespace, sets)
	v.viewShare(namespace, selected)
	v.viewCycles(namespace)
}

// selectors are those of the config.
func (v *viewer) selectors() iter.Seq[labels.Selector] {
	return func(yield func(labels.Selector) bool) {
		for _, selectors := range v.cs.Services {
			for _, s := range selectors {
				if !yield(s) {
					return
				}
			}
		}
	}
}

func (v *viewer) viewService(key types.NamespacedName) {
	svc := v.services[key]
	switch {
	case svc == nil || svc.declared == nil:
		v.missing.add(key, "")
		return
	case svc.declared.external:
		v.external.add(key, "")
	case svc.declared.selector == nil:
		v.selectorless.add(key, "")
	}
	if svc.declared.publishNotReady {
		v.publishing.add(key, "")
	}
}

// wouldOpen says whether a window is open for the Service or would be as soon as the config is there.
func (v *viewer) wouldOpen(key types.NamespacedName) bool {
	if v.stored != nil {
		if w := v.windows[key.Namespace][watchKey{v.stored.UID, key}]; w != nil && v.at.Now.Before(w.Opened.Add(v.cs.WatchDuration)) {
			return true
		}
	}
	svc := v.services[key]
	if svc == nil || !svc.ready(v.cs.AllReady) {
		return false
	}
	_, age, known := v.recovery(v.cs.configState, key, v.at)
	return known && age.Abs() < v.cs.WatchDuration
}

func (v *viewer) viewPod(p *podState, services []string) {
	key := p.Key()
	v.selected.add(key, "")
	if p.actionable() && p.Loop(v.cs.IncludeInit).Container != "" {
		v.looping.add(key, "")
	}
	if i := slices.IndexFunc(services, func(service string) bool { return v.backs(p, service) }); i >= 0 {
		v.backing.add(key, services[i])
	}
	switch {
	case p.Mirror:
		v.mirror.add(key, "")
	case p.Controller.Kind == "":
		v.ownerless.add(key, "")
	case p.Controller.Kind == "Job":
		v.job.add(key, "")
	}
	if p.autohealers(v.ownNamespace) {
		v.autohealer.add(key, "")
	}
}

func (v *viewer) backs(p *podState, service string) bool {
	return v.services[types.NamespacedName{Namespace: p.Namespace, Name: service}].backs(p.Pod)
}

// viewDeletions asks the planner, as if the config were admitted and enforced, for the windows that would be open.
func (v *viewer) viewDeletions(looping []*podState, open map[string]*Window) {
	slices.SortFunc(looping, byName)
	v.act = nil
	enforcing := *v.cs.Config
	enforcing.Observe = false
	t := &trial{y: v.Yard, config: &enforcing, state: lifecycle.Active, at: Moment{Now: v.at.Now}, open: open, acting: v.acting}
	for _, p := range looping {
		if plan := t.plan(p, v.cs.of(p.Pod)); plan.Delete != nil {
			v.deleted.add(p.Key(), "")
		}
	}
}

// acting are the configs in force in the namespace that is looked at, and this one. Few previews find an open window, and
// need them.
func (v *viewer) acting(namespace string) []*matcher {
	if v.act == nil {
		v.act = []*matcher{v.cs}
		for _, cs := range v.configs {
			if cs.Key() != v.cs.Key() && cs.mayAct() && v.holds(cs, namespace) {
				v.act = append(v.act, newMatcher(cs))
			}
		}
	}
	return v.act
}

// others are the claims on a pod of other configs. What only observes is judged itself when it begins to enforce.
func (v *viewer) others(p *Pod) iter.Seq[claim] {
	key := v.cs.Key()
	return v.claimsOn(p, func(cs *configState) bool { return !cs.Observe && cs.Key() != key })
}

func (v *viewer) viewNeighbors(p *podState) {
	shared := false
	for c := range v.others(p.Pod) {
		shared, v.shared[c.Key()] = true, true
	}
	if shared {
		v.co.count++
	}
}

func (v *viewer) viewSets(namespace string, selected map[Workload]bool) {
	for w := range selected {
		if v.statefulSets[w] >= quorum {
			v.quorums.add(types.NamespacedName{Namespace: namespace, Name: w.Name}, "")
		}
	}
}

func (v *viewer) viewShare(namespace string, selected int) {
	if selected == 0 {
		return
	}
	share := selected * 100 / len(v.pods[namespace])
	if share > v.share || share == v.share && (v.shareIn == "" || namespace < v.shareIn) {
		v.share, v.shareIn = share, namespace
	}
}

func (v *viewer) preview() Preview {
	cycles := slices.Sorted(maps.Keys(v.cycles))
	var shared []string
	for key := range v.shared {
		shared = append(shared, key.String())
	}
	slices.Sort(shared)
	return Preview{
		MissingServices: v.missing.count, MissingServiceNames: v.missing.names(),
		SelectorlessServices: v.selectorless.count, SelectorlessServiceNames: v.selectorless.names(),
		ExternalServices: v.external.count, ExternalServiceNames: v.external.names(),
		PublishingServices: v.publishing.count, PublishingServiceNames: v.publishing.names(),
		SelectedPods: v.selected.count, SelectedPodNames: v.selected.names(),
		CrashLoopingPods: v.looping.count, CrashLoopingPodNames: v.looping.names(),
		WouldDelete: v.deleted.count, WouldDeletePodNames: v.deleted.names(),
		LargestShare: v.share, LargestShareNamespace: v.shareIn,
		BackingPods: v.backing.count, BackingPodNames: v.backing.names(),
		AutohealerPods: v.autohealer.count, AutohealerPodNames: v.autohealer.names(),
		OwnerlessPods: v.ownerless.count, OwnerlessPodNames: v.ownerless.names(),
		MirrorPods: v.mirror.count, MirrorPodNames: v.mirror.names(),
		JobPods: v.job.count, JobPodNames: v.job.names(),
		QuorumStatefulSets: v.quorums.count, QuorumStatefulSetNames: v.quorums.names(),
		SharedPods: v.co.count, SharedWith: shared[:min(len(shared), SampleSize)],
		Cycles: len(cycles), CyclePaths: cycles[:min(len(cycles), SampleSize)],
	}
}
