package arch

import (
	"go/ast"
	"go/token"
	"slices"
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
