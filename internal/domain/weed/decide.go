package weed

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Next is what a decision asks for.
type Next int

const (
	// Nothing is to be done now; the plan says why and when to look again.
	Nothing Next = iota
	// Delete the pod as the plan says, then say Confirm or Failed.
	Delete
	// ReadLive: the outcome of an earlier deletion is uncertain. Give the pod to ObserveLive, or to ForgetPod if it is gone,
	// and decide again.
	ReadLive
	// ReadRecord: before this process's first deletion for the plan's config, it must be known what others did before. Give the
	// config's status, read live, to Inherit, say Claim, and decide again.
	ReadRecord
)

// sent is a deletion that was decided, with all that it took.
type sent struct {
	record   *Record
	workload Workload
	of       *configState
	window   *window
}

// Decide plans a pod and reserves what its deletion takes from the limits, until it surely failed. Doubt says why what is
// known can't be trusted just now, "" when it can.
func (y *Yard) Decide(key types.NamespacedName, at Moment, doubt string) (Plan, Next) {
	y.mu.Lock()
	defer y.mu.Unlock()
	p := y.pods[key.Namespace][key.Name]
	switch {
	case p == nil || !y.synced || !p.actionable():
		return Plan{}, Nothing
	case p.sent != nil:
		return Plan{Pod: *p.Pod}, ReadLive
	}
	openings, windows := y.openings(p, at)
	if len(openings) == 0 {
		y.release(p)
		return Plan{Pod: *p.Pod}, Nothing
	}
	workload := p.Workload()
	plan := PlanPod(Input{
		Pod: p.Pod, Openings: openings, Autohealers: p.autohealers(y.ownNamespace),
		OwnerHold: y.asked[workload].hold, Past: y.past(p, at),
		FreeAt: y.ledger.free(y.limits.MaxPodDeletionsPerMinute, y.queue.ahead(key), at.Now), Limit: y.limits.MaxPodDeletionsPerMinute,
		At: at, ActsFrom: y.actsFrom, Doubt: doubt,
	})
	if plan.Delete == nil {
		y.noteHolds(p, &plan, windows, at.Now)
		return plan, Nothing
	}
	if !y.configs[plan.Delete.Config].claimed {
		return plan, ReadRecord
	}
	y.reserve(p, workload, plan.Delete, windows, at)
	return plan, Delete
}

// longestWait bounds how long a pod waits for the cluster-wide limit before it's looked at: those before it may leave.
const longestWait = 10 * time.Second

// noteHolds keeps why a pod isn't deleted, for the status, and its place in the queue.
func (y *Yard) noteHolds(p *podState, plan *Plan, windows []*window, now time.Time) {
	key, queued := p.Key(), false
	p.held = true
	for _, h := range plan.Holds {
		i := slices.IndexFunc(windows, func(w *window) bool { return w.of.UID == h.Config && w.Service == h.Service })
		if windows[i].note(p, h) {
			y.touch(windows[i].of)
		}
		queued = queued || h.Reason == HeldByLimit
	}
	if !queued {
		y.queue.leave(key)
		return
	}
	y.queue.enter(key)
	plan.LookAgain = earlier(plan.LookAgain, now.Add(longestWait))
}

// note keeps why the window holds a pod back, and counts it, once for each reason. It says whether the reason is a new one.
func (w *window) note(p *podState, h Hold) (changed bool) {
	k := heldKey{p.Key(), w.Service}
	changed = w.of.held[k].Reason != h.Reason
	w.of.held[k] = h
	n := note{p.UID, h.Reason}
	if _, noted := w.noted[n]; !noted {
		w.noted[n] = struct{}{}
		w.of.skipped[h.Reason]++
	}
	return changed
}

func (y *Yard) reserve(p *podState, workload Workload, d *Deletion, windows []*window, at Moment) {
	cs := y.configs[d.Config]
	s := &sent{workload: workload, of: cs, record: &Record{
		At: at.Now, Server: at.server(), Namespace: p.Namespace, Pod: p.Name, UID: p.UID, Owner: workload.String(), Service: d.Service, Repeat: d.Repeat,
	}}
	s.window = windows[slices.IndexFunc(windows, func(w *window) bool { return w.of == cs && w.Service == d.Service })]
	s.window.Deleted++
	s.window.LastDeletion = at.Now
	p.sent = s
	y.ledger.add(workload, s.record)
	cs.add(s.record)
	y.release(p)
	y.touch(cs)
}

