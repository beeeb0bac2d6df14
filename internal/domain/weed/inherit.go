package weed

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Inherit takes in configs' statuses that were read live: what other processes did may not be told by a watch in time. It gives
// those that it doesn't know and for which something was done.
func (y *Yard) Inherit(records map[types.UID]v1alpha1.WeederConfigStatus, at Moment) (unknown []types.UID) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for uid, st := range records {
		cs := y.configs[uid]
		switch {
		case cs != nil:
			cs.Config = cs.WithStatus(st)
			y.inherit(cs, at)
			y.touch(cs)
		case st.Spent != nil || len(st.RecentDeletions) > 0 || len(st.Windows) > 0:
			unknown = append(unknown, uid)
		}
	}
	return unknown
}

// Claim says that what other processes did for these configs is known, and that none but this one acts from now on. Until then
// Decide gives no deletion for them.
func (y *Yard) Claim(uids []types.UID) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, uid := range uids {
		if cs := y.configs[uid]; cs != nil {
			cs.claimed = true
		}
	}
}

// inherit takes over what another process, which acted before this one, left in the status. It only forbids: deletions
// count for their workloads, for the minute and for the windows that are open.
func (y *Yard) inherit(cs *configState, at Moment) {
	st := &cs.stored
	if cs.claimed {
		return
	}
	cs.deleted = max(cs.deleted, st.Deleted)
	for _, s := range st.Skipped {
		cs.skipped[Reason(s.Reason)] = max(cs.skipped[Reason(s.Reason)], s.Count)
	}
	if l := st.LastTriggered; l != nil && l.Time.After(cs.last.Stored(cs.last.Opened)) {
		cs.last = Window{Namespace: l.Namespace, Service: l.Service, Opened: l.Time.Time}
	}
	y.inheritDeletions(cs, st.RecentDeletions, at)
	y.inheritUnlisted(cs, st, at)
	cs.left.take(st, at, cs.WatchDuration)
	for _, here := range y.windows {
		for watch, w := range here {
			if watch.config == cs.UID && known(st, w) {
				y.spend(cs, w)
			}
		}
	}
}

// known says whether a status that another process wrote has seen the window open.
func known(st *v1alpha1.WeederConfigStatus, w *window) bool {
	i := slices.IndexFunc(st.Windows, func(s v1alpha1.RecoveryWindow) bool { return s.Namespace == w.Namespace && s.Service == w.Service })
	if i >= 0 {
		return w.Stored(w.Opened).Sub(st.Windows[i].Time.Time).Abs() < clocksApart
	}
	return st.LastTriggered != nil && w.Stored(w.Opened).Before(st.LastTriggered.Time.Add(clocksApart))
}

// left are windows that another process, which acted before this one, left open. They outlive the status in which they were
// found: this process writes its own before it knows of all Services when they turned Ready.
type left struct {
	windows map[types.NamespacedName]Window
	// least is what a window counts for, until then, that the status had no room for.
	least int
	until time.Time
}

// take takes them over from a status.
func (l *left) take(st *v1alpha1.WeederConfigStatus, at Moment, watch time.Duration) {
	now, ahead := at.Now, at.ahead()
	maps.DeleteFunc(l.windows, func(_ types.NamespacedName, w Window) bool { return now.Sub(w.Ends) > clocksApart })
	least := -1
	for i := range st.Windows {
		s := &st.Windows[i]
		if least < 0 || int(s.Deleted) < least {
			least = int(s.Deleted)
		}
		key := types.NamespacedName{Namespace: s.Namespace, Name: s.Service}
		w := Window{Namespace: s.Namespace, Service: s.Service, Opened: s.Time.Add(ahead), Ends: s.Until.Add(ahead), Deleted: int(s.Deleted), Ahead: ahead}
		if s.LastDeletion != nil {
			w.LastDeletion = s.LastDeletion.Add(ahead)
		}
		if before, ok := l.windows[key]; ok && before.Opened.Sub(w.Opened).Abs() < clocksApart {
			w.Deleted, w.LastDeletion = max(w.Deleted, before.Deleted), later(w.LastDeletion, before.LastDeletion)
		}
		l.windows[key] = w
	}
	if least > 0 && int(st.ActiveWindows) > len(st.Windows) {
		l.least, l.until = max(l.least, least), now.Add(watch)
	}
}

