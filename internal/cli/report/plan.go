package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// Plan is what one policy would do.
type Plan struct {
	Report check.Report
	// Set and Preview are unset when the policy's schema refuses it.
	Set     *v1alpha1.ConditionSet
	Preview condition.Preview
	// TaintedNow counts the nodes that a stored set of its name tainted.
	TaintedNow int
	// BreakerOpens: so many of its nodes match that it would not be believed.
	BreakerOpens bool
	// Weeder is set for a WeederConfig that its schema lets through, in place of all but the Report.
	Weeder *WeederPlan
	// Probe is the same for a ProbeConfig.
	Probe *ProbePlan
	// Outlier is the same for an OutlierPolicy.
	Outlier *OutlierPlan
	// Checks is the same for a HealthCheckRegistration.
	Checks *ChecksPlan
}

// Forecast is what several policies would do together.
type Forecast struct {
	Plans []Plan
	// TakenAt is when the facts were read, Age how long ago that is; Facts says it in words.
	TakenAt time.Time
	Age     time.Duration
	Facts   string
	// EvictPace is the time between two nodes of one zone that begin to evict.
	EvictPace time.Duration
	// PausedBy names the Guardrails that let nothing new be done.
	PausedBy []string
	Colors   bool
}

// Refused says whether a policy would be refused.
func (f Forecast) Refused() bool {
	for _, p := range f.Plans {
		if !p.Report.Allowed {
			return true
		}
	}
	return false
}

// Acts says whether anything would be done.
func (f Forecast) Acts() bool {
	for _, p := range f.Plans {
		if f.acts(p) > 0 {
			return true
		}
	}
	return false
}

// acts is how many nodes the policy would taint now, how many pods it would delete, how many objects it would scale, of how
// many clusters Envoy would eject hosts, or how many conditions it would write.
func (f Forecast) acts(p Plan) int {
	switch {
	case p.Weeder != nil:
		return p.Weeder.deletions()
	case p.Probe != nil:
		return p.Probe.acts()
	case p.Outlier != nil && len(f.PausedBy) == 0:
		return p.Outlier.acts()
	case p.Checks != nil:
		return p.Checks.acts(p.Report.Allowed && len(f.PausedBy) == 0)
	}
	if p.Set == nil || !p.Report.Allowed || p.Set.Spec.Mode == v1alpha1.Observe || p.BreakerOpens || len(f.PausedBy) > 0 {
		return 0
	}
	return p.Preview.WouldTaint - p.heldByLimits()
}

// heldByLimits is how many of the nodes that the set would taint the cluster-wide limits leave no room for.
func (p Plan) heldByLimits() int {
	v := p.Preview
	return min(v.WouldTaint, max(0, v.WouldTaint-v.Limit, v.UnionTainted-v.UnionLimit))
}

// heldByCap is how many matching nodes the set's own maxNodes holds back.
func (p Plan) heldByCap() int { return p.Preview.Matching - p.Preview.WouldTaint }

// Write writes a forecast as text or json.
func (f Forecast) Write(w io.Writer, format string) error {
	if format == "json" {
		return f.writeJSON(w)
	}
	var out strings.Builder
	for _, p := range f.Plans {
		f.writeText(&out, p)
	}
	acting := 0
	for _, p := range f.Plans {
		if f.acts(p) > 0 {
			acting++
		}
	}
	fmt.Fprintf(&out, "%d of %d policies would act; %s\n", acting, len(f.Plans), f.Facts)
	_, err := io.WriteString(w, out.String())
	return err
}

func (f Forecast) writeText(out *strings.Builder, p Plan) {
	paint := painter(f.Colors)
	fmt.Fprintf(out, "%s:%d: %s%s\n", printable(p.Report.File), p.Report.Line, prefix(kindAndName(p.Report)), f.outcome(p))
	f.writeDetails(out, p)
	for _, found := range findings(p.Report) {
		word := paint(yellow, "warning: ")
		if found.deny {
			word = paint(red, "error: ")
		}
		fmt.Fprintf(out, "  %s%s: %s (%s)\n", word, found.rule, printable(found.message), found.docs)
	}
	for _, s := range p.Report.Skipped {
		if s.Missing != "" {
			fmt.Fprintf(out, "  %s: %s: %s\n", paint(faint, skippedLabel(s.Missing)), s.Rule, printable(s.Reason))
		}
	}
}

