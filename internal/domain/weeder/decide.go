package weeder

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/timing"
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
)

// sent is a deletion that was decided, with all that it took.
type sent struct {
	record *Record
	pod    *podState
	of     *configState
	window *window
}

// Decide plans a pod and reserves what its deletion takes from the limits, until it surely failed. Doubt says why what is
// known can't be trusted just now, "" when it can.
func (s *State) Decide(key types.NamespacedName, at timing.Moment, doubt string) (Plan, Next) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[key.Namespace][key.Name]
	switch {
	case p == nil || !s.synced || !p.actionable():
		return Plan{}, Nothing
	case s.sent[p.UID] != nil:
		return Plan{Pod: *p.Pod}, ReadLive
	}
	in := s.input(p, at)
	if in.Openings = s.openings(p, at); len(in.Openings) == 0 {
		s.clearHolds(p)
		return Plan{Pod: *p.Pod}, Nothing
	}
	if !s.claimed {
		doubt = cmp.Or(doubt, "it isn't known yet what earlier leaders did")
	}
	in.Past, in.Doubt = s.past(p, at), doubt
	in.FreeAt = s.log.freeAt(in.Limit, s.queue.ahead(p), at.Now)
	plan := PlanPod(in)
	if plan.Delete == nil {
		s.recordHolds(p, &plan, at.Now)
		return plan, Nothing
	}
	s.reserve(p, plan.Delete, at)
	return plan, Delete
}

// input is what a plan for a pod depends on, whatever the window.
func (s *State) input(p *podState, at timing.Moment) Input {
	return Input{
		Pod: p.Pod, Autohealers: p.autohealers(s.ownNamespace), OwnerHold: s.workloadHolds[p.Workload()].hold,
		At: at, ActsFrom: s.actsFrom, Limit: s.limits.MaxPodDeletionsPerMinute,
	}
}

// openings are the open windows that select a pod, the oldest config first.
func (s *State) openings(p *podState, at timing.Moment) (openings []Opening) {
	windows := s.openWindows(p, at.Now)
	slices.SortFunc(windows, compareWindows)
	for _, w := range windows {
		openings = append(openings, s.opening(p, w))
	}
	return openings
}

// openWindows are those that select a pod.
func (s *State) openWindows(p *podState, now time.Time) (windows []*window) {
	if !p.actionable() {
		return nil
	}
	for c := range s.claimsOn(p.Pod, func(*configState) bool { return true }) {
		w := c.windows[types.NamespacedName{Namespace: p.Namespace, Name: c.service}]
		if w != nil && w.selects(p, now) && !slices.Contains(windows, w) {
			windows = append(windows, w)
		}
	}
	return windows
}

// opening is a window as it is to a pod.
func (s *State) opening(p *podState, w *window) Opening {
	return Opening{
		Config: w.of.Config, State: w.of.state, Window: w.Window, Backing: s.services[w.key()].backs(p.Pod),
		Cycle: s.acting().cycle(p, w.Service),
	}
}

// queued says that a pod waits in the queue.
func (h Hold) queued() bool { return h.Reason == HeldByLimit }

// queueRequeueAfter bounds how long a pod waits for the cluster-wide limit before it's looked at: those before it may leave.
const queueRequeueAfter = 10 * time.Second

// recordHolds keeps why a pod isn't deleted, for the status, and its place in the queue.
func (s *State) recordHolds(p *podState, plan *Plan, now time.Time) {
	for _, h := range plan.Holds {
		s.windowOf(h.Config, p.Namespace, h.Service).count(p, h.Reason)
	}
	s.setHolds(p, plan.Holds)
	if !slices.ContainsFunc(plan.Holds, Hold.queued) {
		s.queue.remove(p)
		return
	}
	s.queue.push(p)
	plan.RequeueAt = timing.Earlier(plan.RequeueAt, now.Add(queueRequeueAfter))
}

func (s *State) reserve(p *podState, d *Deletion, at timing.Moment) {
	cs, w := s.configs[d.Config], s.windowOf(d.Config, p.Namespace, d.Service)
	record := &Record{
		At: at.Now, Server: at.ServerNow(), Namespace: p.Namespace, Pod: p.Name, UID: p.UID, Owner: p.Workload().String(), Service: d.Service, Before: d.Before,
	}
	w.Deleted++
	w.LastDeletion = at.Now
	s.log = append(s.log, record)
	cs.deleted++
	cs.add(record)
	s.sent[p.UID] = &sent{record: record, pod: p, of: cs, window: w}
	s.clearHolds(p)
	s.markDirty(cs)
}

