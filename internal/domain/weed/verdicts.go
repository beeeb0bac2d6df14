package weed

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Verdicts are the plans of all pods that stand in open windows, one after the other as the manager decides on them, so that
// each place in a budget or under a limit goes to whom it is given. What is planned is reserved: it is for a yard that nobody
// acts by.
func (y *Yard) Verdicts(at Moment) map[types.NamespacedName]Plan {
	y.Claim(slices.Collect(maps.Keys(y.configs))) // what others did is in the statuses that it was fed with
	plans := map[types.NamespacedName]Plan{}
	for _, key := range y.Due(at) {
		plans[key], _ = y.Decide(key, at, "")
	}
	return plans
}

// Settle puts what was decided in place of what the config alone would do in its open windows: budgets and limits are of all
// configs together, and a pod that two of them would delete is deleted once.
func (o *Outlook) Settle(plans map[types.NamespacedName]Plan) {
	for i := range o.Services {
		if s := &o.Services[i]; s.Open {
			s.settle(o.config, plans)
		}
	}
}

func (s *ServiceOutlook) settle(c *Config, plans map[types.NamespacedName]Plan) {
	s.Pods = nil
	for key, plan := range plans {
		if key.Namespace != s.Namespace {
			continue
		}
		if d := plan.Delete; d != nil && d.Config == c.UID && d.Service == s.Service {
			s.Pods = append(s.Pods, PodOutlook{Pod: key, Loop: d.Loop})
		}
		for _, h := range plan.Holds {
			if h.Config == c.UID && h.Service == s.Service {
				s.Pods = append(s.Pods, PodOutlook{Pod: key, Loop: plan.Pod.Loop(c.IncludeInit), Hold: h})
			}
		}
	}
	slices.SortFunc(s.Pods, func(a, b PodOutlook) int { return strings.Compare(a.Pod.Name, b.Pod.Name) })
}
