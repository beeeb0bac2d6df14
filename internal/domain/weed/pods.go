package weed

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// podState is a pod with what we did about it.
type podState struct {
	*Pod
	// firstSeen by our clock.
	firstSeen time.Time
	// restarted: one of its containers was. ranWell: that one ran without a restart for so long at first that the kubelet
	// would have forgotten its back-off.
	restarted, ranWell bool
	// sent is a deletion of ours that the pod as we know it doesn't show yet.
	sent *sent
	// confirmed: the API server took that deletion; this pod is never deleted again.
	confirmed bool
	// held: some config names it as held back.
	held bool
}

// ObservePod takes in a pod as the API server has it and gives the pods to decide on, mostly none or this one. Older news
// than what is known is ignored.
func (y *Yard) ObservePod(pod *Pod, at Moment) (due []types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.observe(pod, at)
}

// ObserveLive takes in a pod read live after a deletion whose outcome was uncertain: it shows the outcome.
func (y *Yard) ObserveLive(pod *Pod, at Moment) (due []types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	due = y.observe(pod, at)
	p := y.pods[pod.Namespace][pod.Name]
	if p.UID == pod.UID && p.sent != nil && !p.Terminating {
		due = append(due, y.takeBack(p)...)
	}
	return due
}

func (y *Yard) observe(pod *Pod, at Moment) (due []types.NamespacedName) {
	key := pod.Key()
	p := y.pods[pod.Namespace][pod.Name]
	if p != nil && older(pod.ResourceVersion, p.ResourceVersion) { // of a former pod of this name, too
		return nil
	}
	if p != nil && p.UID != pod.UID {
		y.drop(p)
		p = nil
	}
	if p == nil {
		p = &podState{Pod: pod, firstSeen: at.Now}
		put(y.pods, key, p)
		y.file(p)
	}
	y.refile(p, pod)
	p.noteRestart()
	y.index(p)
	if p.Ready && len(y.unproven) > 0 {
		due = y.proveBy(p, at)
	}
	if p.actionable() && y.selected(p, at.Now) {
		due = append(due, key)
	}
	return due
}

// noteRestart keeps how the pod ran at first: later it shows only how it ran last.
func (p *podState) noteRestart() {
	if p.Restarted && !p.restarted {
		p.restarted, p.ranWell = true, p.FirstRun >= backOffForgotten
	}
}

// actionable says whether the pod may have to be deleted at all.
func (p *podState) actionable() bool { return p.looping() && !p.Terminating && !p.confirmed }

// index files a pod under those that crash-loop, or takes it from there.
func (y *Yard) index(p *podState) {
	switch {
	case p.actionable():
		put(y.crashing, p.Key(), p)
	case y.crashing[p.Namespace][p.Name] != nil:
		take(y.crashing, p.Key())
		y.release(p)
	}
}

func put(pods map[string]map[string]*podState, key types.NamespacedName, p *podState) {
	here := pods[key.Namespace]
	if here == nil {
		here = map[string]*podState{}
		pods[key.Namespace] = here
	}
	here[key.Name] = p
}

func take(pods map[string]map[string]*podState, key types.NamespacedName) {
	here := pods[key.Namespace]
	if delete(here, key.Name); len(here) == 0 {
		delete(pods, key.Namespace)
	}
}

// release ends a pod's waiting: it was deleted, recovered, or is gone.
func (y *Yard) release(p *podState) {
	key := p.Key()
	y.queue.leave(key)
	if !p.held {
		return
	}
	p.held = false
	for _, cs := range y.configs {
		y.releaseIn(cs, func(k heldKey) bool { return k.pod == key })
	}
}

func (y *Yard) releaseIn(cs *configState, which func(heldKey) bool) {
	before := len(cs.held)
	maps.DeleteFunc(cs.held, func(k heldKey, _ Hold) bool { return which(k) })
	if len(cs.held) != before {
		y.touch(cs)
	}
}

// ForgetPod removes a pod that is gone. Another that has its name by now stays.
func (y *Yard) ForgetPod(key types.NamespacedName, uid types.UID) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if p := y.pods[key.Namespace][key.Name]; p != nil && p.UID == uid {
		y.drop(p)
	}
}

func (y *Yard) drop(p *podState) {
	take(y.crashing, p.Key())
	y.release(p)
	take(y.pods, p.Key())
	y.unfile(p)
	if p.sent != nil {
		y.gone[p.UID] = p.sent
	}
}

// selected says whether an open window selects the pod.
func (y *Yard) selected(p *podState, now time.Time) bool {
	for _, w := range y.windows[p.Namespace] {
		if w.wants(p, now) {
			return true
		}
	}
	return false
}
