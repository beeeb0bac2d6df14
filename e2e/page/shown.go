package page

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// varies is what differs from run to run, each with what stands for it. Nothing else may.
var varies = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`\b\d{8}t\d{6}(\d{6})?z\b`), "OPENING"}, // the times by which openings of breakers are named
	{regexp.MustCompile(`[\w.-]+_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "LEADER"},
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "UID"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`rule set [0-9a-f]{16}`), "rule set HASH"},
	{regexp.MustCompile(`-[b-df-hj-np-tv-xz2-9]{6,10}-[b-df-hj-np-tv-xz2-9]{5}\b`), "-POD"},
	{regexp.MustCompile(`-[b-df-hj-np-tv-xz2-9]{8,10}\b`), "-REPLICASET"},
	// Ages, in columns and in sentences; a duration that a policy has is none.
	{regexp.MustCompile(`(  |\(|\bin |\bafter |\bheard |\bsince |, )(\d+(\.\d+)?(ms|[smhd]))+( ago|\)| old|,|\.|:| |$)`), "${1}AGE${5}"},
	{regexp.MustCompile(`(\S)  +`), "$1  "}, // columns are as wide as what is in them
}

func constant(line string) string {
	for _, v := range varies {
		line = v.pattern.ReplaceAllString(line, v.with)
	}
	return strings.TrimRight(line, " ")
}

// Differs says how what the command printed isn't what the page shows; empty where it is.
func (c Command) Differs(said string) string {
	var printed []string
	if said != "" {
		printed = strings.Split(strings.TrimSuffix(said, "\n"), "\n")
	}
	for i := range printed {
		printed[i] = constant(printed[i])
	}
	if matches(unordered(c.Shown), unordered(printed)) {
		return ""
	}
	return fmt.Sprintf("line %d: $ %s\nthe page shows:\n%s\nand it prints:\n%s", c.Line, c.Text, strings.Join(c.Shown, "\n"), said)
}

// unordered sorts each list of what is wrong with an object: the API server tells that in no order.
func unordered(lines []string) []string {
	sorted := slices.Clone(lines)
	for from := 0; from < len(sorted); from++ {
		to := from
		for to < len(sorted) && strings.HasPrefix(sorted[to], "* ") {
			to++
		}
		slices.Sort(sorted[from:to])
		from = to
	}
	return sorted
}

// matches says that the lines shown are those printed; a line that is "…" is any number of them.
func matches(shown, printed []string) bool {
	if len(shown) == 0 {
		return len(printed) == 0
	}
	if strings.TrimSpace(shown[0]) == "…" {
		for skipped := range len(printed) + 1 {
			if matches(shown[1:], printed[skipped:]) {
				return true
			}
		}
		return false
	}
	return len(printed) > 0 && lineOf(shown[0]).MatchString(printed[0]) && matches(shown[1:], printed[1:])
}

// lineOf matches what a line of a page stands for.
func lineOf(shown string) *regexp.Regexp {
	parts := strings.Split(constant(shown), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
}
