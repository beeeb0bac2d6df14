package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/resourcestack/autohealer/internal/cli/words"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/guard"
)

// Text writes for people: one finding a line, as compilers do, and a summary.
func Text(w io.Writer, result Result) error {
	out := bufio.NewWriter(w)
	paint := words.Painter(result.Colors)
	for _, r := range result.Reports {
		for _, f := range findings(r) {
			word := paint(color(f.Severity), level(f.Severity))
			fmt.Fprintf(out, "%s:%d: %s%s: %s: %s (%s)\n", Printable(r.File), f.Line, prefix(kindAndName(r)), word, f.Rule, Printable(f.Message), f.Docs)
		}
	}
	for _, skipped := range skippedTogether(result) {
		fmt.Fprintf(out, "%s for %s: %s\n", paint(words.Faint, skipped.label), sample.Count(skipped.objects, "object"), skipped.rules)
	}
	_, _ = out.WriteString(summary(result)) // the error is Flush's as well
	return out.Flush()
}

func color(of guard.Severity) words.Color {
	if of == guard.Deny {
		return words.Red
	}
	return words.Yellow
}

// skippedTogether are the rules that lacked something to ask, with the number of objects about which.
func skippedTogether(result Result) []skippedRules {
	var all []skippedRules
	for _, missing := range wants {
		for _, r := range result.Reports {
			s := skippedRules{label: skippedLabel(missing), rules: strings.Join(skippedFor(r, missing), ", "), objects: 1}
			i := slices.IndexFunc(all, func(other skippedRules) bool { return other.label == s.label && other.rules == s.rules })
			switch {
			case s.rules == "":
			case i < 0:
				all = append(all, s)
			default:
				all[i].objects++
			}
		}
	}
	return all
}

type skippedRules struct {
	label, rules string
	objects      int
}

func prefix(name string) string {
	if name == "" {
		return ""
	}
	return Printable(name) + ": "
}

// Printable keeps a text away from the terminal's controls; further lines of it are indented.
func Printable(text string) string {
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
	lacking := map[guard.Missing]map[string]bool{guard.MissingFacts: {}, guard.MissingAuthorizer: {}, guard.MissingRequest: {}}
	for _, r := range result.Reports {
		switch {
		case !r.Allowed:
			refused++
		case r.Warns():
			warned++
		}
		for _, s := range r.Skipped {
			if s.Missing != "" {
				lacking[s.Missing][s.Rule] = true
			}
		}
	}
	parts := []string{fmt.Sprintf("%s checked: %d refused, %d with warnings", sample.Count(len(result.Reports), "object"), refused, warned)}
	hints := map[guard.Missing]string{
		guard.MissingFacts:      "facts (--facts or --live)",
		guard.MissingAuthorizer: "an API server that knows rights (--live)",
		guard.MissingRequest:    "a request that says who asks (kubectl apply --dry-run=server)",
	}
	if result.Facts != "" {
		hints[guard.MissingFacts] = "more facts than these (facts export writes them anew, or --live)"
	}
	for _, missing := range wants {
		if n := len(lacking[missing]); n > 0 {
			parts = append(parts, sample.Count(n, "rule")+" skipped for want of "+hints[missing])
		}
	}
	if result.Facts != "" {
		parts = append(parts, result.Facts)
	}
	if result.Ignored > 0 {
		parts = append(parts, sample.Count(result.Ignored, "document")+" of other API groups ignored")
	}
	if len(result.Reports) == 0 {
		parts = append(parts, "nothing here is Autohealer's: is it the right place?")
	}
	return strings.Join(parts, "; ") + "\n"
}