// Objection says what has come to stand before a deletion since it was decided, "" when nothing has. It is to be asked last
// before the request is sent: in a storm that is a while later.
func (y *Yard) Objection(plan Plan, at Moment) string {
	y.mu.Lock()
	defer y.mu.Unlock()
	p := y.pods[plan.Pod.Namespace][plan.Pod.Name]
	switch {
	case p == nil || p.UID != plan.Pod.UID || p.sent == nil:
		return "the pod is gone"
	case y.windows[p.Namespace][watchKey{plan.Delete.Config, types.NamespacedName{Namespace: p.Namespace, Name: plan.Delete.Service}}] != p.sent.window:
		return "the window isn't open any more"
	case !p.sent.window.wants(p, at.Now):
		return "the pod doesn't crash-loop any more, or its window is over"
	}
	in := Input{
		Pod: p.Pod, Autohealers: p.autohealers(y.ownNamespace), OwnerHold: y.asked[p.Workload()].hold,
		At: at, ActsFrom: y.actsFrom, Limit: y.limits.MaxPodDeletionsPerMinute,
	}
	if !y.ledger.fits(p.sent.record, in.Limit, at.Now) {
		in.FreeAt = at.Now.Add(pace)
	}
	o := y.opening(p, p.sent.window)
	for _, ask := range []func(Opening) Hold{in.excluded, in.held, in.permitted, in.distrusted, in.limited} {
		if h := ask(o); h.Reason != "" {
			return h.Message
		}
	}
	return ""
}

// Confirm says that the API server has just taken the deletion of the pod with this UID. No other follows for that pod.
func (y *Yard) Confirm(key types.NamespacedName, uid types.UID, at Moment) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if s := y.gone[uid]; s != nil {
		y.ledger.confirm(s.workload, s.record, at.Now)
		delete(y.gone, uid)
	}
	if p := y.pods[key.Namespace][key.Name]; p != nil && p.UID == uid && p.sent != nil {
		y.ledger.confirm(p.sent.workload, p.sent.record, at.Now)
		p.sent, p.confirmed = nil, true
		y.index(p)
	}
}

// Failed says that the deletion of the pod with this UID surely didn't happen, and gives the pods that may have room now.
// After an uncertain failure nothing is said: the next Decide asks for a live read.
func (y *Yard) Failed(key types.NamespacedName, uid types.UID) (due []types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if p := y.pods[key.Namespace][key.Name]; p != nil && p.UID == uid && p.sent != nil {
		return y.takeBack(p)
	}
	if s := y.gone[uid]; s != nil {
		delete(y.gone, uid)
		return y.refund(s)
	}
	return nil
}

// headsWoken bounds how many pods one freed place wakes.
const headsWoken = 16

// takeBack lets the pod be decided on anew.
func (y *Yard) takeBack(p *podState) (due []types.NamespacedName) {
	s := p.sent
	p.sent = nil
	return y.refund(s)
}

// refund takes back all that a deletion took.
func (y *Yard) refund(s *sent) (due []types.NamespacedName) {
	y.ledger.refund(s.workload, s.record)
	s.of.refund(s.record)
	s.window.Deleted--
	if y.configs[s.of.UID] == s.of {
		y.touch(s.of)
	}
	for k, h := range s.of.held {
		if h.Reason == HeldByBudget && k.service == s.window.Service && k.pod.Namespace == s.window.Namespace {
			due = append(due, k.pod)
		}
	}
	return append(sortedKeys(due)[:min(len(due), headsWoken)], y.queue.heads(headsWoken)...)
}

// lookAgainRefused lies between two evictions of a pod that its PodDisruptionBudget keeps.
const lookAgainRefused = 5 * time.Second

// Refuse keeps, for the status, that a PodDisruptionBudget refused the plan's eviction, which Failed has taken back. It gives
// when to ask again; zero when the window is over by then.
func (y *Yard) Refuse(plan Plan, message string, at Moment) (again time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	key, d := plan.Pod.Key(), plan.Delete
	p := y.pods[key.Namespace][key.Name]
	w := y.windows[key.Namespace][watchKey{d.Config, types.NamespacedName{Namespace: key.Namespace, Name: d.Service}}]
	if p == nil || p.UID != plan.Pod.UID || w == nil {
		return time.Time{}
	}
	again = at.Now.Add(lookAgainRefused)
	p.held = true
	if w.note(p, Hold{Config: d.Config, Service: d.Service, Reason: HeldByDisruption, Message: message, At: again}) {
		y.touch(w.of)
	}
	if !again.Before(w.Ends) {
		return time.Time{}
	}
	return again
}
