package weeder

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// Claim takes over what other processes did, from all configs as they were just read live: a watch may be late. From
// now on only this process acts; before, Decide holds everything back. Nothing is claimed while configs aren't known for which something was
// done: those it gives.
func (s *State) Claim(configs []v1alpha1.WeederConfig, at timing.Moment) (unknown []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range configs {
		wc := &configs[i]
		st := &wc.Status
		if cs := s.configs[wc.UID]; cs != nil && !s.claimed {
			cs.Config = cs.WithStatus(*st)
			s.inherit(cs, false, at)
			s.markDirty(cs)
		} else if cs == nil && (st.Spent != nil || len(st.RecentDeletions) > 0 || len(st.Windows) > 0) {
			unknown = append(unknown, types.NamespacedName{Namespace: wc.Namespace, Name: wc.Name})
		}
	}
	s.claimed = s.claimed || len(unknown) == 0
	return unknown
}

// Claimed says whether only this process acts, see Claim.
func (s *State) Claimed() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.claimed
}

// inherit takes over what another process, which acted before this one, left in the status. It only forbids: deletions
// count for their workloads, for the minute and for the windows that are open. Once this process acts it knows better, but of a config
// that it sees for the first time.
func (s *State) inherit(cs *configState, first bool, at timing.Moment) {
	if s.claimed && !first {
		return
	}
	st := &cs.stored
	cs.deleted = max(cs.deleted, st.Deleted)
	for _, skipped := range st.Skipped {
		reason := Reason(skipped.Reason)
		cs.skipped[reason] = max(cs.skipped[reason], skipped.Count)
	}
	if l := st.LastTriggered; l != nil && l.Time.After(cs.last.Stored(cs.last.Opened)) {
		cs.last = Window{Namespace: l.Namespace, Service: l.Service, Opened: l.Time.Time}
	}
	s.inheritDeletions(cs, at)
	cs.inherited.take(st, at)
	for _, w := range cs.windows {
		cs.inherited.charge(w)
	}
}

// sameRecovery says whether two times may be of one recovery: two processes may place it so far apart as clocks may be.
func sameRecovery(a, b time.Time) bool { return a.Sub(b).Abs() < maxClockSkew }

// ListedIn says whether a status lists the window.
func (w *Window) ListedIn(st *v1alpha1.WeederConfigStatus) bool {
	return slices.ContainsFunc(st.Windows, func(s v1alpha1.RecoveryWindow) bool {
		return s.Namespace == w.Namespace && s.Service == w.Service && sameRecovery(s.Time.Time, w.Stored(w.Opened))
	})
}

// inheritedWindows are those that another process, which acted before this one, left open. They outlive the status in which they
// were found: this process writes its own before it knows of all Services when they turned Ready.
type inheritedWindows struct {
	byService map[types.NamespacedName]Window
	// least is what a window counts for that opened before then and that the status doesn't list.
	least int
	until time.Time
}

// take takes them over from a status.
func (i *inheritedWindows) take(st *v1alpha1.WeederConfigStatus, at timing.Moment) {
	maps.DeleteFunc(i.byService, func(_ types.NamespacedName, w Window) bool { return at.Now.Sub(w.Ends) > maxClockSkew })
	for _, s := range st.Windows {
		w := Window{Namespace: s.Namespace, Service: s.Service, Opened: at.FromServer(s.Time.Time), Ends: at.FromServer(s.Until.Time), Deleted: int(s.Deleted), ClockAhead: at.AheadBy()}
		if s.LastDeletion != nil {
			w.LastDeletion = at.FromServer(s.LastDeletion.Time)
		}
		i.byService[types.NamespacedName{Namespace: s.Namespace, Name: s.Service}] = w
	}
	if last := st.LastTriggered; last != nil && 0 < len(st.Windows) && len(st.Windows) < int(st.ActiveWindows) {
		least := slices.MinFunc(st.Windows, func(a, b v1alpha1.RecoveryWindow) int { return cmp.Compare(a.Deleted, b.Deleted) })
		i.least, i.until = max(i.least, int(least.Deleted)), at.FromServer(last.Time.Time).Add(maxClockSkew)
	}
}

