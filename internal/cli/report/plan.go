package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/resourcestack/autohealer/internal/cli/check"
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
	p.lines = append(p.lines, strings.Repeat("  ", depth)+printable(fmt.Sprintf(format, args...)))
}

// more counts what isn't told of.
func (p *Plan) more(depth, n int, noun, rest string) {
	if n > 0 {
		p.line(depth, "… and %s more%s", count(n, noun), rest)
	}
}

const hasThemAll = "; -o json has them all"

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
	for _, p := range f.Plans {
		if !p.Report.Allowed {
			return true
		}
	}
	return false
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

// Write writes plans as text or json.
func (f Plans) Write(w io.Writer, format string) error {
	if format == "json" {
		return f.writeJSON(w)
	}
	var out strings.Builder
	for _, p := range f.Plans {
		f.writeText(&out, p)
	}
	fmt.Fprintf(&out, "%d of %d policies would act; %s\n", f.Acting(), len(f.Plans), f.Facts)
	_, err := io.WriteString(w, out.String())
	return err
}

func (f Plans) writeText(out *strings.Builder, p Plan) {
	paint := painter(f.Colors)
	outcome := "would be refused"
	if p.Report.Allowed {
		outcome = printable(cmp.Or(p.outcome, "would be admitted"))
	}
	fmt.Fprintf(out, "%s:%d: %s%s\n", printable(p.Report.File), p.Report.Line, prefix(kindAndName(p.Report)), outcome)
	for _, line := range p.lines {
		fmt.Fprintln(out, line)
	}
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

func (f Plans) writeJSON(w io.Writer) error {
	out := jsonPlans{TakenAt: f.TakenAt, AgeSeconds: int64(f.Age / time.Second), PausedBy: append([]string{}, f.PausedBy...), Plans: []jsonPlan{}}
	for _, p := range f.Plans {
		r := &p.Report
		out.Plans = append(out.Plans, jsonPlan{r.File, r.Line, r.Kind, r.Name, r.Allowed, append([]check.Violation{}, r.Violations...), p.Acts, p.json})
	}
	return WriteJSON(w, out)
}
