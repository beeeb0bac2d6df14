package weed

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
	sum = y.booked(cs, at)
	sum.Held = cs.holds()
	return sum, true
}

// Booked is a config's Summary without whom it holds back, which may be thousands.
func (y *Yard) Booked(uid types.UID, at Moment) (sum Summary, ok bool) {
	y.mu.RLock()
	defer y.mu.RUnlock()
	cs := y.configs[uid]
	if cs == nil {
		return Summary{}, false
	}
	return y.booked(cs, at), true
}

func (y *Yard) booked(cs *configState, at Moment) Summary {
	sum := Summary{Services: len(cs.Services) * len(y.scope(cs)), Last: cs.last, Deleted: cs.deleted, Skipped: maps.Clone(cs.skipped), Spent: cs.spent()}
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
	sum.Windows = append(sum.Windows, y.awaited(cs, at.Now)...)
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
	windows = windows[:min(len(windows), sample.Size)]
	slices.SortFunc(windows, byName)
	return windows
}
