// Command testreport reads what `go test -json` printed and writes what the tests measured (testing.T.Attr with the key
// "measured") and a table of packages: wall time, processor time where testpool told it, tests and skipped tests. Each spec
// of a Ginkgo suite counts as a test.
//
// Usage: testreport FILE
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: testreport FILE")
	}
	file, err := os.Open(args[0])
	if err != nil {
		return fmt.Errorf("read what the tests printed: %w", err)
	}
	defer func() { _ = file.Close() }() // it was read only
	r, err := read(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", args[0], err)
	}
	return r.write(out)
}

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, Test string
	Elapsed               float64 // seconds
	Key, Value            string  // of an attribute
}

type suite struct {
	name           string
	wall           float64 // seconds
	processor      string  // seconds; empty where nobody told
	tests, skipped int
}

type report struct {
	suites   map[string]*suite
	measured []string
}

func read(in io.Reader) (*report, error) {
	r := &report{suites: map[string]*suite{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil { // the rest are compilers' words
			r.add(e)
		}
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (r *report) add(e event) {
	if e.Package == "" {
		return
	}
	s := r.suites[e.Package]
	if s == nil {
		s = &suite{name: e.Package}
		r.suites[e.Package] = s
	}
	switch e.Action {
	case "attr":
		r.attribute(s, e)
	case "skip":
		if e.Test != "" { // else the package has no tests
			s.skipped++
		}
	case "pass", "fail":
		if e.Test != "" {
			s.tests++
		} else {
			s.wall = e.Elapsed
		}
	}
}

func (r *report) attribute(s *suite, e event) {
	switch e.Key {
	case "measured":
		r.measured = append(r.measured, e.Value)
	case "processor":
		s.processor = e.Value
	}
}

// shortest is the wall time in seconds from which a package has a line of its own.
const shortest = 5

// write prints the table, longest first.
func (r *report) write(out io.Writer) error {
	for _, figure := range r.measured {
		fmt.Fprintln(out, "measured:", figure)
	}
	all := make([]*suite, 0, len(r.suites))
	others, count := suite{}, 0
	for _, s := range r.suites {
		if s.wall >= shortest {
			all = append(all, s)
			continue
		}
		count++
		others.wall, others.tests, others.skipped = others.wall+s.wall, others.tests+s.tests, others.skipped+s.skipped
	}
	slices.SortFunc(all, func(a, b *suite) int { return cmp.Compare(b.wall, a.wall) })
	if count > 0 {
		others.name = fmt.Sprintf("%d others", count)
		all = append(all, &others)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "wall s\tprocessor s\ttests\tskipped\t suite\t")
	for _, s := range all {
		fmt.Fprintf(table, "%.0f\t%s\t%d\t%d\t %s\n", s.wall, cmp.Or(s.processor, "-"), s.tests, s.skipped, strings.TrimPrefix(s.name, "github.com/resourcestack/autohealer/"))
	}
	return table.Flush()
}
