package weed

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// SampleSize is how many names or entries a plan, a message source or a status carries at most.
const SampleSize = 20

// totals is what a config did and left undone, over all time.
type totals struct {
	deleted int64
	skipped map[Reason]int64
	// recent are the latest deletions, the newest first.
	recent []*Record
	// last is the latest window.
	last Window
	// acted: this process deleted for the config, and so knows better than the status.
	acted bool
	// lent are deletions of the last minute by another process that are known by number only.
	lent []*Record
}

func newTotals() totals { return totals{skipped: map[Reason]int64{}} }

func (t *totals) add(r *Record) {
	t.acted = true
	t.deleted++
	t.recent = slices.Insert(t.recent, 0, r)
	t.recent = t.recent[:min(len(t.recent), SampleSize)]
}

func (t *totals) refund(r *Record) {
	t.deleted--
	t.recent = remove(t.recent, r)
}

// inherit takes over what another process, which acted before this one, left in the status. It only forbids: deletions
// count for their workloads, for the minute and for the windows that are open.
func (y *Yard) inherit(cs *configState, at Moment) {
	st := &cs.stored
	if cs.acted {
		return
	}
	cs.deleted = max(cs.deleted, st.Deleted)
	for _, s := range st.Skipped {
		cs.skipped[Reason(s.Reason)] = max(cs.skipped[Reason(s.Reason)], s.Count)
	}
	if l := st.LastTriggered; l != nil && l.Time.After(cs.last.Opened) {
		cs.last = Window{Namespace: l.Namespace, Service: l.Service, Opened: l.Time.Time}
	}
	y.inheritDeletions(cs, st.RecentDeletions, at)
	y.inheritPace(cs, st.Windows, at)
	for _, w := range st.Windows {
		if open := y.windows[w.Namespace][watchKey{cs.UID, types.NamespacedName{Namespace: w.Namespace, Name: w.Service}}]; open != nil &&
			open.Opened.Sub(w.Time.Time).Abs() < clocksApart {
			y.spend(cs, open)
		}
	}
}

// statusPrecision is what the status' times may lack: they are cut to seconds, and what they count for must not end early.
const statusPrecision = time.Second

func (y *Yard) inheritDeletions(cs *configState, stored []v1alpha1.PodDeletion, at Moment) {
	for i := len(stored) - 1; i >= 0; i-- {
		d := &stored[i]
		if slices.ContainsFunc(cs.recent, func(r *Record) bool { return r.UID == types.UID(d.PodUID) }) {
			continue
		}
		when := d.Time.Add(statusPrecision)
		if when.After(at.Now) {
			when = at.Now
		}
		r := &Record{
			At: when, Server: d.Time.Time, Namespace: d.Namespace, Pod: d.Pod, UID: types.UID(d.PodUID), Owner: d.Owner,
			Service: d.Service, Repeat: d.Repeat, inherited: true,
		}
		cs.recent = append(cs.recent, r)
		if kind, name, ok := strings.Cut(d.Owner, "/"); ok && at.Now.Sub(when) < remembered {
			y.ledger.add(Workload{Namespace: d.Namespace, Kind: kind, Name: name}, r)
		}
	}
	slices.SortStableFunc(cs.recent, func(a, b *Record) int { return byTime(b, a) })
	cs.recent = cs.recent[:min(len(cs.recent), SampleSize)]
}

// inheritPace counts the deletions of windows that deleted within the last minute, as if all of them had then.
func (y *Yard) inheritPace(cs *configState, stored []v1alpha1.RecoveryWindow, at Moment) {
	for _, r := range cs.lent {
		y.ledger.lately = remove(y.ledger.lately, r)
	}
	cs.lent = nil
	for _, w := range stored {
		if w.LastDeletion == nil || at.Now.Sub(w.LastDeletion.Add(statusPrecision)) >= pace {
			continue
		}
		known := 0
		for _, r := range cs.recent {
			if r.Namespace == w.Namespace && r.Service == w.Service && !r.Server.Before(w.Time.Time) {
				known++
			}
		}
		for range min(int(w.Deleted)-known, y.limits.MaxPodDeletionsPerMinute) {
			r := &Record{At: w.LastDeletion.Add(statusPrecision)}
			y.ledger.lately = insert(y.ledger.lately, r)
			cs.lent = append(cs.lent, r)
		}
	}
}

