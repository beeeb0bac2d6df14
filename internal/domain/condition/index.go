package condition

import (
	corev1 "k8s.io/api/core/v1"
)

// index finds nodes by what they carry, so that a preview needn't look at all of them.
type index struct {
	byCondition map[string]map[corev1.ConditionStatus]names
	byTaint     map[string]names // keys of taints, ours too
}

func newIndex() index {
	return index{byCondition: map[string]map[corev1.ConditionStatus]names{}, byTaint: map[string]names{}}
}

func (i index) replace(name string, before, after *Node) {
	if before != nil {
		i.remove(name, before, after)
	}
	if after != nil {
		i.insert(name, before, after)
	}
}

func (i index) remove(name string, before, after *Node) {
	for t, r := range before.Readings {
		if after == nil || after.Readings[t].Status != r.Status {
			delete(i.byCondition[t][r.Status], name)
		}
	}
	for _, t := range before.Taints {
		delete(i.byTaint[t.Key], name)
	}
}

func (i index) insert(name string, before, after *Node) {
	for t, r := range after.Readings {
		if before != nil && before.Readings[t].Status == r.Status {
			continue
		}
		if i.byCondition[t] == nil {
			i.byCondition[t] = map[corev1.ConditionStatus]names{}
		}
		if i.byCondition[t][r.Status] == nil {
			i.byCondition[t][r.Status] = names{}
		}
		i.byCondition[t][r.Status].put(name, true)
	}
	for _, t := range after.Taints {
		if i.byTaint[t.Key] == nil {
			i.byTaint[t.Key] = names{}
		}
		i.byTaint[t.Key].put(name, true)
	}
}

// candidates are the nodes that may match: those with the status that the fewest nodes have.
func (i index) candidates(s *Set) names {
	var fewest names
	for n, m := range s.Members {
		with := i.byCondition[m.Type][m.Status]
		if n == 0 || len(with) < len(fewest) {
			fewest = with
		}
	}
	return fewest
}

// reported says whether any node carries the condition type.
func (i index) reported(conditionType string) bool {
	for status, with := range i.byCondition[conditionType] {
		if status != "" && len(with) > 0 {
			return true
		}
	}
	return false
}
