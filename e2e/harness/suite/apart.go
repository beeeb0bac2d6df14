package suite

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/timings"
)

// partEnv makes the test's binary run a part of its specs: its value names the part.
const partEnv = "AUTOHEALER_SUITE_PART"

// RunApart runs a suite's specs in several processes at once, each with a control plane of its own: those of each group of files, and
// the rest. A group is what -ginkgo.focus-file takes: a part of the files' names, or several with | between them. A spec is in the
// group of its container's file.
// A part without any of the specs that someone asks for passes at once. Flags that name a file to write hold for each part, so that
// the file has what the part that ended last wrote.
func RunApart(t *testing.T, description string, groups ...string) {
	if config, _ := ginkgo.GinkgoConfiguration(); config.DryRun {
		Run(t, description)
		return
	}
	if os.Getenv(partEnv) != "" {
		go endWithParent()
		Run(t, description)
		return
	}
	// Those of no group: Ginkgo leaves out what either flag says.
	parts := [][]string{{"-ginkgo.skip-file=" + strings.Join(groups, "|")}}
	for _, group := range groups {
		parts = append(parts, []string{"-ginkgo.focus-file=" + group})
	}
	runParts(t, nil, parts)
}

// runParts runs this program once for each part, at once, with its flags.
func runParts(t *testing.T, attributes *syscall.SysProcAttr, parts [][]string) {
	readWhatPartsRead(t)
	// An interrupt reaches the parts as well, which then end their control planes; this process waits until they have.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	limit := "-ginkgo.timeout=1h"
	if deadline, ok := t.Deadline(); ok { // before go test ends all of them, and nobody learns of what
		limit = fmt.Sprintf("-ginkgo.timeout=%s", max(time.Minute, time.Until(deadline)-time.Minute).Round(time.Second))
	}
	outputs := make([]bytes.Buffer, len(parts))
	errs := make([]error, len(parts))
	var running sync.WaitGroup
	for i, flags := range parts {
		running.Go(func() { errs[i] = runPart(t.Context(), t.Name(), append(flags, limit), attributes, &outputs[i]) })
	}
	running.Wait()
	for i := range parts {
		// One after the other: go test -json takes a line for that of the spec that began last.
		fmt.Fprintf(os.Stdout, "%s\n", withoutTheTest(outputs[i].Bytes()))
		if errs[i] != nil {
			t.Errorf("the part %s: %v", strings.Join(parts[i], " "), errs[i])
		}
	}
}

// runPart runs this program once more. Its standard input ends with this process, however that ends.
func runPart(ctx context.Context, test string, flags []string, attributes *syscall.SysProcAttr, output io.Writer) error {
	// What a test has read decides for go test whether its result may be taken from the cache; one file can't have it of all parts.
	args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool { return strings.HasPrefix(arg, "-test.testlogfile=") })
	cmd := exec.CommandContext(ctx, os.Args[0], slices.Concat(args, flags, []string{"-test.run=^" + test + "$"})...)
	cmd.Env = append(os.Environ(), partEnv+"="+strings.Join(flags, " "))
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = output, output, attributes
	alive, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer func() { _ = alive.Close() }()
	return cmd.Run()
}

// readWhatPartsRead: go test takes a result from its cache where the process that it started has read nothing that changed since.
// The process that it started is the parts' parent, and what they run are programs and the variable.
func readWhatPartsRead(t *testing.T) {
	t.Helper()
	timings.OfSuites()
	dir, err := cluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadDir(dir); err != nil {
		t.Fatal(err)
	}
}

// endWithParent ends a part whose parent was killed, as an interrupt would: Ginkgo lets the suite stop what it started.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = syscall.Kill(os.Getpid(), syscall.SIGINT) // which a process may always send itself
}

// withoutTheTest leaves out the lines that tell of the test itself, and not of its specs: go test would take them for the end of all.
func withoutTheTest(output []byte) []byte {
	return bytes.Join(slices.DeleteFunc(bytes.SplitAfter(output, []byte("\n")), func(line []byte) bool {
		text := string(bytes.TrimSpace(bytes.TrimLeft(line, mark)))
		ofTest := (strings.HasPrefix(text, "=== RUN ") || strings.HasPrefix(text, "--- ")) && !strings.Contains(text, "/")
		return ofTest || text == "PASS" || text == "FAIL"
	}), nil)
}
