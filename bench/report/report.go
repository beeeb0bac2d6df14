// Package report has what was measured as rows of three tables: figures beside a reference of the same run, absolute figures, and where
// the processors' time went. Begin at Report; Series is the arithmetic of noisy machines.
package report

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// Report gathers rows in the order of measuring, and prints each at once.
type Report struct {
	ratios, absolutes, costs []string
}

// Goal is what the design asks of a ratio, and whether this one is that. Without one a figure is for information.
type Goal func(ratio float64) (text string, reached bool)

// AtLeast asks for as much as the reference has, or a part of it.
func AtLeast(least float64) Goal {
	return func(ratio float64) (string, bool) { return fmt.Sprintf("≥ %v", least), ratio >= least }
}

// AtMost asks for no more than so many times the reference.
func AtMost(most float64) Goal {
	return func(ratio float64) (string, bool) { return fmt.Sprintf("≤ %v", most), ratio <= most }
}

// Flat asks that more objects in the cluster cost nothing.
func Flat(ratio float64) (text string, reached bool) { return "flat (≤ 1.1)", ratio <= 1.1 }

// Ratio reports ours by the reference, round by round.
func (r *Report) Ratio(what, format string, ours, reference Series, goal Goal) {
	r.RatioOf(what, ours.Text(format), reference.Text(format), ours.Over(reference), goal)
}

// RatioOf reports a ratio of two figures that isn't ours by the reference.
func (r *Report) RatioOf(what, ours, reference string, ratio Series, goal Goal) {
	var text, verdict string
	if goal != nil {
		var reached bool
		text, reached = goal(ratio.Median())
		verdict = verdicts[reached]
	}
	r.ratios = append(r.ratios, cells(what, ours, reference, ratio.Text("%.2f"), text, verdict))
	fmt.Printf("  %s: %s against %s, ratio %s %s\n", what, ours, reference, ratio.Text("%.2f"), comment(text, verdict))
}

// Value reports a figure that no goal is asked of.
func (r *Report) Value(what, ours string) { r.absolute(what, ours, "", "") }

// Checked reports a figure with its goal.
func (r *Report) Checked(what, ours, goal string, reached bool) {
	r.absolute(what, ours, goal, verdicts[reached])
}

func (r *Report) absolute(what, ours, goal, verdict string) {
	r.absolutes = append(r.absolutes, cells(what, ours, goal, verdict))
	fmt.Printf("  %s: %s %s\n", what, ours, comment(goal, verdict))
}

var verdicts = map[bool]string{true: "yes", false: "**no**"}

func comment(goal, verdict string) string {
	if goal == "" {
		return ""
	}
	return fmt.Sprintf("(goal %s, reached: %s)", goal, strings.Trim(verdict, "*"))
}

// Usage is processor time by process. Those that don't run are missing, and on systems without /proc all but this one.
type Usage map[cluster.Component]time.Duration

// Self stands for this program, which makes the load.
const Self cluster.Component = "bench"

// Since is what each process took since before; one that was started meanwhile took all of it.
func (u Usage) Since(before Usage) Usage {
	spent := Usage{}
	for component, now := range u {
		if was := before[component]; was <= now {
			spent[component] = now - was
		} else {
			spent[component] = now
		}
	}
	return spent
}

// Total is that of all processes together.
func (u Usage) Total() (all time.Duration) {
	for _, spent := range u {
		all += spent
	}
	return all
}

// Add sums up over rounds.
func (u *Usage) Add(more Usage) {
	if *u == nil {
		*u = Usage{}
	}
	for component, spent := range more {
		(*u)[component] += spent
	}
}

// Cost reports where the processors' time went, in milliseconds for each of n things done.
func (r *Report) Cost(what string, spent Usage, n float64) {
	r.spent(what, spent, func(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000/n) })
}

// CostPerSecond reports the same as shares of one processor.
func (r *Report) CostPerSecond(what string, spent Usage, took time.Duration) {
	r.spent(what, spent, func(d time.Duration) string { return fmt.Sprintf("%.1f%%", 100*d.Seconds()/took.Seconds()) })
}

func (r *Report) spent(what string, spent Usage, show func(time.Duration) string) {
	row := []string{what}
	for _, component := range []cluster.Component{harness.Manager, cluster.APIServer, cluster.Etcd, Self} {
		text := "–"
		if d, ok := spent[component]; ok {
			text = show(d)
		}
		row = append(row, text)
	}
	r.costs = append(r.costs, cells(append(row, show(spent.Total()))...))
	fmt.Printf("  processor time of %s: manager %s, API server %s, etcd %s, this program %s\n", what, row[1], row[2], row[3], row[4])
}

func cells(texts ...string) string { return "| " + strings.Join(texts, " | ") + " |\n" }

// Markdown is what docs/benchmarks.md has between its two markers.
func (r *Report) Markdown(machine string, took time.Duration) string {
	var out strings.Builder
	fmt.Fprintf(&out, "\n%s\nThe run took %s.\n", machine, took.Round(time.Second))
	table := func(title string, rows []string, heads ...string) {
		if len(rows) > 0 {
			fmt.Fprintf(&out, "\n### %s\n\n%s|%s\n%s", title, cells(heads...), strings.Repeat(" --- |", len(heads)), strings.Join(rows, ""))
		}
	}
	table("Against the reference of the same run", r.ratios, "figure", "ours", "reference", "ratio", "goal", "reached")
	table("Absolute", r.absolutes, "figure", "ours", "goal", "reached")
	table("Where the processors' time went", r.costs, "while", "manager", "API server", "etcd", "this program", "together")
	return out.String() + "\n"
}

const (
	beginMark = "<!-- begin: written by make bench -->\n"
	endMark   = "<!-- end: written by make bench -->\n"
)

// Write replaces what a file has between the two markers, and leaves the rest, which people wrote.
func Write(path, text string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read what to write the results into: %w", err)
	}
	begin, end := bytes.Index(content, []byte(beginMark)), bytes.Index(content, []byte(endMark))
	if begin < 0 || end < begin {
		return errors.New("write the results: " + path + " has no place for them; restore the two comments that mark it")
	}
	content = append(append(content[:begin+len(beginMark):begin+len(beginMark)], text...), content[end:]...)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}
