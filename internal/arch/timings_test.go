package arch

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What users run waits for production's durations: only tests divide them.
func TestNothingThatShipsDividesTimings(t *testing.T) {
	for _, name := range dividing(t, append(slices.Clone(product), "bench", "hack")) {
		t.Errorf("%s: timing.Divided is for programs under e2e", name)
	}
	if len(dividing(t, []string{"e2e/timings"})) == 0 {
		t.Error("e2e/timings divides nothing any more, so this test looks for the wrong name")
	}
}

func dividing(t *testing.T, dirs []string) (files []string) {
	t.Helper()
	eachFile(t, root, dirs, func(name string, file *ast.File, _ *token.FileSet) {
		ast.Inspect(file, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok && selector.Sel.Name == "Divided" {
				files = append(files, name)
			}
			return true
		})
	})
	return files
}

// TestSuitesThatAreShortenedRunAtFullLengthToo: `make test-full` has a list of them.
func TestSuitesThatAreShortenedRunAtFullLengthToo(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^SHORTENED := (.*)$`).FindSubmatch(text)
	if line == nil {
		t.Fatal("the Makefile has no SHORTENED")
	}
	listed := strings.Fields(string(line[1]))
	matches := func(pattern, dir string) bool {
		parent, all := strings.CutSuffix(strings.TrimPrefix(pattern, "./"), "/...")
		return dir == parent || all && below(dir, parent)
	}
	shortened := shortenedSuites(t)
	for _, dir := range shortened {
		if !slices.ContainsFunc(listed, func(pattern string) bool { return matches(pattern, dir) }) {
			t.Errorf("%s has short timings and isn't in SHORTENED of the Makefile", dir)
		}
	}
	for _, pattern := range listed {
		if !slices.ContainsFunc(shortened, func(dir string) bool { return matches(pattern, dir) }) {
			t.Errorf("SHORTENED of the Makefile has %s, where no suite has short timings", pattern)
		}
	}
}

// shortenedSuites are those that start a manager with the short timings, by themselves or by what suites share.
func shortenedSuites(t *testing.T) (dirs []string) {
	t.Helper()
	starts := regexp.MustCompile(`timings\.OfSuites\(\)|fixture\.Start\(`)
	for _, dir := range packageDirs(t, root) {
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if below(dir, "e2e") && starts.Match(text) {
				dirs = append(dirs, dir)
				break
			}
		}
	}
	return dirs
}
