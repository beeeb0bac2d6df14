package weed

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// window is an open window of one config's Service.
type window struct {
	Window
	of *configState
	// noted are the pods that were held back in it, by reason: each is counted once.
	noted map[note]struct{}
}

type note struct {
	pod    types.UID
	reason Reason
}

// wants says whether the window would have the pod deleted, whatever stands before that.
func (w *window) wants(p *podState, now time.Time) bool {
	return w.open(now) && p.actionable() && p.Loop(w.of.IncludeInit).Container != "" && w.of.Selects(w.Service, p.Pod)
}

// Opened tells of a window that opened.
type Opened struct {
	Config types.UID
	Key    types.NamespacedName // of the config
	Window
	// FirstSight: the Service was Ready already when it was seen first, so that this recovery may have been told before.
	FirstSight bool
	// Acts: the config may delete pods for it, and isn't only observing.
	Acts bool
}

// openedKept bounds what waits to be told where nobody asks.
const openedKept = 1000

// TakeOpened gives the windows that opened since it was last asked, for Events.
func (y *Yard) TakeOpened() []Opened {
	y.mu.Lock()
	defer y.mu.Unlock()
	opened := y.opened
	y.opened = nil
	return opened
}

// open opens a window, or begins it anew, and gives the pods that crash-loop already.
func (y *Yard) open(cs *configState, key types.NamespacedName, opened, trigger time.Time, at Moment) (due []types.NamespacedName) {
	w := &window{of: cs, noted: map[note]struct{}{}, Window: Window{
		Namespace: key.Namespace, Service: key.Name, Opened: opened, Ends: opened.Add(cs.WatchDuration), Trigger: trigger, Ahead: at.ahead(),
	}}
	here := y.windows[key.Namespace]
	if here == nil {
		here = map[watchKey]*window{}
		y.windows[key.Namespace] = here
	}
	here[watchKey{cs.UID, key}] = w
	y.opened = append(y.opened[max(0, len(y.opened)-openedKept+1):], Opened{Config: cs.UID, Key: cs.Key(), Window: w.Window, Acts: cs.state == lifecycle.Active && !cs.Observe})
	if !w.Stored(opened).Add(uncertainCreation).Before(cs.last.Stored(cs.last.Opened)) { // of those that can't be told apart, it is the one that opened last
		cs.last = w.Window
	}
	y.touch(cs)
	for _, p := range y.crashing[key.Namespace] {
		if w.wants(p, at.Now) {
			due = append(due, p.Key())
		}
	}
	return sortedKeys(due)
}

// close ends a window; who was held back in it isn't any more.
func (y *Yard) close(namespace string, watch watchKey) {
	w := y.windows[namespace][watch]
	if w == nil {
		return
	}
	if delete(y.windows[namespace], watch); len(y.windows[namespace]) == 0 {
		delete(y.windows, namespace)
	}
	for k := range w.of.held {
		if k.pod.Namespace == namespace && k.service == w.Service {
			y.queue.leave(k.pod) // whoever waits in another window as well enters again when it's decided
		}
	}
	y.releaseIn(w.of, func(k heldKey) bool { return k.pod.Namespace == namespace && k.service == w.Service })
	y.touch(w.of)
}

// Expire closes the windows that are over and forgets what counts no more. It gives when the next one ends, zero when none
// is open.
func (y *Yard) Expire(at Moment) (next time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for namespace, here := range y.windows {
		for watch, w := range maps.Clone(here) {
			if w.open(at.Now) {
				next = earlier(next, w.Ends)
			} else {
				y.close(namespace, watch)
			}
		}
	}
	for watch, turned := range y.unproven {
		cs := y.configs[watch.config]
		if end := turned.seen.Add(cs.WatchDuration); at.Now.Before(end) {
			next = earlier(next, end)
			continue
		}
		delete(y.unproven, watch) // its window would be over
		y.touch(cs)
	}
	maps.DeleteFunc(y.gone, func(_ types.UID, s *sent) bool { return at.Now.Sub(s.record.At) >= remembered }) // nobody will tell any more
	y.ledger.prune(at.Now)
	return next
}

// openings are the open windows that a pod stands in, the oldest config first.
func (y *Yard) openings(p *podState, at Moment) (openings []Opening, windows []*window) {
	for _, w := range y.windows[p.Namespace] {
		if w.wants(p, at.Now) {
			windows = append(windows, w)
		}
	}
	slices.SortFunc(windows, compareWindows)
	for _, w := range windows {
		openings = append(openings, y.opening(p, w))
	}
	return openings, windows
}

// opening is a window as it is to a pod.
func (y *Yard) opening(p *podState, w *window) Opening {
	svc := y.services[types.NamespacedName{Namespace: w.Namespace, Name: w.Service}]
	return Opening{
		Config: w.of.Config, State: w.of.state, Window: w.Window,
		Backing: svc.backs(p.Pod), Cycle: y.cycle(p, w.Service, y.acting),
	}
}
