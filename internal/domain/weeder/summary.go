package weeder

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Summary is the present state of one config.
type Summary struct {
	// Services counts those of the config that there are, Named all that it names, in all namespaces that it holds in.
	Services, Named int
	// Active counts the open windows; Windows are up to sample.Size of them, those with the most deletions, by name.
	Active  int
	Windows []Window
	// Last is the latest window that opened; its Service is "" when none ever did.
	Last    Window
	Deleted int64
	// Skipped counts the pods that were held back in a window at least once, by reason.
	Skipped map[Reason]int64
	// Recent are up to sample.Size deletions, the newest first; Spent tells of the others.
	Recent []Record
	Spent  Spent
	// Held counts the pods that are held back now, by reason, with one message each.
	Held map[Reason]HoldCount
}

// HoldCount is how many pods one reason holds back.
type HoldCount struct {
	Pods    int
	Message string
}

// Summary describes a config; ok is false when it isn't known.
func (s *State) Summary(uid types.UID, at Moment) (sum Summary, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if sum, ok = s.recorded(uid, at); ok {
		sum.Held = s.configs[uid].holds()
		sum.Services, sum.Named = s.there(s.configs[uid])
	}
	return sum, ok
}

// there counts which of the Services that a config names there are.
func (s *State) there(cs *configState) (there, named int) {
	for _, namespace := range s.namespacesOf(cs) {
		for name := range cs.Services {
			if svc := s.services[types.NamespacedName{Namespace: namespace, Name: name}]; svc != nil && svc.declared != nil {
				there++
			}
			named++
		}
	}
	return there, named
}

// Recorded is a config's Summary without whom it holds back, and which Services there are: both may be thousands.
func (s *State) Recorded(uid types.UID, at Moment) (sum Summary, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.recorded(uid, at)
}

func (s *State) recorded(uid types.UID, at Moment) (sum Summary, ok bool) {
	cs := s.configs[uid]
	if cs == nil {
		return Summary{}, false
	}
	sum = Summary{
		Last: cs.last, Deleted: cs.deleted, Skipped: maps.Clone(cs.skipped),
		Recent: cs.recent(), Spent: cs.spent(at), Windows: s.awaited(cs, at.Now),
	}
	for w := range s.windowsOf(cs) {
		if w.open(at.Now) {
			sum.Windows = append(sum.Windows, w.Window)
		}
	}
	sum.Active, sum.Windows = len(sum.Windows), busiest(sum.Windows)
	return sum, true
}

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

// busiest are the windows with the most deletions, by name.
func busiest(windows []Window) []Window {
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
	// unlisted stands for all those of the last hour that a status had no room for: Server is the first of them, At the last, and Before
	// of the one with the most. Nil for none.
	unlisted *Record
}

// Unlisted are deletions of which only this is known. Times are by the API server's clock.
type Unlisted struct {
	From, To time.Time
	// Repeats is before how many of one lineage at most each was.
	Repeats int
}

// Spent says in numbers what Summary.Recent has no room for.
type Spent struct {
	// LastMinute counts the deletions of the minute up to LastDeletion, which is by the API server's clock. It is zero when none is
	// known.
	LastMinute   int
	LastDeletion time.Time
	// Unlisted are those of the hour up to LastDeletion that aren't in Recent.
	Unlisted Unlisted
}

// remember takes in a deletion. One of our own is the latest of all, whatever time it is by our clock: as the first of them it would
// be dropped at once, and would be missing in the status before it is done. Those of others are known before our own, and the API
// server's clock tells their order: ours may have been set since some of them were taken over.
func (t *totals) remember(r *Record) {
	if r.inherited {
		t.log.insert(r, byServerTime)
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
func (t *totals) recent() (recent []Record) {
	for _, r := range slices.Backward(t.log[max(0, len(t.log)-sample.Size):]) {
		recent = append(recent, *r)
	}
	return recent
}

func (t *totals) spent(at Moment) (s Spent) {
	if len(t.log) == 0 {
		return Spent{}
	}
	hour, last := t.hour(), t.log[len(t.log)-1]
	s.LastDeletion = last.Server
	for _, r := range slices.Concat(hour, t.lastMinute) {
		if !r.inherited && last.At.Sub(r.At) < pace {
			s.LastMinute++
		}
	}
	unlisted := hour[:max(0, len(hour)-sample.Size)]
	if u := t.unlisted; u != nil && u.counts(last.At) {
		unlisted = append(records{u}, unlisted...)
	}
	for _, r := range unlisted {
		s.Unlisted.From, s.Unlisted.To = earlier(s.Unlisted.From, r.Server), later(s.Unlisted.To, at.stored(r.At))
		s.Unlisted.Repeats = max(s.Unlisted.Repeats, len(r.Before))
	}
	return s
}
