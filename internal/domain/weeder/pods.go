package weeder

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// podState is a pod with what we did about it.
type podState struct {
	*Pod
	// restarted: one of its containers was. ranLongAtFirst: that one ran without a restart for so long at first that the kubelet
	// would have forgotten its back-off.
	restarted, ranLongAtFirst bool
	// replaces is the deletion of ours as whose heir it counts; nil for none.
	replaces *Record
	// confirmed: the API server took our deletion; this pod is never deleted again.
	confirmed bool
	// holds are why it wasn't deleted when it was decided on last, for each open window.
	holds []Hold
}

// ObservePod takes in a pod as the API server has it and gives the pods to decide on, mostly none or this one. A version
// older than the known one is ignored.
func (s *State) ObservePod(pod *Pod, at timing.Moment) (due []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.observe(pod, at)
}

// ObserveLive takes in a pod read live after a deletion whose outcome was uncertain: it shows the outcome.
func (s *State) ObserveLive(pod *Pod, at timing.Moment) (due []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due = s.observe(pod, at)
	if p := s.pods[pod.Namespace][pod.Name]; p.UID == pod.UID && !p.Terminating {
		due = append(due, s.rollback(pod.UID)...)
	}
	return due
}

func (s *State) observe(pod *Pod, at timing.Moment) (due []types.NamespacedName) {
	key := pod.Key()
	p := s.pods[pod.Namespace][pod.Name]
	if p != nil && older(pod.ResourceVersion, p.ResourceVersion) { // of a former pod of this name, too
		return nil
	}
	if p != nil && p.UID != pod.UID {
		s.removePod(p)
		p = nil
	}
	if p == nil {
		p = &podState{Pod: pod}
		s.addPod(p)
		if !p.Terminating { // else it may be one that is gone already
			s.log.match(p)
		}
	}
	s.updatePod(p, pod)
	p.noteRestart()
	s.clearUnlessActionable(p)
	if p.Ready && len(s.pending) > 0 {
		due = s.resolvePending(p, at)
	}
	if len(s.openWindows(p, at.Now)) > 0 {
		due = append(due, key)
	}
	return due
}

// noteRestart keeps how the pod ran at first: later it shows only how it ran last.
func (p *podState) noteRestart() {
	if p.Restarted && !p.restarted {
		p.restarted, p.ranLongAtFirst = true, p.FirstRun >= backOffForgotten
	}
}

// actionable says whether the pod may have to be deleted at all.
func (p *podState) actionable() bool { return p.looping() && !p.Terminating && !p.confirmed }

// clearUnlessActionable clears the holds of a pod that needn't be deleted any more.
func (s *State) clearUnlessActionable(p *podState) {
	if len(p.holds) > 0 && !p.actionable() {
		s.clearHolds(p)
	}
}

// clearHolds removes a pod from the queue: it was deleted, recovered, or is gone.
func (s *State) clearHolds(p *podState) {
	s.queue.remove(p)
	s.setHolds(p, nil)
}

// setHolds keeps why a pod isn't deleted.
func (s *State) setHolds(p *podState, holds []Hold) {
	same := func(a, b Hold) bool { return a.Config == b.Config && a.Service == b.Service && a.Reason == b.Reason }
	if !slices.EqualFunc(p.holds, holds, same) {
		for _, h := range p.holds {
			if cs := s.configs[h.Config]; cs != nil {
				delete(cs.held, p)
				s.markDirty(cs)
			}
		}
		for _, h := range holds {
			if cs := s.configs[h.Config]; cs != nil {
				cs.held[p] = struct{}{}
				s.markDirty(cs)
			}
		}
	}
	p.holds = holds
}

// ForgetPod removes a pod that is gone. Another that has its name by now stays.
func (s *State) ForgetPod(key types.NamespacedName, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pods[key.Namespace][key.Name]; p != nil && p.UID == uid {
		s.removePod(p)
	}
}

func (s *State) addPod(p *podState) {
	if s.pods[p.Namespace] == nil {
		s.pods[p.Namespace], s.labelled[p.Namespace] = map[string]*podState{}, labelled{}
	}
	s.pods[p.Namespace][p.Name] = p
	s.labelled[p.Namespace].add(p)
}

func (s *State) removePod(p *podState) {
	s.clearHolds(p)
	s.labelled[p.Namespace].remove(p)
	if delete(s.pods[p.Namespace], p.Name); len(s.pods[p.Namespace]) == 0 {
		delete(s.pods, p.Namespace)
		delete(s.labelled, p.Namespace)
	}
}

// workloadHold is what a workload asks for, and of which state of it that is known.
type workloadHold struct {
	hold    *hold.Hold // nil for none
	version string
}

// ObserveHold takes in the hold that a workload's annotation asks for, nil for none, in the state with this resource version,
// and gives the pods to decide on. A version older than the known one is ignored.
func (s *State) ObserveHold(w Workload, h *hold.Hold, version string, at timing.Moment) (due []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.workloadHolds[w]
	if older(version, was.version) {
		return nil
	}
	s.workloadHolds[w] = workloadHold{h, version}
	if h.Same(was.hold) {
		return nil
	}
	return s.dueOf(w, at)
}

// ForgetHold removes a workload that is gone, and gives the pods to decide on.
func (s *State) ForgetHold(w Workload, at timing.Moment) (due []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.workloadHolds[w]
	delete(s.workloadHolds, w)
	if was.hold == nil {
		return nil
	}
	return s.dueOf(w, at)
}

// dueOf are the workload's pods to decide on.
func (s *State) dueOf(w Workload, at timing.Moment) (due []types.NamespacedName) {
	for _, p := range s.pods[w.Namespace] {
		if p.Workload() == w && len(s.openWindows(p, at.Now)) > 0 {
			due = append(due, p.Key())
		}
	}
	return sortedKeys(due)
}
