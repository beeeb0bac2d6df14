package survey

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// world answers the planner from what was found out before, so that planning waits for nothing.
type world struct {
	namespaces []string
	targets    map[string]probe.TargetFacts
	counts     Counts
}

var _ probe.World = (*world)(nil)

// Namespaces are those of the config that was asked about.
func (w *world) Namespaces(labels.Selector) []string { return w.namespaces }

// Target has nothing to say of targets that weren't looked at.
func (w *world) Target(_ *probe.Config, namespace string) probe.TargetFacts {
	return w.targets[namespace]
}

// Counts of all targets.
func (w *world) Counts() (probed, scaledDown int) { return w.counts.Probed, w.counts.ScaledDown }
