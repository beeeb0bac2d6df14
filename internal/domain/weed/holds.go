package weed

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/hold"
)

// asked is what a workload asks for, and of which state of it that is known.
type asked struct {
	hold    *hold.Hold // nil for none
	version string
}

// ObserveHold takes in the hold that a workload's annotation asks for, nil for none, in the state with this resource version,
// and gives the pods to decide on. Older news than what is known is ignored.
func (y *Yard) ObserveHold(w Workload, h *hold.Hold, version string, at Moment) (due []types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	was := y.asked[w]
	if older(version, was.version) {
		return nil
	}
	y.asked[w] = asked{h, version}
	if h.Same(was.hold) {
		return nil
	}
	return y.dueOf(w, at)
}

// ForgetHold removes a workload that is gone, and gives the pods to decide on.
func (y *Yard) ForgetHold(w Workload, at Moment) (due []types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	was := y.asked[w]
	delete(y.asked, w)
	if was.hold == nil {
		return nil
	}
	return y.dueOf(w, at)
}

// dueOf are the workload's pods to decide on.
func (y *Yard) dueOf(w Workload, at Moment) (due []types.NamespacedName) {
	for _, p := range y.crashing[w.Namespace] {
		if p.Workload() == w && y.selected(p, at.Now) {
			due = append(due, p.Key())
		}
	}
	return sortedKeys(due)
}