// writeDetails tells in lines what the kind's planner found, and then of each of its targets.
func (f Forecast) writeDetails(out *strings.Builder, p Plan) {
	var lines [][2]string
	targets := func(*strings.Builder) {}
	switch {
	case p.Weeder != nil:
		lines, targets = p.Weeder.details(), p.Weeder.writeServices
	case p.Probe != nil:
		lines, targets = p.Probe.details(), p.Probe.writeTargets
	case p.Outlier != nil:
		lines, targets = p.Outlier.details(), p.Outlier.writeClusters
	case p.Checks != nil:
		lines, targets = p.Checks.details(), p.Checks.writeTargets
	case p.Set != nil:
		lines = f.details(p)
	}
	for _, line := range lines {
		fmt.Fprintf(out, "  %-12s%s\n", line[0], printable(line[1]))
	}
	targets(out)
}

// outcome says in one line what would be done.
func (f Forecast) outcome(p Plan) string {
	taint := ""
	if p.Set != nil {
		taint = printable(fmt.Sprintf(" with %s:%s", p.Set.Spec.TaintKey, p.Set.Spec.Effect))
	}
	switch {
	case !p.Report.Allowed:
		return "would be refused"
	case p.Weeder != nil:
		return p.Weeder.outcome(f.PausedBy)
	case p.Probe != nil:
		return p.Probe.outcome(f.PausedBy)
	case p.Outlier != nil:
		return p.Outlier.outcome(f.PausedBy)
	case p.Checks != nil:
		return p.Checks.outcome(f.PausedBy)
	case p.Set.Spec.Mode == v1alpha1.Observe:
		return "observes, and taints nothing"
	case len(f.PausedBy) > 0:
		return "would taint nothing: paused by Guardrail " + strings.Join(f.PausedBy, ", ")
	case p.BreakerOpens:
		return fmt.Sprintf("would taint nothing: its breaker opens, because %d of %s match at once", p.Preview.Matching, count(p.Preview.Selected, "selected node"))
	}
	return fmt.Sprintf("would taint %d of %s%s", f.acts(p), count(p.Preview.Nodes, "node"), taint)
}

// details are lines of a name and a text.
func (f Forecast) details(p Plan) [][2]string {
	v := p.Preview
	lines := [][2]string{
		{"selected", count(v.Selected, "node")},
		{"matching", count(v.Matching, "node") + names(v.MatchingNodes, v.Matching)},
	}
	if v.Limit == limit.None {
		lines = append(lines, [2]string{"limit", "none, " + string(corev1.TaintEffectPreferNoSchedule) + " is free"})
	} else {
		lines = append(lines,
			[2]string{"limit", fmt.Sprintf("%s allows %d of %s", v.LimitName, v.Limit, count(v.Nodes, "node"))},
			[2]string{"all sets", fmt.Sprintf("%s together; maxTaintedNodes allows %d", count(v.UnionTainted, "node"), v.UnionLimit)})
	}
	held := fmt.Sprintf("%d by limits", p.heldByLimits())
	if p.Set.Spec.MaxNodes != nil {
		held += fmt.Sprintf(", %d by maxNodes %s", p.heldByCap(), p.Set.Spec.MaxNodes.String())
	}
	lines = append(lines, [2]string{"held back", held}, [2]string{"tainted now", count(p.TaintedNow, "node")})
	if set, err := condition.NewSet(p.Set); err == nil && set.For > 0 {
		lines = append(lines, [2]string{"when", "once a node has matched for " + set.For.String()})
	}
	if p.Set.Spec.Effect == corev1.TaintEffectNoExecute {
		lines = append(lines, [2]string{"pace", "one node of a zone begins to evict every " + f.EvictPace.String()})
	}
	if v.ForeignTainted > 0 {
		lines = append(lines, [2]string{"not ours", "the key is on " + count(v.ForeignTainted, "node") + " by somebody else" + names(v.ForeignTaintedNodes, v.ForeignTainted)})
	}
	return lines
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
