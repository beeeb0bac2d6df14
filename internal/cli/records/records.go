// Package records counts what the records on nodes claim, as the manager does, without one.
package records

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// Fleet is what records say of nodes, beside the sets that are stored. It is for counting and not for plans: no set in it may act.
func Fleet(nodes []corev1.Node, sets []v1alpha1.ConditionSet, limits limit.Limits, at timing.Moment) *condition.Fleet {
	fleet := condition.NewFleet(limits)
	for i := range sets {
		set, err := condition.NewSet(&sets[i])
		if err != nil {
			set = condition.Unreadable(&sets[i])
		}
		fleet.ObserveSet(set, lifecycle.NotJudged, nil, "", at)
	}
	for i := range nodes {
		fleet.ObserveNode(&nodes[i], at)
	}
	return fleet
}
