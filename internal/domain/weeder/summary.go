package weeder

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// Summary is the present state of one config.
type Summary struct {
	// WeederConfigStatus has all that is counted, as it is stored: times are by the API server's clock, in whole seconds. Windows are up to
	// sample.Size of those that are open, the ones with the most deletions, by name; RecentDeletions as many deletions, the newest first.
	v1alpha1.WeederConfigStatus
	// Named counts all Services that the config names, in all namespaces that it holds in.
	Named int
	// Held counts the pods that are held back now, by reason, with one message each.
	Held map[Reason]HoldCount
}

// HoldCount is how many pods one reason holds back.
type HoldCount struct {
	Pods    int
	Message string
}

// Summary describes a config; ok is false when it isn't known.
func (s *State) Summary(uid types.UID, at timing.Moment) (sum Summary, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if sum.WeederConfigStatus, ok = s.recorded(uid, at); ok {
		there, named := s.existing(s.configs[uid])
		sum.Services, sum.Named, sum.Held = int32(there), named, s.configs[uid].holds()
	}
	return sum, ok
}

// existing counts which of the Services that a config names there are.
func (s *State) existing(cs *configState) (existing, named int) {
	for _, namespace := range s.namespacesOf(cs) {
		for name := range cs.Services {
			if svc := s.services[types.NamespacedName{Namespace: namespace, Name: name}]; svc != nil && svc.declared != nil {
				existing++
			}
			named++
		}
	}
	return existing, named
}

// Recorded is what is counted of a config, without which Services there are: that may be thousands. Ok is false when it isn't known.
func (s *State) Recorded(uid types.UID, at timing.Moment) (st v1alpha1.WeederConfigStatus, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.recorded(uid, at)
}

func (s *State) recorded(uid types.UID, at timing.Moment) (st v1alpha1.WeederConfigStatus, ok bool) {
	cs := s.configs[uid]
	if cs == nil {
		return st, false
	}
	windows := s.pendingInherited(cs, at.Now)
	for _, w := range cs.windows {
		if w.open(at.Now) {
			windows = append(windows, w.Window)
		}
	}
	st = v1alpha1.WeederConfigStatus{ActiveWindows: int32(len(windows)), Deleted: cs.deleted, RecentDeletions: cs.recent(), Spent: cs.spent(at)}
	for _, w := range mostDeletions(windows) {
		window := v1alpha1.RecoveryWindow{Recovery: w.recovery(), Until: seconds(w.Stored(w.Ends)), Deleted: int32(w.Deleted)}
		if !w.LastDeletion.IsZero() {
			window.LastDeletion = new(seconds(w.Stored(w.LastDeletion)))
		}
		st.Windows = append(st.Windows, window)
	}
	for _, reason := range slices.Sorted(maps.Keys(cs.skipped)) {
		st.Skipped = append(st.Skipped, v1alpha1.SkippedPods{Reason: string(reason), Count: cs.skipped[reason]})
	}
	if cs.last.Service != "" {
		st.LastTriggered = new(cs.last.recovery())
	}
	return st, true
}

func (w *Window) recovery() v1alpha1.Recovery {
	return v1alpha1.Recovery{Namespace: w.Namespace, Service: w.Service, Time: seconds(w.Stored(w.Opened))}
}

// seconds is a time as the API stores it: one that has more would differ from what is stored at each look.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// holds counts whom a config holds back; each reason's message is about the first of them.
func (cs *configState) holds() map[Reason]HoldCount {
	type first struct {
		pod     *podState
		service string
	}
	held, firsts := map[Reason]HoldCount{}, map[Reason]first{}
	for p := range cs.held {
		for _, h := range p.holds {
			if h.Config != cs.UID {
				continue
			}
			count := held[h.Reason]
			if f := firsts[h.Reason]; f.pod == nil || cmp.Or(compareKeys(p.Key(), f.pod.Key()), strings.Compare(h.Service, f.service)) < 0 {
				firsts[h.Reason], count.Message = first{p, h.Service}, p.Key().String()+": "+h.Message
			}
			count.Pods++
			held[h.Reason] = count
		}
	}
	return held
}