// spend charges a window with what another process deleted in it.
func (y *Yard) spend(cs *configState, w *window) {
	if cs.acted {
		return
	}
	for _, s := range cs.stored.Windows {
		if s.Namespace == w.Namespace && s.Service == w.Service && int(s.Deleted) > w.Deleted {
			w.Deleted = int(s.Deleted)
			if s.LastDeletion != nil {
				w.LastDeletion = s.LastDeletion.Time
			}
		}
	}
}

// Summary is the present state of one config.
type Summary struct {
	// Services counts those watched, in all namespaces that the config holds in.
	Services int
	// Active counts the open windows; Windows are up to SampleSize of them, those with the most deletions, by name.
	Active  int
	Windows []Window
	// Last is the latest window that opened; its Service is "" when none ever did.
	Last    Window
	Deleted int64
	// Skipped counts the pods that were held back in a window at least once, by reason.
	Skipped map[Reason]int64
	// Recent are up to SampleSize deletions, the newest first.
	Recent []Record
	// Held counts the pods that are held back now, by reason, with one message each.
	Held map[Reason]HoldCount
	// LookAgain is when the next window ends; zero when none is open.
	LookAgain time.Time
}

// HoldCount is how many pods one reason holds back.
type HoldCount struct {
	Pods    int
	Message string
}

// Summary describes a config; ok is false when it isn't known.
func (y *Yard) Summary(uid types.UID, at Moment) (sum Summary, ok bool) {
	y.mu.RLock()
	defer y.mu.RUnlock()
	cs := y.configs[uid]
	if cs == nil {
		return Summary{}, false
	}
	sum = y.spent(cs, at)
	sum.Held = cs.holds()
	return sum, true
}

// Spent is a config's Summary without whom it holds back, which may be thousands.
func (y *Yard) Spent(uid types.UID, at Moment) (sum Summary, ok bool) {
	y.mu.RLock()
	defer y.mu.RUnlock()
	cs := y.configs[uid]
	if cs == nil {
		return Summary{}, false
	}
	return y.spent(cs, at), true
}

func (y *Yard) spent(cs *configState, at Moment) Summary {
	sum := Summary{Services: len(cs.Services) * len(y.scope(cs)), Last: cs.last, Deleted: cs.deleted, Skipped: maps.Clone(cs.skipped)}
	for _, r := range cs.recent {
		sum.Recent = append(sum.Recent, *r)
	}
	for _, here := range y.windows {
		for watch, w := range here {
			if watch.config == cs.UID && w.open(at.Now) {
				sum.Windows = append(sum.Windows, w.Window)
				sum.LookAgain = earlier(sum.LookAgain, w.Ends)
			}
		}
	}
	sum.Active, sum.Windows = len(sum.Windows), busiest(sum.Windows)
	return sum
}

// holds counts whom the config holds back; each reason's message is about the first of them.
func (cs *configState) holds() map[Reason]HoldCount {
	held, first := map[Reason]HoldCount{}, map[Reason]heldKey{}
	for k, h := range cs.held {
		count := held[h.Reason]
		if f, ok := first[h.Reason]; !ok || cmp.Or(compareKeys(k.pod, f.pod), strings.Compare(k.service, f.service)) < 0 {
			first[h.Reason], count.Message = k, k.pod.String()+": "+h.Message
		}
		count.Pods++
		held[h.Reason] = count
	}
	return held
}

// busiest are the windows with the most deletions, by name.
func busiest(windows []Window) []Window {
	byName := func(a, b Window) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Service, b.Service))
	}
	slices.SortFunc(windows, func(a, b Window) int { return cmp.Or(cmp.Compare(b.Deleted, a.Deleted), byName(a, b)) })
	windows = windows[:min(len(windows), SampleSize)]
	slices.SortFunc(windows, byName)
	return windows
}
