package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/words"
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
	json    ofKind
}

// ofKind is what JSON tells of a plan by its kind.
type ofKind struct {
	HeldByLimits int  `json:"heldByLimits"`
	HeldByCap    int  `json:"heldByCap"`
	TaintedNow   int  `json:"taintedNow"`
	BreakerOpens bool `json:"breakerOpens"`
	// Preview is there for a ConditionSet; it is null for others, which have a field of theirs.
	Preview any `json:"preview"`
	Weeder  any `json:"weeder,omitempty"`
	Probe   any `json:"probe,omitempty"`
	Outlier any `json:"outlier,omitempty"`
	Checks  any `json:"checks,omitempty"`
}

// row tells something by its name.
func (p *Plan) row(name, format string, args ...any) {
	p.line(1, "%-12s%s", name, fmt.Sprintf(format, args...))
}

func (p *Plan) line(depth int, format string, args ...any) {
	p.lines = append(p.lines, strings.Repeat("  ", depth)+Printable(fmt.Sprintf(format, args...)))
}

// more counts what isn't told of.
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
	colorize := words.Colorizer(f.Colors)
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
			fmt.Fprintf(out, "  %s: %s: %s\n", colorize(words.Faint, skippedLabel(s.Missing)), s.Rule, Printable(s.Reason))
		}
	}
}

type jsonPlans struct {
	TakenAt    time.Time  `json:"takenAt"`
	AgeSeconds int64      `json:"ageSeconds"`
	PausedBy   []string   `json:"pausedBy"`
	Plans      []jsonPlan `json:"plans"`
}

type jsonPlan struct {
	File       string            `json:"file"`
	Line       int               `json:"line"`
	Kind       string            `json:"kind"`
	Name       string            `json:"name"`
	Allowed    bool              `json:"allowed"`
	Violations []check.Violation `json:"violations"`
	Acts       int               `json:"acts"`
	ofKind
}

// MarshalJSON has all that planners foretold.
func (f Plans) MarshalJSON() ([]byte, error) {
	out := jsonPlans{TakenAt: f.TakenAt, AgeSeconds: int64(f.Age / time.Second), PausedBy: append([]string{}, f.PausedBy...), Plans: []jsonPlan{}}
	for _, p := range f.Plans {
		r := &p.Report
		out.Plans = append(out.Plans, jsonPlan{r.File, r.Line, r.Kind, r.Name, r.Allowed, append([]check.Violation{}, r.Violations...), p.Acts, p.json})
	}
	return json.Marshal(out)
}

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
		p.outcome = fmt.Sprintf("would taint nothing: its breaker opens, because %d of %s match at once", f.Matching, sample.Count(f.Selected, "selected node"))
	case p.Report.Allowed:
		p.Acts, p.outcome = would, fmt.Sprintf("would taint %d of %s with %s:%s", would, sample.Count(f.Nodes, "node"), set.Spec.TaintKey, set.Spec.Effect)
	}
	p.setRows(set, f, policy)
}

func (p *Plan) setRows(set *v1alpha1.ConditionSet, f condition.Forecast, policy guardrail.Policy) {
	p.row("selected", "%s", sample.Count(f.Selected, "node"))
	p.row("matching", "%s%s", sample.Count(f.Matching, "node"), names(f.MatchingNodes, f.Matching))
	if f.Limit == limit.None {
		p.row("limit", "none, %s is free", corev1.TaintEffectPreferNoSchedule)
	} else {
		p.row("limit", "%s allows %d of %s", f.LimitName, f.Limit, sample.Count(f.Nodes, "node"))
		p.row("all sets", "%s together; maxTaintedNodes allows %d", sample.Count(f.UnionTainted, "node"), f.UnionLimit)
	}
	held := fmt.Sprintf("%d by limits", p.json.HeldByLimits)
	if set.Spec.MaxNodes != nil {
		held += fmt.Sprintf(", %d by maxNodes %s", p.json.HeldByCap, set.Spec.MaxNodes.String())
	}
	p.row("held back", "%s", held)
	p.row("tainted now", "%s", sample.Count(p.json.TaintedNow, "node"))
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
