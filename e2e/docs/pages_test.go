package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// TestWhatIsNotFollowedHereIsFollowedElsewhere: a page's reason for a test to skip it names what there is.
func TestWhatIsNotFollowedHereIsFollowedElsewhere(t *testing.T) {
	g := NewWithT(t)
	all, err := pages()
	g.Expect(err).NotTo(HaveOccurred())
	place := regexp.MustCompile(`\b(bench|config|e2e|hack|internal|pkg)/[\w./-]*\w`)
	drills, err := filepath.Glob(filepath.Join(root, "e2e", "operations", "runbooks", "*_test.go"))
	g.Expect(err).NotTo(HaveOccurred())
	var drilled strings.Builder
	for _, file := range drills {
		text, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		drilled.Write(text)
	}
	for _, p := range all {
		reasons := []string{p.Skipped}
		for _, b := range p.Blocks {
			reasons = append(reasons, b.Skipped)
			if runbook, is := strings.CutPrefix(p.Name, runbooks); is && b.Commands != nil && !strings.Contains(drilled.String(), `"`+runbook+`"`) {
				t.Errorf("%s has commands, and e2e/operations/runbooks doesn't follow it", p.Name)
			}
			if strings.HasPrefix(p.Name, runbooks) && b.Script != "" {
				t.Errorf("%s:%d has a script, which e2e/operations/runbooks doesn't run", p.Name, b.Line)
			}
		}
		for _, name := range place.FindAllString(strings.Join(reasons, " "), -1) {
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("%s: who is to follow it isn't there: %v", p.Name, err)
			}
		}
	}
}
