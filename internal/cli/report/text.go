package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// Text writes for people: one finding a line, as compilers do, and a summary.
func Text(w io.Writer, result Result) error {
	var out strings.Builder
	paint := painter(result.Colors)
	for _, r := range result.Reports {
		for _, f := range findings(r) {
			word := paint(yellow, "warning")
			if f.deny {
				word = paint(red, "error")
			}
			fmt.Fprintf(&out, "%s:%d: %s%s: %s: %s (%s)\n", printable(r.File), f.line, prefix(kindAndName(r)), word, f.rule, printable(f.message), f.docs)
		}
	}
	for _, skipped := range skippedTogether(result) {
		fmt.Fprintf(&out, "%s for %s: %s\n", paint(faint, "Skipped(facts)"), count(skipped.objects, "object"), skipped.rules)
	}
	out.WriteString(summary(result))
	_, err := io.WriteString(w, out.String())
	return err
}

// skippedTogether are the rules that needed facts, with the number of objects that lack them.
func skippedTogether(result Result) []skippedRules {
	var all []skippedRules
	for _, r := range result.Reports {
		rules := strings.Join(skippedForFacts(r), ", ")
		i := slices.IndexFunc(all, func(s skippedRules) bool { return s.rules == rules })
		switch {
		case rules == "":
		case i < 0:
			all = append(all, skippedRules{rules: rules, objects: 1})
		default:
			all[i].objects++
		}
	}
	return all
}

type skippedRules struct {
	rules   string
	objects int
}

func prefix(name string) string {
	if name == "" {
		return ""
	}
	return printable(name) + ": "
}

// printable keeps a text away from the terminal's controls; further lines of it are indented.
func printable(text string) string {
	return strings.ReplaceAll(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return unicode.ReplacementChar
		}
		return r
	}, text), "\n", "\n    ")
}

// summary is one line.
func summary(result Result) string {
	refused, warned := 0, 0
	skipped := map[string]bool{}
	for _, r := range result.Reports {
		switch {
		case !r.Allowed:
			refused++
		case r.Warns():
			warned++
		}
		for _, rule := range skippedForFacts(r) {
			skipped[rule] = true
		}
	}
	parts := []string{fmt.Sprintf("%s checked: %d refused, %d with warnings", count(len(result.Reports), "object"), refused, warned)}
	if len(skipped) > 0 {
		parts = append(parts, count(len(skipped), "rule")+" skipped for want of facts (--facts or --live)")
	}
	if result.Facts != "" {
		parts = append(parts, result.Facts)
	}
	if result.Ignored > 0 {
		parts = append(parts, count(result.Ignored, "document")+" of other API groups ignored")
	}
	return strings.Join(parts, "; ") + "\n"
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

type color string

const (
	red    color = "\x1b[31m"
	yellow color = "\x1b[33m"
	faint  color = "\x1b[2m"
	plain        = "\x1b[0m"
)

func painter(colors bool) func(color, string) string {
	return func(c color, text string) string {
		if !colors {
			return text
		}
		return string(c) + text + plain
	}
}
