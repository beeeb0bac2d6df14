package weed

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/hold"
)

// ObserveHold takes in the hold that a workload's annotation asks for, nil for none, and gives the pods to decide on.
func (y *Yard) ObserveHold(w Workload, h *hold.Hold, at Moment) (due []types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if h.Same(y.asked[w]) {
		return nil
	}
	if y.asked[w] = h; h == nil {
		delete(y.asked, w)
	}
	for _, p := range y.crashing[w.Namespace] {
		if p.Workload() == w && y.selected(p, at.Now) {
			due = append(due, p.Key())
		}
	}
	return sortedKeys(due)
}
