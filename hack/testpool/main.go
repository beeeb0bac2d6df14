// Command testpool runs the tests of packages several at a time, and prints what `go test -json` prints of them.
//
// End-to-end suites wait for a control plane of their own, and so do those for processors, which two suites for each keep busy: with
// more, caches and memory may be so slow that specs run out of time. `go test -p` would run several too, but in the order of their names,
// which leaves the longest for the end, and without the processor time of each.
//
// Usage: testpool [-places N] PACKAGES...
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
)

func main() {
	places := flag.Int64("places", 2*int64(runtime.NumCPU()), "how many places the pool has; most suites take one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *places, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testpool:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, places int64, patterns []string) error {
	packages, err := withTests(ctx, patterns)
	if err != nil {
		return err
	}
	if len(packages) == 0 {
		return errors.New("no package has tests") // a pattern that matches nothing must not pass
	}
	compile(ctx, packages)
	return newPool(os.Stdout, places).run(ctx, plan(packages))
}

// compile compiles what the tests need before the first of them runs. Compilers beside suites whose managers have seconds to answer make these
// late. A package that doesn't compile is told of when its turn comes.
func compile(ctx context.Context, packages []string) {
	_ = exec.CommandContext(ctx, "go", append([]string{"list", "-test", "-export"}, packages...)...).Run()
}

// withTests are the packages that the patterns match and that have tests.
func withTests(ctx context.Context, patterns []string) ([]string, error) {
	const format = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-f", format}, patterns...)...)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	return strings.Fields(string(output)), nil
}
