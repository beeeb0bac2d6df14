package oracle

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// setSpec is what is judged of a ConditionSet's spec.
type setSpec struct {
	Mode       string `json:"mode"`
	TaintKey   string `json:"taintKey"`
	Conditions map[corev1.NodeConditionType]struct {
		Status any `json:"status"`
	} `json:"conditions"`
	MaxNodes            *intstr.IntOrString   `json:"maxNodes"`
	NodeSelector        *metav1.LabelSelector `json:"nodeSelector"`
	IncludeControlPlane bool                  `json:"includeControlPlane"`
	selector            labels.Selector
}

func readSetSpec(of Spec) (s setSpec, err error) {
	if of.Object == nil {
		return s, errors.New("there is no such generation")
	}
	encoded, err := json.Marshal(of.Object.Object["spec"])
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(encoded, &s); err != nil {
		return s, err
	}
	s.selector = labels.Everything()
	if s.NodeSelector != nil {
		s.selector, err = metav1.LabelSelectorAsSelector(s.NodeSelector)
	}
	return s, err
}

func (s *setSpec) selects(n *node) bool {
	return (!n.plane || s.IncludeControlPlane) && s.selector.Matches(labels.Set(n.labels))
}

// recoveries judges claims that a write dropped. While their set is there and unchanged and selects the node, only a reporter's own
// word, True or False, says that the node is well again: Unknown and absence don't. (How old that word is isn't known here: heartbeats are
// left out of what is followed.)
func (s *nodes) recoveries(w *World, c Change, before, after *node) []Broken {
	var found []Broken
	for _, claim := range before.record.Taints {
		spec, stands := s.stands(w, c, claim, before)
		if !stands || !dropped(claim, before, after) || s.isWell(spec, before, c.At) {
			continue
		}
		var says []string
		for _, member := range slices.Sorted(maps.Keys(spec.Conditions)) {
			says = append(says, fmt.Sprintf("%s is %q", member, before.statuses[member]))
		}
		found = append(found, Broken{Doubt, fmt.Sprintf("the manager removed %s:%s of %s, and nobody said that the node is well: %s",
			claim.Key, claim.Effect, claim.Name, strings.Join(says, ", "))})
	}
	return found
}

// dropped: the claim went together with its taint, and not because another set asks for more: by precedence among all sets of a node
// only the highest effect stays.
func dropped(c claim, before, after *node) bool {
	effect := before.record.effect(c.Key)
	there := func(n *node) bool {
		return slices.ContainsFunc(n.taints, func(t corev1.Taint) bool { return t.Key == c.Key && t.Effect == effect })
	}
	outranked := slices.ContainsFunc(after.record.Taints, func(other claim) bool { return rank(other.Effect) > rank(c.Effect) })
	return after.record.of(c.Set, c.Key).Key == "" && there(before) && !there(after) && !outranked
}

// stands: the claim's set is there, and for so long that the manager must know it asks for this taint on this node, if it is sick.
func (s *nodes) stands(w *World, c Change, claim claim, n *node) (spec setSpec, stands bool) {
	p := w.Policies[claim.Set]
	if p == nil || !p.Gone.IsZero() || s.isNews(p, c.At) || s.relabelled(n.uid, c.At) {
		return spec, false
	}
	spec, err := readSetSpec(p.Specs[len(p.Specs)-1])
	return spec, err == nil && spec.Mode != "Observe" && spec.TaintKey == claim.Key && spec.selects(n)
}

// isNews: the policy was changed so lately that the write may be by what it said before.
func (s *nodes) isNews(p *Policy, at time.Time) bool {
	return len(p.Specs) > 1 && at.Sub(p.Specs[len(p.Specs)-2].Until) <= s.options.Lag
}

func (s *nodes) relabelled(uid types.UID, at time.Time) bool {
	r := s.reasons[uid]
	return r != nil && slices.ContainsFunc(r.node, func(t stamp) bool { return at.Sub(t.at) <= s.options.Lag })
}

// isWell: some condition is, or was until shortly before, the opposite of what the set asks for.
func (s *nodes) isWell(spec setSpec, n *node, at time.Time) bool {
	for member, asked := range spec.Conditions {
		for _, opposite := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
			if strings.EqualFold(fmt.Sprint(asked.Status), string(opposite)) {
				continue
			}
			until, said := time.Time{}, false
			if r := s.reasons[n.uid]; r != nil {
				until, said = r.said[member][opposite]
			}
			if n.statuses[member] == opposite || said && at.Sub(until) <= s.options.Lag {
				return true
			}
		}
	}
	return false
}
