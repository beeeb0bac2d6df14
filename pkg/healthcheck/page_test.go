package healthcheck_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/resourcestack/autohealer/e2e/page"
)

// TestThePagesCodeIsThatOfTheExamples: what the page shows compiles, and runs as far as the examples do.
func TestThePagesCodeIsThatOfTheExamples(t *testing.T) {
	p, err := page.Read("../..", "docs/how-to/check-dependents-in-go.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, b := range p.Blocks {
		if b.Code == "" {
			continue
		}
		blocks++
		rest := plain(string(examples))
		for part := range strings.SplitSeq(plain(b.Code), "…\n") { // what is left out
			_, after, found := strings.Cut(rest, part)
			if !found {
				t.Errorf("line %d: example_test.go hasn't got this, or not in this order:\n%s", b.Line, part)
			}
			rest = after
		}
	}
	if blocks != 2 {
		t.Errorf("found %d blocks of code, want 2", blocks)
	}
}

// plain is code without indentation, empty lines and comments on lines of their own, of which the examples have more.
func plain(code string) string {
	return regexp.MustCompile(`(?m)^\s*(//.*)?\n|^\s+`).ReplaceAllString(code, "")
}
