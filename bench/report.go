package main

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

// report gathers what was measured, in the order of measuring.
type report struct {
	ratios, absolutes, costs []string
}

// row is one figure: ours, and where there is one the reference of the same run.
type row struct {
	what, ours, reference string
	ratio                 series
	// goal is what the design asks; reached whether this run kept it. No goal: the figure is for information.
	goal    string
	reached bool
}

func (r row) verdict() string {
	switch {
	case r.goal == "":
		return ""
	case r.reached:
		return "yes"
	}
	return "**no**"
}

func (r *report) ratio(w row) {
	r.ratios = append(r.ratios, cells(w.what, w.ours, w.reference, w.ratio.text("%.2f"), w.goal, w.verdict()))
	fmt.Printf("  %s: %s against %s, ratio %s %s\n", w.what, w.ours, w.reference, w.ratio.text("%.2f"), w.print())
}

func (r *report) absolute(w row) {
	r.absolutes = append(r.absolutes, cells(w.what, w.ours, w.goal, w.verdict()))
	fmt.Printf("  %s: %s %s\n", w.what, w.ours, w.print())
}

func (r row) print() string {
	if r.goal == "" {
		return ""
	}
	return fmt.Sprintf("(goal %s, reached: %s)", r.goal, strings.Trim(r.verdict(), "*"))
}

// cost tells where the processors' time went, in milliseconds for each of n things done.
func (r *report) cost(what string, spent usage, n float64) {
	r.spent(what, spent, func(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000/n) })
}

// perSecond tells the same as shares of one processor.
func (r *report) perSecond(what string, spent usage, took time.Duration) {
	r.spent(what, spent, func(d time.Duration) string { return fmt.Sprintf("%.1f%%", 100*d.Seconds()/took.Seconds()) })
}

func (r *report) spent(what string, spent usage, show func(time.Duration) string) {
	row := []string{what}
	for _, component := range []cluster.Component{harness.Manager, cluster.APIServer, cluster.Etcd, self} {
		d, ok := spent[component]
		if !ok {
			row = append(row, "–")
			continue
		}
		row = append(row, show(d))
	}
	r.costs = append(r.costs, cells(append(row, show(spent.total()))...))
	fmt.Printf("  processor time of %s: manager %s, API server %s, etcd %s, this program %s\n", what, row[1], row[2], row[3], row[4])
}

func cells(texts ...string) string { return "| " + strings.Join(texts, " | ") + " |\n" }

// markdown is what docs/benchmarks.md has between its two markers.
func (r *report) markdown(machine string, took time.Duration) string {
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

// writeBetween replaces what a file has between the markers, and leaves the rest, which people wrote.
func writeBetween(path, text string) error {
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
