package suite

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/format"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// lookEvery is how often specs look, mostly by a request. Oftener, and they would take the processors from those whom they wait for.
const lookEvery = 100 * time.Millisecond

// Run runs a suite's specs as t. By default they wait for harness.Within.
func Run(t *testing.T, description string) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	gomega.SetDefaultEventuallyTimeout(harness.Within)
	gomega.EnforceDefaultTimeoutsWhenUsingContexts()
	gomega.SetDefaultEventuallyPollingInterval(lookEvery)
	gomega.SetDefaultConsistentlyPollingInterval(lookEvery)
	gomega.SetDefaultConsistentlyDuration(time.Second)
	format.MaxLength = 0             // what is cut off may be what differs
	log.SetLogger(ginkgo.GinkgoLogr) // takes the API server's warnings
	// What go test -json reads; the flag's value is its own business, but that it is another one than true.
	if v := flag.Lookup("test.v"); v != nil && v.Value.String() == "test2json" {
		ginkgo.ReportBeforeEach(func(r ginkgo.SpecReport) { tellBegin(t.Name(), r) })
		ginkgo.ReportAfterEach(func(r ginkgo.SpecReport) { tellEnd(t.Name(), r) })
		// What isn't in a spec: a suite that its BeforeSuite skips passes, to Ginkgo, and one whose cleanup fails says so far from the end.
		ginkgo.ReportAfterSuite("setup and cleanup", func(r ginkgo.Report) {
			for _, node := range r.SpecReports {
				if node.LeafNodeType.Is(types.NodeTypesForSuiteLevelNodes) && node.State.Is(types.SpecStateFailureStates|types.SpecStateSkipped) {
					node.LeafNodeText = node.LeafNodeType.String()
					tellBegin(t.Name(), node)
					tellEnd(t.Name(), node)
				}
			}
		})
	}
	ginkgo.RunSpecs(t, description)
	for _, figure := range measured {
		t.Attr("measured", figure)
	}
}

var measured []string

// Measured keeps a figure for the summary of `make test`, and shows it among the specs as well.
func Measured(format string, args ...any) {
	figure := fmt.Sprintf(format, args...)
	measured = append(measured, figure)
	ginkgo.AddReportEntry(figure)
}

// mark is what package testing has before such lines, so that they are found behind output that has no end of line.
const mark = "\x16"

func tellBegin(test string, r ginkgo.SpecReport) {
	if !leftOut(r) {
		fmt.Fprintf(os.Stdout, "%s=== RUN   %s\n", mark, name(test, r))
	}
}

func tellEnd(test string, r ginkgo.SpecReport) {
	if leftOut(r) {
		return
	}
	result := "PASS"
	switch {
	case r.Failed():
		result = "FAIL"
		fmt.Fprintf(os.Stdout, "%s\n%s\n", r.Failure.Location, r.Failure.Message)
		for _, entry := range r.ReportEntries {
			fmt.Fprintf(os.Stdout, "%s: %s\n", entry.Name, entry.StringRepresentation())
		}
	case r.State.Is(types.SpecStateSkipped | types.SpecStatePending):
		result = "SKIP"
		fmt.Fprintln(os.Stdout, strings.TrimSpace(r.State.String()+" "+r.Failure.Message))
	}
	fmt.Fprintf(os.Stdout, "%s--- %s: %s (%.2fs)\n", mark, result, name(test, r), r.RunTime.Seconds())
	fmt.Fprintf(os.Stdout, "%s=== NAME  %s\n", mark, test)
}

// leftOut says that the spec was filtered away, which go test doesn't tell either.
func leftOut(r ginkgo.SpecReport) bool {
	return r.State.Is(types.SpecStateSkipped) && r.Failure.Message == ""
}

// name is that of a subtest: blanks would end it.
func name(test string, r ginkgo.SpecReport) string {
	return test + "/" + strings.ReplaceAll(strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), "/"), " ", "_")
}