// mostDeletions are the windows with the most deletions, by name.
func mostDeletions(windows []Window) []Window {
	byName := func(a, b Window) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Service, b.Service))
	}
	slices.SortFunc(windows, func(a, b Window) int { return cmp.Or(cmp.Compare(b.Deleted, a.Deleted), byName(a, b)) })
	windows = windows[:min(len(windows), sample.Size)]
	slices.SortFunc(windows, byName)
	return windows
}

// totals is what a config did and left undone, over all time.
type totals struct {
	deleted int64
	skipped map[Reason]int64
	// log has all deletions of the hour up to the latest, and at least as many as a status lists, in the order in which they were
	// decided. That isn't the order of their times: our clock may have been set back in between.
	log records
	// last is the latest window.
	last Window
	// lastMinute are another process's of the minute up to its latest, all taken to be as late as that one.
	lastMinute records
	// unlisted represents all those of the last hour that a status doesn't list: Server is the first of them, At the last, and Before
	// of the one with the most. Nil for none.
	unlisted *Record
}

// add takes in a deletion. One of our own is the latest of all, whatever time it is by our clock: as the first of them it would
// be dropped at once, and would be missing in the status before it is done. Those of others are known before our own, and the API
// server's clock tells their order: ours may have been set since some of them were taken over.
func (t *totals) add(r *Record) {
	if r.inherited {
		i, _ := slices.BinarySearchFunc(t.log, r, func(o, d *Record) int { return cmp.Or(o.Server.Compare(d.Server), -1) })
		t.log = slices.Insert(t.log, i, r)
	} else {
		t.log = append(t.log, r)
	}
	if old := len(t.log) - max(sample.Size, len(t.hour())); old > 0 {
		clear(t.log[:old])
		t.log = t.log[old:]
	}
}

// hour are the deletions of the hour up to the latest.
func (t *totals) hour() records {
	i := slices.IndexFunc(t.log, func(d *Record) bool { return d.counts(t.log[len(t.log)-1].At) })
	return t.log[max(0, i):]
}

// recent are the latest deletions, as many as a status lists, the newest first.
func (t *totals) recent() (recent []v1alpha1.PodDeletion) {
	for _, r := range slices.Backward(t.log[max(0, len(t.log)-sample.Size):]) {
		recent = append(recent, v1alpha1.PodDeletion{
			Time: seconds(r.Server), Namespace: r.Namespace, Pod: r.Pod, PodUID: string(r.UID), Owner: r.Owner, Service: r.Service, Repeats: int32(len(r.Before)),
		})
	}
	return recent
}

// spent counts what recent doesn't list; nil when no deletion is known.
func (t *totals) spent(at timing.Moment) *v1alpha1.SpentBudgets {
	if len(t.log) == 0 {
		return nil
	}
	hour, last := t.hour(), t.log[len(t.log)-1]
	s := &v1alpha1.SpentBudgets{LastDeletion: seconds(last.Server)}
	for _, r := range slices.Concat(hour, t.lastMinute) {
		if !r.inherited && last.At.Sub(r.At) < limitWindow {
			s.LastMinute++
		}
	}
	unlisted := hour[:max(0, len(hour)-sample.Size)]
	if u := t.unlisted; u != nil && u.counts(last.At) {
		unlisted = append(records{u}, unlisted...)
	}
	if len(unlisted) == 0 {
		return s
	}
	var from, to time.Time
	repeats := 0
	for _, r := range unlisted {
		from, to = timing.Earlier(from, r.Server), timing.Later(to, at.ToServer(r.At))
		repeats = max(repeats, len(r.Before))
	}
	s.Unlisted = &v1alpha1.UnlistedDeletions{From: seconds(from), To: seconds(to), Repeats: int32(repeats)}
	return s
}
