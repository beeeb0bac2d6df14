package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/display"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Plan is what one policy would do: what its kind's planner foretold, in lines and as JSON.
type Plan struct {
	Report check.Report
	// Acts is how many nodes it would taint now, how many pods it would delete, how many objects it would scale, of how many
	// clusters Envoy would eject hosts, or how many conditions it would write.
	Acts int

	// outcome says in one line what would be done; lines tell of what was found, and of each target.
	outcome string
	lines   []string
	// json is what JSON has of a plan of its kind.
	json map[string]any
}

// row tells something by its name.
func (p *Plan) row(name, format string, args ...any) {
	p.line(1, "%-12s%s", name, fmt.Sprintf(format, args...))
}

func (p *Plan) line(depth int, format string, args ...any) {
	p.lines = append(p.lines, strings.Repeat("  ", depth)+Printable(fmt.Sprintf(format, args...)))
}

// more counts what isn't reported.
func (p *Plan) more(depth, n int, noun, rest string) {
	if n > 0 {
		p.line(depth, "… and %s more%s", sample.Count(n, noun), rest)
	}
}

const allInJSON = "; -o json has them all"

// Plans are what several policies would do together.
type Plans struct {
	Plans []Plan
	// TakenAt is when the facts were read, Age how long ago that is; Facts says it in words.
	TakenAt time.Time
	Age     time.Duration
	Facts   string
	// PausedBy names the Guardrails that let nothing new be done.
	PausedBy []string
	Colors   bool
}

// Refused says whether a policy would be refused.
func (f Plans) Refused() bool {
	return slices.ContainsFunc(f.Plans, func(p Plan) bool { return !p.Report.Allowed })
}

// Acting counts the policies that would do anything.
func (f Plans) Acting() (n int) {
	for _, p := range f.Plans {
		if p.Acts > 0 {
			n++
		}
	}
	return n
}

// Text writes plans for people.
func (f Plans) Text(w io.Writer) error {
	var out strings.Builder
	for _, p := range f.Plans {
		f.writeText(&out, p)
	}
	fmt.Fprintf(&out, "%d of %d policies would act; %s\n", f.Acting(), len(f.Plans), f.Facts)
	_, err := io.WriteString(w, out.String())
	return err
}

func (f Plans) writeText(out *strings.Builder, p Plan) {
	colorize := display.Colorizer(f.Colors)
	outcome := "would be refused"
	if p.Report.Allowed {
		outcome = Printable(cmp.Or(p.outcome, "would be admitted"))
	}
	fmt.Fprintf(out, "%s:%d: %s%s\n", Printable(p.Report.File), p.Report.Line, prefix(kindAndName(p.Report)), outcome)
	for _, line := range p.lines {
		fmt.Fprintln(out, line)
	}
	for _, found := range findings(p.Report) {
		word := colorize(color(found.Severity), level(found.Severity)+": ")
		fmt.Fprintf(out, "  %s%s: %s (%s)\n", word, found.Rule, Printable(found.Message), found.Docs)
	}
	for _, s := range p.Report.Skipped {
		if s.Missing != "" {
			fmt.Fprintf(out, "  %s: %s: %s\n", colorize(display.Faint, skippedLabel(s.Missing)), s.Rule, Printable(s.Reason))
		}
	}
}

// MarshalJSON has all that planners foretold.
func (f Plans) MarshalJSON() ([]byte, error) {
	plans := []map[string]any{}
	for _, p := range f.Plans {
		r := &p.Report
		plan := map[string]any{
			"file": r.File, "line": r.Line, "kind": r.Kind, "name": r.Name, "allowed": r.Allowed, "violations": append([]check.Violation{}, r.Violations...), "acts": p.Acts,
			"heldByLimits": 0, "heldByCap": 0, "taintedNow": 0, "breakerOpens": false, "preview": nil, // which only ConditionSets have
		}
		maps.Copy(plan, p.json)
		plans = append(plans, plan)
	}
	return json.Marshal(map[string]any{
		"takenAt": f.TakenAt, "ageSeconds": int64(f.Age / time.Second), "pausedBy": append([]string{}, f.PausedBy...), "plans": plans,
	})
}