// charge charges a window with what another process deleted in it. One that is the first that was seen of its Service may be another than
// that which was left: that is unknown, and it counts either way. A window that the status doesn't list counts as much as the least of those that it lists.
func (i *inheritedWindows) charge(w *window) {
	was, listed := i.byService[w.key()]
	switch {
	case listed && (sameRecovery(w.Opened, was.Opened) || w.firstObservation && !w.Opened.After(was.Ends)):
		w.Deleted, w.LastDeletion = max(w.Deleted, was.Deleted), timing.Later(w.LastDeletion, was.LastDeletion)
	case !listed && w.Opened.Before(i.until):
		w.Deleted = max(w.Deleted, i.least)
	}
}

// since is when the window of a Service that is Ready when first observed opened. An inherited one continues unchanged, unless the
// Service's pods turned Ready later than that: then it recovered once more while nobody looked, or other pods took the place
// of those that had turned it Ready. That is unknown, and what the former window spent counts either way.
func (i *inheritedWindows) since(key types.NamespacedName, opened, trigger time.Time) time.Time {
	w, listed := i.byService[key]
	if !listed || opened.IsZero() || trigger.After(w.Ends) || opened.After(w.Opened) && !sameRecovery(opened, w.Opened) {
		return opened
	}
	return w.Opened
}

// pendingInherited are the windows that were left and may open again: of Services of which it isn't known yet when they turned Ready.
func (s *State) pendingInherited(cs *configState, now time.Time) (windows []Window) {
	for key, w := range cs.inherited.byService {
		if _, pending := s.pending[watchKey{cs.UID, key}]; pending && w.open(now) && cs.windows[key] == nil {
			windows = append(windows, w)
		}
	}
	return windows
}

// inheritDeletions takes over the deletions of a status. Those that it lists count for their workloads, those that it doesn't list, as
// one, for every dependent, and for the minute as many as it says, all at the time of the latest.
func (s *State) inheritDeletions(cs *configState, at timing.Moment) {
	for _, d := range slices.Backward(cs.stored.RecentDeletions) {
		if slices.ContainsFunc(cs.log, func(r *Record) bool { return r.UID == types.UID(d.PodUID) }) {
			continue
		}
		when := at.LatestFromServer(d.Time.Time)
		r := &Record{
			At: when, Server: d.Time.Time, Namespace: d.Namespace, Pod: d.Pod, UID: types.UID(d.PodUID), Owner: d.Owner,
			Service: d.Service, Before: repeated(when, d.Repeats), inherited: true,
		}
		cs.add(r)
		s.log = append(s.log, r)
	}
	for _, r := range cs.lastMinute {
		s.log.remove(r)
	}
	cs.lastMinute, cs.unlisted = nil, nil
	spent := cs.stored.Spent
	if spent == nil {
		return
	}
	last := at.LatestFromServer(spent.LastDeletion.Time)
	for range min(spent.LastMinute, greatestLimit) {
		r := &Record{At: last, confirmedAt: last}
		s.log, cs.lastMinute = append(s.log, r), append(cs.lastMinute, r)
	}
	if u := spent.Unlisted; u != nil {
		last = at.LatestFromServer(u.To.Time)
		cs.unlisted = &Record{At: last, Server: u.From.Time, Before: repeated(last, u.Repeats)}
	}
}

// greatestLimit is the most that maxPodDeletionsPerMinute can be. The limit in force may not be known yet.
const greatestLimit = 10_000

// past gives the deletions that count against one more of the pod: those that it comes after. Of other processes' it may come after any that
// isn't known to be later. A pod that ran well at first replaces nothing any more: what fails now isn't what failed then.
func (s *State) past(p *podState, at timing.Moment) (past Past) {
	switch {
	case p.ranLongAtFirst:
		return past
	case p.replaces != nil: // of our own, before which all others' were
		past.add(p.replaces, at.Now)
		return past
	}
	owner := p.Workload().String()
	for _, d := range s.log {
		if d.inherited && d.mayPrecede(p, owner) {
			past.add(d, at.Now)
		}
	}
	for cs := range s.applyingTo(p.Namespace) {
		if u := cs.unlisted; u != nil && u.counts(at.Now) && u.precedes(p.Pod) && cs.selectsAny(p.Pod) {
			past.add(u, at.Now)
		}
	}
	return past
}

// greatestRepeats is the most that maxRepeatsPerOwner can be.
const greatestRepeats = 20

// repeated are so many deletions of which only is known that they were before this time.
func repeated(when time.Time, repeats int32) []time.Time {
	return slices.Repeat([]time.Time{when}, int(min(max(0, repeats), greatestRepeats)))
}
