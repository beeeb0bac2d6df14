package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

var fuzzes = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// TestEveryFuzzTestIsListed: who looks for more finds them all on one page, with the command.
func TestEveryFuzzTestIsListed(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "development", "testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	var there, listed []string
	for _, found := range regexp.MustCompile(`go test \./(\S+) -run '\^\$' -fuzz (\w+) `).FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, found[1]+" "+found[2])
	}
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
			for _, found := range fuzzes.FindAllSubmatch(text, -1) {
				there = append(there, dir+" "+string(found[1]))
			}
		}
	}
	slices.Sort(there)
	slices.Sort(listed)
	if !slices.Equal(there, listed) {
		t.Errorf("there are\n%q\nlisted are\n%q", there, listed)
	}
}