// idles says whether a policy does nothing whatever its planner foretold, and then why: it observes, or Guardrails pause all.
func (p *Plan) idles(mode v1alpha1.Mode, observing string, pausedBy []string, paused string) bool {
	switch {
	case mode == v1alpha1.Observe:
		p.outcome = observing
	case len(pausedBy) > 0:
		p.outcome = paused + ": paused by Guardrail " + strings.Join(pausedBy, ", ")
	}
	return p.outcome != ""
}

// ConditionSet takes in what a set would do under a policy. Sum is of the stored set of its name, with this one in its place.
func (p *Plan) ConditionSet(set *v1alpha1.ConditionSet, f condition.Forecast, sum condition.Summary, policy guardrail.Policy) {
	// what the cluster-wide limits leave no room for, and what the set's own maxNodes holds back
	byLimits, byCap := min(f.WouldTaint, max(0, f.WouldTaint-f.Limit, f.UnionTainted-f.UnionLimit)), f.Matching-f.WouldTaint
	would, opens := f.WouldTaint-byLimits, sum.Breaker != nil && !sum.Breaker.Reset
	p.json = map[string]any{"heldByLimits": byLimits, "heldByCap": byCap, "taintedNow": sum.Tainted, "breakerOpens": opens, "preview": previewOf(f)}
	switch {
	case p.idles(set.Spec.Mode, "observes, and taints nothing", policy.PausedBy, "would taint nothing"):
	case opens:
		p.outcome = fmt.Sprintf("would taint nothing: its breaker opens, because %d of %s match at once", f.Matching, sample.Count(f.Selected, "selected node"))
	case p.Report.Allowed:
		p.Acts, p.outcome = would, fmt.Sprintf("would taint %d of %s with %s:%s", would, sample.Count(f.Nodes, "node"), set.Spec.TaintKey, set.Spec.Effect)
	}
	held := fmt.Sprintf("%d by limits", byLimits)
	if set.Spec.MaxNodes != nil {
		held += fmt.Sprintf(", %d by maxNodes %s", byCap, set.Spec.MaxNodes.String())
	}
	p.setRows(set, f, held, sum.Tainted, policy)
}

func (p *Plan) setRows(set *v1alpha1.ConditionSet, f condition.Forecast, held string, tainted int, policy guardrail.Policy) {
	p.row("selected", "%s", sample.Count(f.Selected, "node"))
	p.row("matching", "%s%s", sample.Count(f.Matching, "node"), names(f.MatchingNodes, f.Matching))
	if f.Limit == limit.None {
		p.row("limit", "none, %s is free", corev1.TaintEffectPreferNoSchedule)
	} else {
		p.row("limit", "%s allows %d of %s", f.LimitName, f.Limit, sample.Count(f.Nodes, "node"))
		p.row("all sets", "%s together; maxTaintedNodes allows %d", sample.Count(f.UnionTainted, "node"), f.UnionLimit)
	}
	p.row("held back", "%s", held)
	p.row("tainted now", "%s", sample.Count(tainted, "node"))
	if read, err := condition.NewSet(set); err == nil && read.For > 0 {
		p.row("when", "once a node has matched for %s", read.For)
	}
	if set.Spec.Effect == corev1.TaintEffectNoExecute {
		p.row("pace", "one node of a zone begins to evict every %s", policy.Limits.EvictPace)
	}
	if f.ForeignTainted > 0 {
		p.row("not ours", "the key is on %s by somebody else%s", sample.Count(f.ForeignTainted, "node"), names(f.ForeignTaintedNodes, f.ForeignTainted))
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

func previewOf(f condition.Forecast) map[string]any {
	preview := map[string]any{
		"nodes": f.Nodes, "selected": f.Selected, "matching": f.Matching, "matchingNodes": append([]string{}, f.MatchingNodes...), "wouldTaint": f.WouldTaint,
		"limit": f.Limit, "limitName": f.LimitName, "unionTainted": f.UnionTainted, "unionLimit": f.UnionLimit,
		"foreignTainted": f.ForeignTainted, "foreignTaintedNodes": append([]string{}, f.ForeignTaintedNodes...),
	}
	if f.Limit == limit.None {
		preview["limit"] = nil
	}
	return preview
}
