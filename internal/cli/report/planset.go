package report

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// ConditionSet takes in what a set would do under a policy. Sum is of the stored set of its name, with this one in its place.
func (p *Plan) ConditionSet(set *v1alpha1.ConditionSet, f condition.Forecast, sum condition.Summary, policy guardrail.Policy) {
	p.json = ofKind{
		// what the cluster-wide limits leave no room for, and what the set's own maxNodes holds back
		HeldByLimits: min(f.WouldTaint, max(0, f.WouldTaint-f.Limit, f.UnionTainted-f.UnionLimit)), HeldByCap: f.Matching - f.WouldTaint,
		TaintedNow: sum.Tainted, BreakerOpens: sum.Breaker != nil && !sum.Breaker.Reset, Preview: previewOf(f),
	}
	would := f.WouldTaint - p.json.HeldByLimits
	switch {
	case set.Spec.Mode == v1alpha1.Observe:
		p.outcome = "observes, and taints nothing"
	case len(policy.PausedBy) > 0:
		p.outcome = "would taint nothing: paused by Guardrail " + strings.Join(policy.PausedBy, ", ")
	case p.json.BreakerOpens:
		p.outcome = fmt.Sprintf("would taint nothing: its breaker opens, because %d of %s match at once", f.Matching, count(f.Selected, "selected node"))
	case p.Report.Allowed:
		p.Acts, p.outcome = would, fmt.Sprintf("would taint %d of %s with %s:%s", would, count(f.Nodes, "node"), set.Spec.TaintKey, set.Spec.Effect)
	}
	p.setRows(set, f, policy)
}

func (p *Plan) setRows(set *v1alpha1.ConditionSet, f condition.Forecast, policy guardrail.Policy) {
	p.row("selected", "%s", count(f.Selected, "node"))
	p.row("matching", "%s%s", count(f.Matching, "node"), names(f.MatchingNodes, f.Matching))
	if f.Limit == limit.None {
		p.row("limit", "none, %s is free", corev1.TaintEffectPreferNoSchedule)
	} else {
		p.row("limit", "%s allows %d of %s", f.LimitName, f.Limit, count(f.Nodes, "node"))
		p.row("all sets", "%s together; maxTaintedNodes allows %d", count(f.UnionTainted, "node"), f.UnionLimit)
	}
	held := fmt.Sprintf("%d by limits", p.json.HeldByLimits)
	if set.Spec.MaxNodes != nil {
		held += fmt.Sprintf(", %d by maxNodes %s", p.json.HeldByCap, set.Spec.MaxNodes.String())
	}
	p.row("held back", "%s", held)
	p.row("tainted now", "%s", count(p.json.TaintedNow, "node"))
	if read, err := condition.NewSet(set); err == nil && read.For > 0 {
		p.row("when", "once a node has matched for %s", read.For)
	}
	if set.Spec.Effect == corev1.TaintEffectNoExecute {
		p.row("pace", "one node of a zone begins to evict every %s", policy.Limits.EvictPace)
	}
	if f.ForeignTainted > 0 {
		p.row("not ours", "the key is on %s by somebody else%s", count(f.ForeignTainted, "node"), names(f.ForeignTaintedNodes, f.ForeignTainted))
	}
}

// names are some of the nodes, in brackets.
func names(some []string, of int) string {
	const shown = 5
	if len(some) == 0 {
		return ""
	}
	text := strings.Join(some[:min(shown, len(some))], ", ")
	if of > shown {
		text += ", …"
	}
	return " (" + text + ")"
}

type jsonPreview struct {
	Nodes         int      `json:"nodes"`
	Selected      int      `json:"selected"`
	Matching      int      `json:"matching"`
	MatchingNodes []string `json:"matchingNodes"`
	WouldTaint    int      `json:"wouldTaint"`
	// Limit is null when none applies.
	Limit               *int     `json:"limit"`
	LimitName           string   `json:"limitName"`
	UnionTainted        int      `json:"unionTainted"`
	UnionLimit          int      `json:"unionLimit"`
	ForeignTainted      int      `json:"foreignTainted"`
	ForeignTaintedNodes []string `json:"foreignTaintedNodes"`
}

func previewOf(f condition.Forecast) *jsonPreview {
	j := &jsonPreview{
		Nodes: f.Nodes, Selected: f.Selected, Matching: f.Matching, MatchingNodes: append([]string{}, f.MatchingNodes...), WouldTaint: f.WouldTaint,
		LimitName: f.LimitName, UnionTainted: f.UnionTainted, UnionLimit: f.UnionLimit,
		ForeignTainted: f.ForeignTainted, ForeignTaintedNodes: append([]string{}, f.ForeignTaintedNodes...),
	}
	if f.Limit != limit.None {
		j.Limit = &f.Limit
	}
	return j
}