// Revalidate says what has come to block a deletion since it was decided, "" when nothing has. It is to be called last
// before the request is sent: in a storm that is a while later.
func (s *State) Revalidate(plan Plan, at timing.Moment) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, decided := s.pods[plan.Pod.Namespace][plan.Pod.Name], s.sent[plan.Pod.UID]
	switch {
	case p == nil || decided == nil || p != decided.pod:
		return "the pod is gone"
	case s.windowOf(plan.Delete.Config, p.Namespace, plan.Delete.Service) != decided.window:
		return "the window isn't open any more"
	case !decided.window.selects(p, at.Now):
		return "the pod doesn't crash-loop any more, or its window is over"
	}
	in := s.input(p, at)
	if !s.log.fits(decided.record, in.Limit, at.Now) {
		in.FreeAt = at.Now.Add(limitWindow)
	}
	return in.firstHold(s.opening(p, decided.window), in.excluded, in.holdAnnotated, in.notPermitted, in.inDoubt, in.limitReached).Message
}

// Confirm says that the API server has just taken the deletion of the pod with this UID. No other follows for that pod. Cooldown and the
// minute count from now: with a slow API server pods would else go sooner after each other, and more of them in a minute, than they may.
func (s *State) Confirm(uid types.UID, at timing.Moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.sent[uid]
	if d == nil {
		return
	}
	delete(s.sent, uid)
	d.record.confirmedAt = at.Now
	if d.pod.confirmed = true; s.pods[d.pod.Namespace][d.pod.Name] == d.pod {
		s.clearUnlessActionable(d.pod)
	}
}

// Failed records that the deletion of the pod with this UID surely didn't happen, and returns the pods that may have headroom
// now. It isn't called after an uncertain failure: the next Decide asks for a live read.
func (s *State) Failed(uid types.UID) (due []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rollback(uid)
}

// maxRequeued bounds how many pods one freed slot requeues where no more are free.
const maxRequeued = 16

// rollback releases all that a deletion reserved, and lets the pod be decided on again.
func (s *State) rollback(uid types.UID) (due []types.NamespacedName) {
	d := s.sent[uid]
	if d == nil {
		return nil
	}
	delete(s.sent, uid)
	s.log.refund(d.record)
	d.of.deleted--
	d.of.log.remove(d.record)
	if s.configs[d.of.UID] == d.of {
		s.markDirty(d.of)
	}
	d.window.Deleted--
	spent := func(h Hold) bool { return h.Reason == HeldByBudget && d.window.holds(h) }
	for p := range d.of.held { // also where others got headroom before: those that weren't requeued then wouldn't be decided on again
		if p.Namespace == d.window.Namespace && slices.ContainsFunc(p.holds, spent) {
			due = append(due, p.Key())
		}
	}
	requeued := max(maxRequeued, d.of.MaxDeletions-d.window.Deleted) // those that were requeued for other slots may not have taken them yet
	return append(sortedKeys(due)[:min(len(due), requeued)], s.queue.first(maxRequeued)...)
}

// refusedRequeueAfter lies between two evictions of a pod that its PodDisruptionBudget keeps.
const refusedRequeueAfter = 5 * time.Second

// Refuse keeps, for the status, that a PodDisruptionBudget refused the plan's eviction, which Failed has taken back. It gives
// when to ask again; zero when the window is over by then.
func (s *State) Refuse(plan Plan, message string, at timing.Moment) (again time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := plan.Delete
	p, w := s.pods[plan.Pod.Namespace][plan.Pod.Name], s.windowOf(d.Config, plan.Pod.Namespace, d.Service)
	if p == nil || p.UID != plan.Pod.UID || !p.actionable() || w == nil { // what runs again is due when it crashes
		return time.Time{}
	}
	again = at.Now.Add(refusedRequeueAfter)
	w.count(p, HeldByDisruption)
	s.setHolds(p, []Hold{{Config: d.Config, Service: d.Service, Reason: HeldByDisruption, Message: message, At: again}})
	if !again.Before(w.Ends) {
		return time.Time{}
	}
	return again
}

// queue is the order in which pods wait for the cluster-wide limit: who came first goes first.
type queue []*podState

// ahead is how many wait before the pod; all, for one that doesn't wait yet.
func (q queue) ahead(p *podState) int {
	if i := slices.Index(q, p); i >= 0 {
		return i
	}
	return len(q)
}

func (q *queue) push(p *podState) {
	if !slices.Contains(*q, p) {
		*q = append(*q, p)
	}
}

func (q *queue) remove(p *podState) {
	if i := slices.Index(*q, p); i >= 0 {
		*q = slices.Delete(*q, i, i+1)
	}
}

// first are the first to go.
func (q queue) first(most int) (pods []types.NamespacedName) {
	for _, p := range q[:min(most, len(q))] {
		pods = append(pods, p.Key())
	}
	return pods
}
