package main

import (
	"regexp"
	"strings"
)

// A failure in short: the last lines of a test, or of what each of Ginkgo's specs said.
const gistLines = 15

var (
	// failedSpec begins what a spec failed with, after its timeline, and failedWhere ends it.
	failedSpec  = regexp.MustCompile(`^\s+\[(FAILED|TIMEDOUT|PANICKED|INTERRUPTED)\] `)
	failedWhere = regexp.MustCompile(`^\s+In \[.*\] at: `)
	// inTimeline is the same failure's place among what else happened.
	inTimeline = regexp.MustCompile(`^\s+\[[A-Z]+\] in \[`)
)

// gist finds in a failed test's output what it failed with. All of it was shown when the test ended, which may be thousands of
// lines ago.
func gist(output []string) string {
	lines := strings.Split(strings.Trim(colours.ReplaceAllString(strings.Join(output, ""), ""), "\n"), "\n")
	var found []string
	for i := 0; i < len(lines); i++ {
		if !failedSpec.MatchString(lines[i]) || inTimeline.MatchString(lines[i]) {
			continue
		}
		end := i
		for end < len(lines)-1 && !failedWhere.MatchString(lines[end]) {
			end++
		}
		found = append(found, lines[i:min(end, i+gistLines)]...)
		found = append(found, lines[end])
		i = end
	}
	if len(found) == 0 {
		found = lines[max(0, len(lines)-gistLines):]
	}
	return strings.Join(found, "\n")
}
