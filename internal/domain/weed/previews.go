package weed

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
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
	v := &viewer{Yard: y, cs: &configState{Config: c}, at: at, shared: map[string]bool{}, cycles: map[string]bool{}}
	for _, cs := range y.configs {
		if cs.Key() == c.Key() {
			v.stored = cs
		} else {
			v.others = append(v.others, cs)
		}
	}
	namespaces := y.scope(v.cs)
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
	cs     *configState
	stored *configState
	others []*configState
	at     Moment

	missing, selectorless, external, publishing              sample
	selected, looping, deleted                               sample
	backing, autohealer, ownerless, mirror, job, quorums, co sample
	shared, cycles                                           map[string]bool
	share                                                    int
	shareIn                                                  string
}

// sample counts names and keeps the first.
type sample struct {
	count int
	names []string
}

func (s *sample) add(name string) {
	s.count++
	i, there := slices.BinarySearch(s.names, name)
	if there || i == SampleSize {
		return
	}
	if len(s.names) == SampleSize {
		s.names = s.names[:SampleSize-1]
	}
	s.names = slices.Insert(s.names, i, name)
}

func (v *viewer) viewNamespace(namespace string) {
	open := map[string]bool{}
	for name := range v.cs.Services {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		v.viewService(key)
		open[name] = v.wouldOpen(key)
	}
	neighbors := slices.DeleteFunc(slices.Clone(v.others), func(cs *configState) bool { return !v.holds(cs, namespace) })
	room, sets, selected := map[string]int{}, map[Workload]int{}, 0
	for _, p := range v.pods[namespace] {
		services := v.selecting(p)
		if len(services) == 0 {
			continue
		}
		selected++
		v.viewPod(p, services)
		if p.Controller.Kind == "StatefulSet" {
			sets[p.Workload()] = 0
		}
		v.viewNeighbors(p, neighbors)
		v.viewDeletion(p, services, open, room)
	}
	v.viewSets(namespace, sets)
	v.viewShare(namespace, selected)
	v.viewCycles(namespace, append(neighbors, v.cs))
}

func (v *viewer) viewService(key types.NamespacedName) {
	svc := v.services[key]
	switch {
	case svc == nil || svc.declared == nil:
		v.missing.add(key.String())
		return
	case svc.declared.external:
		v.external.add(key.String())
	case svc.declared.selector == nil:
		v.selectorless.add(key.String())
	}
	if svc.declared.publishNotReady {
		v.publishing.add(key.String())
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
	_, age, known := v.recovery(v.cs, key, v.at)
	return known && age.Abs() < v.cs.WatchDuration
}

// selecting are the Services for which the config selects a pod.
func (v *viewer) selecting(p *podState) (services []string) {
	for name := range v.cs.Services {
		if v.cs.Selects(name, &p.Pod) {
			services = append(services, name)
		}
	}
	slices.Sort(services)
	return services
}

func (v *viewer) viewPod(p *podState, services []string) {
	name := p.Key().String()
	v.selected.add(name)
	if p.actionable() && p.Loop(v.cs.IncludeInit).Container != "" {
		v.looping.add(name)
	}
	if i := slices.IndexFunc(services, func(service string) bool { return v.backs(p, service) }); i >= 0 {
		v.backing.add(fmt.Sprintf("%s (%s)", name, services[i]))
	}
	switch {
	case p.Mirror:
		v.mirror.add(name)
	case p.Controller.Kind == "":
		v.ownerless.add(name)
	case p.Controller.Kind == "Job":
		v.job.add(name)
	}
	if p.autohealers(v.ownNamespace) {
		v.autohealer.add(name)
	}
}

func (v *viewer) backs(p *podState, service string) bool {
	return v.services[types.NamespacedName{Namespace: p.Namespace, Name: service}].backs(&p.Pod)
}

// viewDeletion asks the planner, as if the config were admitted and enforced, for the windows that would be open.
func (v *viewer) viewDeletion(p *podState, services []string, open map[string]bool, room map[string]int) {
	if !p.actionable() || p.sent != nil {
		return
	}
	enforcing := *v.cs.Config
	enforcing.Observe = false
	in := Input{Pod: &p.Pod, Autohealers: p.autohealers(v.ownNamespace), At: Moment{Now: v.at.Now},
		Past: v.ledger.past(p.Workload(), &p.Pod, p.firstSeen, v.at.Now)}
	for _, service := range services {
		if open[service] {
			in.Openings = append(in.Openings, Opening{Config: &enforcing, Standing: Active, Backing: v.backs(p, service), Window: Window{
				Namespace: p.Namespace, Service: service, Ends: v.at.Now.Add(enforcing.WatchDuration), Deleted: room[service],
			}})
		}
	}
	if plan := PlanPod(in); plan.Delete != nil {
		room[plan.Delete.Service]++
		v.deleted.add(p.Key().String())
	}
}

func (v *viewer) viewNeighbors(p *podState, neighbors []*configState) {
	shared := false
	for _, cs := range neighbors {
		for service := range cs.Services {
			if cs.Selects(service, &p.Pod) {
				shared, v.shared[cs.Key().String()] = true, true
				break
			}
		}
	}
	if shared {
		v.co.count++
	}
}

func (v *viewer) viewSets(namespace string, selected map[Workload]int) {
	if len(selected) == 0 {
		return
	}
	for _, p := range v.pods[namespace] {
		if _, ok := selected[p.Workload()]; ok {
			selected[p.Workload()]++
		}
	}
	for w, pods := range selected {
		if pods >= quorum {
			v.quorums.add(namespace + "/" + w.Name)
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
	shared, cycles := slices.Sorted(maps.Keys(v.shared)), slices.Sorted(maps.Keys(v.cycles))
	return Preview{
		MissingServices: v.missing.count, MissingServiceNames: v.missing.names,
		SelectorlessServices: v.selectorless.count, SelectorlessServiceNames: v.selectorless.names,
		ExternalServices: v.external.count, ExternalServiceNames: v.external.names,
		PublishingServices: v.publishing.count, PublishingServiceNames: v.publishing.names,
		SelectedPods: v.selected.count, SelectedPodNames: v.selected.names,
		CrashLoopingPods: v.looping.count, CrashLoopingPodNames: v.looping.names,
		WouldDelete: v.deleted.count, WouldDeletePodNames: v.deleted.names,
		LargestShare: v.share, LargestShareNamespace: v.shareIn,
		BackingPods: v.backing.count, BackingPodNames: v.backing.names,
		AutohealerPods: v.autohealer.count, AutohealerPodNames: v.autohealer.names,
		OwnerlessPods: v.ownerless.count, OwnerlessPodNames: v.ownerless.names,
		MirrorPods: v.mirror.count, MirrorPodNames: v.mirror.names,
		JobPods: v.job.count, JobPodNames: v.job.names,
		QuorumStatefulSets: v.quorums.count, QuorumStatefulSetNames: v.quorums.names,
		SharedPods: v.co.count, SharedWith: shared[:min(len(shared), SampleSize)],
		Cycles: len(cycles), CyclePaths: cycles[:min(len(cycles), SampleSize)],
	}
}
