// Package report writes what a check found, for people and for the programs that read it in continuous integration.
package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jstemmer/go-junit-report/v2/junit"

	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/guard"
)

// Result is what a run found.
type Result struct {
	Reports []check.Report
	// Ignored documents are of other API groups.
	Ignored int
	// Facts says what was known of the cluster, "" when nothing was.
	Facts string
	// Version of this program.
	Version string
	// Rules of the catalogue, for formats that list them.
	Rules []guard.RuleInfo
	// FailOnWarning: a warning fails the run.
	FailOnWarning bool
	// Colors: the output is a terminal that wants them.
	Colors bool
}

// kindAndName is how people name an object.
func kindAndName(r check.Report) string {
	name := r.Name
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	return strings.TrimSpace(r.Kind + " " + name)
}

// findings are an object's violations, and the rules that failed themselves.
func findings(r check.Report) []check.Violation {
	all := slices.Clone(r.Violations)
	for _, s := range r.Skipped {
		if s.Missing == "" {
			all = append(all, check.Violation{Rule: s.Rule, Severity: s.Severity, Message: "not checked: " + s.Reason, Line: r.Line, Docs: s.Docs})
		}
	}
	return all
}

// level is what compilers and code scanning call a severity.
func level(of guard.Severity) string {
	if of == guard.Deny {
		return "error"
	}
	return "warning"
}

// skippedFor are the rules that could not be asked for want of something.
func skippedFor(r check.Report, missing guard.Missing) []string {
	var rules []string
	for _, s := range r.Skipped {
		if s.Missing == missing {
			rules = append(rules, s.Rule)
		}
	}
	return rules
}

// missingKinds are what rules may lack, in the order in which it is shown.
var missingKinds = []guard.Missing{guard.MissingFacts, guard.MissingAuthorizer, guard.MissingRequest}

// skippedLabel is how every format names it: Skipped(facts), Skipped(authorizer), Skipped(request).
func skippedLabel(missing guard.Missing) string { return fmt.Sprintf("Skipped(%s)", missing) }

// MarshalJSON has an entry for each object that was judged.
func (r Result) MarshalJSON() ([]byte, error) {
	list := append([]check.Report{}, r.Reports...)
	for i := range list {
		list[i].Violations, list[i].Skipped = append([]check.Violation{}, list[i].Violations...), append([]guard.Skip{}, list[i].Skipped...) // never null
	}
	return json.Marshal(map[string]any{"objects": list})
}

// GitHub writes workflow commands, which GitHub shows beside the lines of a pull request, and the summary.
func GitHub(w io.Writer, result Result) error {
	out := bufio.NewWriter(w)
	for _, r := range result.Reports {
		for _, f := range findings(r) {
			fmt.Fprintf(out, "::%s file=%s,line=%d,title=%s::%s\n", level(f.Severity), escapeProperty(r.File), f.Line, escapeProperty(f.Rule),
				escapeData(prefix(kindAndName(r))+f.Message+" ("+f.Docs+")"))
		}
	}
	for _, skipped := range skippedTogether(result) {
		fmt.Fprintf(out, "::notice title=%s::%s\n", skipped.label, escapeData(sample.Count(skipped.objects, "object")+": "+skipped.rules))
	}
	_, _ = out.WriteString(summary(result)) // the error is Flush's as well
	return out.Flush()
}

var (
	dataEscapes     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	propertyEscapes = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

func escapeData(text string) string     { return dataEscapes.Replace(text) }
func escapeProperty(text string) string { return propertyEscapes.Replace(text) }

// JUnit writes a test suite a file, with a test case an object.
func JUnit(w io.Writer, result Result) error {
	suites := junit.Testsuites{Name: "kubectl-autohealer validate"}
	for len(result.Reports) > 0 {
		file, n := result.Reports[0].File, 0
		for n < len(result.Reports) && result.Reports[n].File == file {
			n++
		}
		suite := junit.Testsuite{Name: file, File: file, ID: len(suites.Suites), Time: "0"}
		for _, r := range result.Reports[:n] {
			suite.AddTestcase(testcase(r, !r.Allowed || result.FailOnWarning && r.Warns()))
		}
		suites.AddSuite(suite)
		result.Reports = result.Reports[n:]
	}
	if _, err := io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"); err != nil {
		return err
	}
	if err := suites.WriteXML(w); err != nil {
		return fmt.Errorf("write JUnit XML: %w", err)
	}
	return nil
}

func testcase(r check.Report, failed bool) junit.Testcase {
	name := kindAndName(r)
	if name == "" {
		name = "document"
	}
	test := junit.Testcase{Name: fmt.Sprintf("%s (line %d)", name, r.Line), Classname: r.File}
	var lines, ids []string
	for _, f := range findings(r) {
		ids = append(ids, f.Rule)
		lines = append(lines, fmt.Sprintf("%s:%d: %s: %s: %s (%s)", r.File, f.Line, level(f.Severity), f.Rule, Printable(f.Message), f.Docs))
	}
	for _, missing := range missingKinds {
		if skipped := skippedFor(r, missing); len(skipped) > 0 {
			lines = append(lines, skippedLabel(missing)+": "+strings.Join(skipped, ", "))
		}
	}
	text := strings.Join(lines, "\n")
	switch {
	case failed:
		test.Failure = &junit.Result{Message: strings.Join(ids, ", "), Data: text}
	case text != "":
		test.SystemOut = &junit.Output{Data: text}
	}
	return test
}
