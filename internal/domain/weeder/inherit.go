package weeder

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Inherit takes in configs' statuses that were read live: what other processes did may not be told by a watch in time. It gives
// those that it doesn't know and for which something was done.
func (s *State) Inherit(statuses map[types.UID]v1alpha1.WeederConfigStatus, at Moment) (unknown []types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, st := range statuses {
		cs := s.configs[uid]
		switch {
		case cs != nil:
			cs.Config = cs.WithStatus(st)
			s.inherit(cs, at)
			s.touch(cs)
		case st.Spent != nil || len(st.RecentDeletions) > 0 || len(st.Windows) > 0:
			unknown = append(unknown, uid)
		}
	}
	return unknown
}

// Claim says that what other processes did for these configs is known, and that none but this one acts from now on. Until then
// Decide gives no deletion for them.
func (s *State) Claim(uids []types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uid := range uids {
		if cs := s.configs[uid]; cs != nil {
			cs.claimed = true
		}
	}
}

// Claimed says whether Claim was called for a config.
func (s *State) Claimed(config types.UID) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	cs := s.configs[config]
	return cs != nil && cs.claimed
}

// inherit takes over what another process, which acted before this one, left in the status. It only forbids: deletions
// count for their workloads, for the minute and for the windows that are open.
func (s *State) inherit(cs *configState, at Moment) {
	st := &cs.stored
	if cs.claimed {
		return
	}
	cs.deleted = max(cs.deleted, st.Deleted)
	for _, skipped := range st.Skipped {
		reason := Reason(skipped.Reason)
		cs.skipped[reason] = max(cs.skipped[reason], skipped.Count)
	}
	if l := st.LastTriggered; l != nil && l.Time.After(cs.last.Stored(cs.last.Opened)) {
		cs.last = Window{Namespace: l.Namespace, Service: l.Service, Opened: l.Time.Time}
	}
	s.inheritDeletions(cs, st.RecentDeletions, at)
	s.inheritUnlisted(cs, st, at)
	cs.inherited.take(st, at, cs.WatchDuration)
	for w := range s.windowsOf(cs) {
		if known(st, w) {
			cs.inherited.chargeWindow(w)
		}
	}
}

// ListedIn says whether a status lists a window of the Service, and whether it is the same one. Two processes may place one recovery
// so far apart as clocks may be.
func (w *Window) ListedIn(st *v1alpha1.WeederConfigStatus) (listed, same bool) {
	i := slices.IndexFunc(st.Windows, func(s v1alpha1.RecoveryWindow) bool { return s.Namespace == w.Namespace && s.Service == w.Service })
	return i >= 0, i >= 0 && w.Stored(w.Opened).Sub(st.Windows[i].Time.Time).Abs() < clocksApart
}

// known says whether a status that another process wrote has seen the window open.
func known(st *v1alpha1.WeederConfigStatus, w *window) bool {
	if listed, same := w.ListedIn(st); listed {
		return same
	}
	return st.LastTriggered != nil && w.Stored(w.Opened).Before(st.LastTriggered.Time.Add(clocksApart))
}

// inheritedWindows are those that another process, which acted before this one, left open. They outlive the status in which they
// were found: this process writes its own before it knows of all Services when they turned Ready.
type inheritedWindows struct {
	byService map[types.NamespacedName]Window
	// least is what a window counts for, until then, that the status had no room for.
	least int
	until time.Time
}

// take takes them over from a status.
func (i *inheritedWindows) take(st *v1alpha1.WeederConfigStatus, at Moment, watch time.Duration) {
	now, ahead := at.Now, at.ahead()
	maps.DeleteFunc(i.byService, func(_ types.NamespacedName, w Window) bool { return now.Sub(w.Ends) > clocksApart })
	least := -1
	for _, s := range st.Windows {
		if least < 0 || int(s.Deleted) < least {
			least = int(s.Deleted)
		}
		key := types.NamespacedName{Namespace: s.Namespace, Name: s.Service}
		w := Window{Namespace: s.Namespace, Service: s.Service, Opened: s.Time.Add(ahead), Ends: s.Until.Add(ahead), Deleted: int(s.Deleted), Ahead: ahead}
		if s.LastDeletion != nil {
			w.LastDeletion = s.LastDeletion.Add(ahead)
		}
		if before, ok := i.byService[key]; ok && before.Opened.Sub(w.Opened).Abs() < clocksApart {
			w.Deleted, w.LastDeletion = max(w.Deleted, before.Deleted), later(w.LastDeletion, before.LastDeletion)
		}
		i.byService[key] = w
	}
	if least > 0 && int(st.ActiveWindows) > len(st.Windows) {
		i.least, i.until = max(i.least, least), now.Add(watch)
	}
}

// since is when the window of a Service that is Ready at first sight opened. One that was left goes on as it was, unless the
// Service's pods turned Ready later than that: then it recovered once more while nobody looked, or other pods took the place
// of those that had turned it Ready. Nobody can tell, and what the former window spent counts either way.
func (i *inheritedWindows) since(key types.NamespacedName, opened, trigger time.Time) time.Time {
	w, ok := i.byService[key]
	if !ok || opened.IsZero() || trigger.After(w.Ends) {
		return opened
	}
	switch apart := opened.Sub(w.Opened); {
	case apart > clocksApart:
		return opened
	case apart < -clocksApart: // not they had turned it Ready
		return w.Opened
	}
	return earlier(opened, w.Opened)
}

