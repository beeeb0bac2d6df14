package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/jstemmer/go-junit-report/v2/junit"

	"github.com/resourcestack/autohealer/internal/cli/check"
)

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
		word := "warning"
		if f.deny {
			word = "error"
		}
		ids = append(ids, f.rule)
		lines = append(lines, fmt.Sprintf("%s:%d: %s: %s: %s (%s)", r.File, f.line, word, f.rule, printable(f.message), f.docs))
	}
	for _, missing := range wants {
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