// since is when the window of a Service that is Ready at first sight opened. One that was left goes on as it was, unless the
// Service's pods turned Ready later than that: then it recovered once more while nobody looked, or other pods took the place
// of those that had turned it Ready. Nobody can tell, and what the former window spent counts either way.
func (l *left) since(key types.NamespacedName, opened, trigger time.Time) time.Time {
	w, ok := l.windows[key]
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
func (y *Yard) awaited(cs *configState, now time.Time) (windows []Window) {
	for watch := range y.unproven {
		if w, ok := cs.left.windows[watch.service]; ok && watch.config == cs.UID && w.open(now) && y.windows[watch.service.Namespace][watch] == nil {
			windows = append(windows, w)
		}
	}
	return windows
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

func (y *Yard) inheritDeletions(cs *configState, stored []v1alpha1.PodDeletion, at Moment) {
	for i := len(stored) - 1; i >= 0; i-- {
		d := &stored[i]
		if slices.ContainsFunc(cs.recent, func(r *Record) bool { return r.UID == types.UID(d.PodUID) }) {
			continue
		}
		when := at.latest(d.Time.Time)
		r := &Record{
			At: when, Server: d.Time.Time, Namespace: d.Namespace, Pod: d.Pod, UID: types.UID(d.PodUID), Owner: d.Owner,
			Service: d.Service, Repeat: d.Repeat, inherited: true,
		}
		cs.recent = append(cs.recent, r)
		if kind, name, ok := strings.Cut(d.Owner, "/"); ok && at.Now.Sub(when) < remembered {
			y.ledger.add(Workload{Namespace: d.Namespace, Kind: kind, Name: name}, r)
			cs.hour = insert(cs.hour, r, byTime)
		}
	}
	slices.SortStableFunc(cs.recent, func(a, b *Record) int { return byTime(b, a) })
	cs.recent = cs.recent[:min(len(cs.recent), sample.Size)]
}

// greatestLimit is the most that maxPodDeletionsPerMinute can be. The limit in force may not be known yet.
const greatestLimit = 10_000

// inheritUnlisted takes over what the status knows by number only. What counts for the minute does so from the latest
// deletion on.
func (y *Yard) inheritUnlisted(cs *configState, st *v1alpha1.WeederConfigStatus, at Moment) {
	for _, r := range cs.lent {
		y.ledger.lately = remove(y.ledger.lately, r)
	}
	cs.lent, cs.unlisted = nil, Unlisted{}
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
		y.ledger.lately = insert(y.ledger.lately, r, byLatest)
		cs.lent = append(cs.lent, r)
	}
}

// spend charges a window with what another process deleted in it: of one that the status had no room for, no more than of
// any that it lists.
func (y *Yard) spend(cs *configState, w *window) {
	if l, ok := cs.left.windows[types.NamespacedName{Namespace: w.Namespace, Name: w.Service}]; ok && !w.Opened.After(l.Ends) {
		w.charge(l.Deleted)
		w.LastDeletion = later(w.LastDeletion, l.LastDeletion)
		return
	}
	if w.Opened.Before(cs.left.until) {
		w.charge(cs.left.least)
	}
}

func (w *window) charge(deleted int) { w.Deleted = max(w.Deleted, deleted) }

// past tells what counts against one more deletion of the pod's workload, with what other processes did that is known by
// number only. A pod that ran well at first replaces nothing any more: what fails now isn't what failed then.
func (y *Yard) past(p *podState, at Moment) Past {
	past := y.ledger.byWorkload[p.Workload()].past(p.Pod, p.firstSeen, at.Now)
	for _, cs := range y.configs {
		u := &cs.unlisted
		if !u.counts(at) || !p.Created.Add(uncertainCreation).After(u.From) || !y.holds(cs, p.Namespace) || !cs.selectsAny(p.Pod) {
			continue
		}
		last := at.latest(u.To)
		past.Replacement, past.Last = true, later(past.Last, last)
		past.Repeats = append(past.Repeats, slices.Repeat([]time.Time{last}, max(0, u.Repeats))...)
		slices.SortFunc(past.Repeats, time.Time.Compare)
	}
	past.Replacement = past.Replacement && !p.ranWell
	return past
}

func (c *Config) selectsAny(p *Pod) bool {
	for service := range c.Services {
		if c.Selects(service, p) {
			return true
		}
	}
	return false
}
