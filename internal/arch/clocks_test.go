package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"testing"
)

// timeless rooms take the time as an argument: what was foretold, what was judged and what is done must agree on it.
var timeless = []string{"apis", "internal/domain", "internal/guard"}

// clocks are the functions of package time that look at one.
var clocks = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

func TestThePureRoomsLookAtNoClock(t *testing.T) {
	for _, look := range clockLooks(t, root) {
		t.Errorf("%s: take the time as an argument, or a clock.Clock", look)
	}
}

func TestLooksAtAClockAreFound(t *testing.T) {
	got := clockLooks(t, brokenTree(t))
	if want := []string{"internal/domain/x/x.go: time.Now", "internal/domain/x/x.go: time.Since"}; !slices.Equal(got, want) {
		t.Errorf("found %q instead of %q", got, want)
	}
}

func clockLooks(t *testing.T, root string) []string {
	t.Helper()
	var looks []string
	eachFile(t, root, timeless, func(name string, file *ast.File, _ *token.FileSet) {
		local := localName(file, "time")
		ast.Inspect(file, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := selector.X.(*ast.Ident); ok && pkg.Name == local && slices.Contains(clocks, selector.Sel.Name) {
				looks = append(looks, fmt.Sprintf("%s: time.%s", name, selector.Sel.Name))
			}
			return true
		})
	})
	slices.Sort(looks)
	return looks
}

// localName is what a file calls a package that it imports.
func localName(file *ast.File, imported string) string {
	for _, spec := range file.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil && p == imported && spec.Name != nil {
			return spec.Name.Name
		}
	}
	return imported
}
