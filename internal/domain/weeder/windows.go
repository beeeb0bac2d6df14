package weeder

import (
	"iter"
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
	// firstSight: its Service was Ready already when it was seen first.
	firstSight bool
}

type note struct {
	pod    types.UID
	reason Reason
}

// key names the window's Service.
func (w *window) key() types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: w.Service}
}

// wants says whether the window would have the pod deleted, whatever stands before that.
func (w *window) wants(p *podState, now time.Time) bool {
	return w.open(now) && p.actionable() && p.Loop(w.of.IncludeInit).Container != "" && w.of.Selects(w.Service, p.Pod)
}

// holds says whether it is the window that holds a pod back.
func (w *window) holds(h Hold) bool { return h.Config == w.of.UID && h.Service == w.Service }

// count counts a pod that is held back in the window, once for each reason.
func (w *window) count(p *podState, reason Reason) {
	n := note{p.UID, reason}
	if _, noted := w.noted[n]; !noted {
		w.noted[n] = struct{}{}
		w.of.skipped[reason]++
	}
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
func (s *State) TakeOpened() []Opened {
	s.mu.Lock()
	defer s.mu.Unlock()
	opened := s.opened
	s.opened = nil
	return opened
}

// windowOf is the open window of a config's Service, nil for none.
func (s *State) windowOf(config types.UID, namespace, service string) *window {
	return s.windows[namespace][watchKey{config, types.NamespacedName{Namespace: namespace, Name: service}}]
}

// windowsOf are a config's open windows. They may be closed meanwhile.
func (s *State) windowsOf(cs *configState) iter.Seq[*window] {
	return func(yield func(*window) bool) {
		for _, here := range s.windows {
			for watch, w := range here {
				if watch.config == cs.UID && !yield(w) {
					return
				}
			}
		}
	}
}

// open opens a window, or begins it anew.
func (s *State) open(cs *configState, key types.NamespacedName, opened, trigger time.Time, firstSight bool, at Moment) *window {
	w := &window{of: cs, firstSight: firstSight, noted: map[note]struct{}{}, Window: Window{
		Namespace: key.Namespace, Service: key.Name, Opened: opened, Ends: opened.Add(cs.WatchDuration), Trigger: trigger, Ahead: at.ahead(),
	}}
	cs.inherited.charge(w)
	s.windows.put(key.Namespace, watchKey{cs.UID, key}, w)
	s.opened = append(s.opened[max(0, len(s.opened)-openedKept+1):], Opened{Config: cs.UID, Key: cs.Key(), Window: w.Window, FirstSight: firstSight, Acts: cs.state == lifecycle.Active && !cs.Observe})
	if !w.Stored(opened).Add(uncertainCreation).Before(cs.last.Stored(cs.last.Opened)) { // of those that can't be told apart, it is the one that opened last
		cs.last = w.Window
	}
	s.touch(cs)
	return w
}

// wanted are the pods that a window would have deleted, in order.
func (s *State) wanted(w *window, at Moment) (pods []types.NamespacedName) {
	for _, p := range s.crashing[w.Namespace] {
		if w.wants(p, at.Now) {
			pods = append(pods, p.Key())
		}
	}
	return sortedKeys(pods)
}

// close ends a window; who was held back in it isn't any more.
func (s *State) close(w *window) {
	s.windows.remove(w.Namespace, watchKey{w.of.UID, w.key()})
	s.unhold(w)
	s.touch(w.of)
}

// unhold forgets whom a window holds back. Whoever waits in another one as well keeps its place.
func (s *State) unhold(w *window) {
	for p := range w.of.held {
		if p.Namespace == w.Namespace && slices.ContainsFunc(p.holds, w.holds) {
			left := slices.DeleteFunc(slices.Clone(p.holds), w.holds)
			if !slices.ContainsFunc(left, Hold.waits) {
				s.queue.leave(p)
			}
			s.hold(p, left)
		}
	}
}

// Expire closes the windows that are over and forgets what counts no more. It gives when the next one ends, zero when none
// is open.
func (s *State) Expire(at Moment) (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, here := range s.windows {
		for _, w := range here {
			if w.open(at.Now) {
				next = earlier(next, w.Ends)
			} else {
				s.close(w)
			}
		}
	}
	for watch, turned := range s.pending {
		cs := s.configs[watch.config]
		if end := turned.seen.Add(cs.WatchDuration); at.Now.Before(end) {
			next = earlier(next, end)
			continue
		}
		delete(s.pending, watch) // its window would be over
		s.touch(cs)
	}
	for uid, d := range s.sent {
		if at.Now.Sub(d.record.At) >= remembered && s.pods[d.pod.Namespace][d.pod.Name] != d.pod { // nobody will tell any more
			delete(s.sent, uid)
		}
	}
	s.log.prune(at.Now)
	return next
}

// openings are the open windows that a pod stands in, the oldest config first.
func (s *State) openings(p *podState, at Moment) (openings []Opening) {
	var windows []*window
	for _, w := range s.windows[p.Namespace] {
		if w.wants(p, at.Now) {
			windows = append(windows, w)
		}
	}
	slices.SortFunc(windows, compareWindows)
	acting := s.acting(p.Namespace)
	for _, w := range windows {
		openings = append(openings, s.opening(p, w, acting))
	}
	return openings
}

// opening is a window as it is to a pod, while these configs act in its namespace.
func (s *State) opening(p *podState, w *window, acting []*matcher) Opening {
	return Opening{
		Config: w.of.Config, State: w.of.state, Window: w.Window, Backing: s.services[w.key()].backs(p.Pod),
		Cycle: s.cycle(p, w.Service, acting),
	}
}
