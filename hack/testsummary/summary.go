package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64 // seconds
	Output  string
	// Key and Value of what a test tells by testing.T.Attr.
	Key, Value string
	// ImportPath instead of Package names a package whose build says or does something.
	ImportPath string
}

// measured is the key under which a test tells a figure that is to be seen though the test passed.
const measured = "measured"

// slow tests, in seconds, are shown when they end: the only progress within a package.
const slow = 5

type summary struct {
	out            io.Writer
	output         map[string][]string // by package and test, until it ends
	passed, failed int
	skipped        []string
	measured       []string
	packages       int
	failures       []string // what failed tests said, in short
	failedPackages []string
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, output: map[string][]string{}}
}

// read takes lines that aren't JSON, such as those of a failed build in an old toolchain, for output to show.
func (s *summary) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			s.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read test output: %w", err)
		}
	}
}

func (s *summary) line(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil {
		fmt.Fprint(s.out, line)
		return
	}
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		s.output[key] = append(s.output[key], e.Output)
	case "attr":
		if e.Key == measured {
			s.measured = append(s.measured, e.Value)
		}
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "pass", "fail", "skip":
		s.ended(e, s.output[key])
		delete(s.output, key)
	}
}

func (s *summary) ended(e event, output []string) {
	if e.Test == "" {
		s.packageEnded(e, output)
		return
	}
	switch e.Action {
	case "pass":
		s.passed++
		if e.Elapsed >= slow {
			fmt.Fprintf(s.out, "     %6.1fs %s %s\n", e.Elapsed, e.Package, e.Test)
		}
	case "fail":
		s.failed++
		s.failures = append(s.failures, fmt.Sprintf("failed:  %s %s\n%s", e.Package, e.Test, gist(output)))
		fmt.Fprintf(s.out, "\n%s %s\n%s\n", e.Package, e.Test, strings.Join(output, ""))
	case "skip":
		s.skipped = append(s.skipped, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(output)))
	}
	s.countSpecs(e, output)
}

// reason is what the test said when it skipped.
func reason(output []string) string {
	var said []string
	for _, line := range output {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			said = append(said, line)
		}
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

func (s *summary) packageEnded(e event, output []string) {
	if e.Action == "skip" { // no test files
		return
	}
	s.packages++
	mark := "ok  "
	if e.Action == "fail" {
		mark = "FAIL"
		s.failedPackages = append(s.failedPackages, e.Package)
		fmt.Fprint(s.out, strings.Join(output, ""))
	}
	fmt.Fprintf(s.out, "%s %6.1fs %s\n", mark, e.Elapsed, e.Package)
}

// specs is Ginkgo's own count, without its colours: one Go test may hold many.
var (
	specs   = regexp.MustCompile(`(\d+) Passed \| \d+ Failed \| (\d+) Pending \| (\d+) Skipped`)
	colours = regexp.MustCompile("\x1b\\[[0-9;]*m")
)

func (s *summary) countSpecs(e event, output []string) {
	match := specs.FindStringSubmatch(colours.ReplaceAllString(strings.Join(output, ""), ""))
	if match == nil {
		return
	}
	passed, _ := strconv.Atoi(match[1]) // the pattern has digits only
	s.passed += passed
	pending, _ := strconv.Atoi(match[2])
	skipped, _ := strconv.Atoi(match[3])
	for range pending + skipped {
		s.skipped = append(s.skipped, fmt.Sprintf("%s %s: a spec that Ginkgo skipped", e.Package, e.Test))
	}
}

// finish prints the totals and says whether all is well. No package at all isn't.
func (s *summary) finish() bool {
	for _, figure := range s.measured {
		fmt.Fprintln(s.out, "measured:", figure)
	}
	for _, skip := range s.skipped {
		fmt.Fprintln(s.out, "skipped:", skip)
	}
	for _, failure := range s.failures {
		fmt.Fprintln(s.out, failure)
	}
	for _, failed := range s.failedPackages {
		fmt.Fprintln(s.out, "failed: ", failed)
	}
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped in %d packages\n", s.passed, s.failed, len(s.skipped), s.packages)
	return len(s.failedPackages) == 0 && s.failed == 0 && s.packages > 0
}