// awaited are the windows that were left and may open again: of Services of which it isn't known yet when they turned Ready.
func (s *State) awaited(cs *configState, now time.Time) (windows []Window) {
	for key, w := range cs.inherited.byService {
		if _, pending := s.pending[watchKey{cs.UID, key}]; pending && w.open(now) && s.windowOf(cs.UID, w.Namespace, w.Service) == nil {
			windows = append(windows, w)
		}
	}
	return windows
}

// chargeWindow charges a window with what another process deleted in it: of one that the status had no room for, no more than of
// any that it lists.
func (i *inheritedWindows) chargeWindow(w *window) {
	if was, ok := i.byService[w.key()]; ok && !w.Opened.After(was.Ends) {
		w.Deleted, w.LastDeletion = max(w.Deleted, was.Deleted), later(w.LastDeletion, was.LastDeletion)
		return
	}
	if w.Opened.Before(i.until) {
		w.Deleted = max(w.Deleted, i.least)
	}
}

// statusPrecision is what the status' times may lack: they are cut to seconds, and what they count for must not end early.
const statusPrecision = time.Second

// latest is, by our clock, when something was at the latest of which a status tells by the API server's.
func (m Moment) latest(stored time.Time) time.Time {
	when := stored
	if !m.Server.IsZero() {
		when = later(when, stored.Add(m.Now.Sub(m.Server)))
	}
	if when = when.Add(statusPrecision); when.After(m.Now) {
		return m.Now
	}
	return when
}

func (s *State) inheritDeletions(cs *configState, stored []v1alpha1.PodDeletion, at Moment) {
	for _, d := range slices.Backward(stored) {
		if slices.ContainsFunc(cs.log, func(r *Record) bool { return r.UID == types.UID(d.PodUID) }) {
			continue
		}
		when := at.latest(d.Time.Time)
		r := &Record{
			At: when, Server: d.Time.Time, Namespace: d.Namespace, Pod: d.Pod, UID: types.UID(d.PodUID), Owner: d.Owner,
			Service: d.Service, Before: repeated(when, int(d.Repeats)), inherited: true,
		}
		cs.remember(r)
		if kind, name, ok := strings.Cut(d.Owner, "/"); ok && r.counts(at.Now) {
			s.log.add(Workload{Namespace: d.Namespace, Kind: kind, Name: name}, r)
		}
	}
}

// greatestLimit is the most that maxPodDeletionsPerMinute can be. The limit in force may not be known yet.
const greatestLimit = 10_000

// inheritUnlisted takes over what the status knows by number only. What counts for the minute does so from the latest
// deletion on.
func (s *State) inheritUnlisted(cs *configState, st *v1alpha1.WeederConfigStatus, at Moment) {
	for _, r := range cs.inheritedCounts {
		s.log.lately.remove(r)
	}
	cs.inheritedCounts, cs.unlisted = nil, Unlisted{}
	if st.Spent == nil {
		return
	}
	if u := st.Spent.Unlisted; u != nil {
		cs.unlisted = Unlisted{From: u.From.Time, To: u.To.Time, Repeats: int(u.Repeats)}
	}
	when := at.latest(st.Spent.LastDeletion.Time)
	if at.Now.Sub(when) >= pace {
		return
	}
	for range min(int(st.Spent.LastMinute)-len(st.RecentDeletions), greatestLimit) {
		r := &Record{At: when}
		s.log.lately.insert(r, byLatest)
		cs.inheritedCounts = append(cs.inheritedCounts, r)
	}
}

// past tells what counts against one more deletion of the pod: those that it comes after. Of other processes' it may come after any that
// isn't known to be later. A pod that ran well at first replaces nothing any more: what fails now isn't what failed then.
func (s *State) past(p *podState, at Moment) (past Past) {
	switch {
	case p.ranWell:
		return past
	case p.replaces != nil: // of our own, before which all others' were
		past.follow(p.replaces, at.Now)
		return past
	}
	if h := s.log.byWorkload[p.Workload()]; h != nil {
		for _, d := range h.inherited {
			if d.precedes(p.Pod) {
				past.follow(d, at.Now)
			}
		}
	}
	for cs := range s.holdingIn(p.Namespace) {
		if u := &cs.unlisted; u.counts(at) && p.Created.Add(uncertainCreation).After(u.From) && cs.selectsAny(p.Pod) {
			last := at.latest(u.To)
			past.follow(&Record{At: last, Before: repeated(last, u.Repeats)}, at.Now)
		}
	}
	return past
}

// greatestRepeats is the most that maxRepeatsPerOwner can be.
const greatestRepeats = 20

// repeated are so many deletions of which only is known that they were before this time.
func repeated(when time.Time, repeats int) []time.Time {
	return slices.Repeat([]time.Time{when}, min(max(0, repeats), greatestRepeats))
}
