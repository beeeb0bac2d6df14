package weeder

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Summary is the present state of one config.
type Summary struct {
	// Services counts those watched, in all namespaces that the config holds in.
	Services int
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
		sum.Held = s.heldBy(uid)
	}
	return sum, ok
}

// Recorded is a config's Summary without whom it holds back, which may be thousands.
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
		Services: len(cs.Services) * len(s.namespacesOf(cs)), Last: cs.last, Deleted: cs.deleted, Skipped: maps.Clone(cs.skipped),
		Recent: cs.recent(), Spent: cs.spent(), Windows: s.awaited(cs, at.Now),
	}
	for w := range s.windowsOf(cs) {
		if w.open(at.Now) {
			sum.Windows = append(sum.Windows, w.Window)
		}
	}
	sum.Active, sum.Windows = len(sum.Windows), busiest(sum.Windows)
	return sum, true
}

// heldBy counts whom a config holds back; each reason's message is about the first of them.
func (s *State) heldBy(config types.UID) map[Reason]HoldCount {
	type first struct {
		pod     *podState
		service string
	}
	held, firsts := map[Reason]HoldCount{}, map[Reason]first{}
	for _, here := range s.crashing {
		for _, p := range here {
			for _, h := range p.holds {
				if h.Config != config {
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
