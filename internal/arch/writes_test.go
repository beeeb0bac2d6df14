package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Objects that aren't ours are written by actuators alone, which demand proof that a policy was admitted.
var (
	// mayWrite are the directories and files that write, and to what.
	mayWrite = []string{
		"internal/actuate",               // foreign objects, for admitted policies
		"internal/certs",                 // its own Secret, and the CA bundle of its own webhook
		"internal/installation",          // the mark of the installation on its own webhook's configuration
		"internal/kube/own.go",           // status and finalizers of our own kinds
		"internal/manager/leadership.go", // the Lease of the leader election
		"internal/rights/rights.go",      // TokenReviews, which ask and store nothing
		"internal/cli/breaker",           // the annotation that resets a breaker, for the plugin's user
		"internal/cli/freeze",            // the Guardrail that stops everything, for the plugin's user
		"internal/cli/soundness",         // dry runs, for the plugin's user
		"internal/cli/uninstall",         // what was installed, for the plugin's user; what was done to others' objects is for undo
		"pkg/healthcheck",                // conditions on an extension's own objects, for the program that has the checks in Go
	}
	// notClients are calls that look like a client's and are an actuator's.
	notClients = []string{
		"controllers/conditionset/node_reconciler.go: r.Taints.Apply",
		"controllers/healthcheckregistration/execute.go: a.r.Conditions.Apply",
		"controllers/outlierpolicy/gateways.go: p.Patches.Apply",
		"controllers/outlierpolicy/policies.go: p.Clusters.Apply",
		"controllers/probeconfig/scaling.go: r.Scales.Apply",
		"controllers/weederconfig/pod_reconciler.go: r.Pods.Apply",
		"internal/cli/undo/records.go: hand.Apply",
		"internal/cli/undo/records.go: writer.Apply",
	}
	// product is what runs in a cluster.
	product = []string{"apis", "cmd", "controllers", "internal", "pkg", "webhooks"}
	verbs   = []string{"Apply", "Create", "Delete", "DeleteAllOf", "Patch", "Update", "UpdateStatus"}
)

func TestOnlyActuatorsWrite(t *testing.T) {
	writes := slices.DeleteFunc(clientWrites(t, root), func(w string) bool {
		return slices.ContainsFunc(mayWrite, func(allowed string) bool {
			return below(strings.SplitN(w, ":", 2)[0], allowed)
		})
	})
	for _, write := range writes {
		if !slices.Contains(notClients, write) {
			t.Errorf("%s: writes belong in internal/actuate, where they need an admitted policy", write)
		}
	}
	for _, exempt := range notClients {
		if !slices.Contains(writes, exempt) {
			t.Errorf("%s is exempt and no longer there", exempt)
		}
	}
}

func TestWritesAreFound(t *testing.T) {
	got := clientWrites(t, brokenTree(t))
	want := []string{
		"controllers/a/a.go: c.Status().Update",
		"controllers/a/a.go: clients.nodes().Patch",
		"controllers/a/a.go: r.Client.Delete",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q instead of %q", got, want)
	}
}

// clientWrites lists calls of a client's writing methods in the product's code: a verb whose first argument is a context.
func clientWrites(t *testing.T, root string) []string {
	t.Helper()
	var writes []string
	eachFile(t, root, product, func(name string, file *ast.File, files *token.FileSet) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 || !isContext(call.Args[0]) {
				return true
			}
			if method, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(verbs, method.Sel.Name) {
				var text strings.Builder
				if err := printer.Fprint(&text, files, method); err != nil {
					t.Fatalf("print a call in %s: %v", name, err)
				}
				writes = append(writes, fmt.Sprintf("%s: %s", name, text.String()))
			}
			return true
		})
	})
	slices.Sort(writes)
	return writes
}

// isContext goes by the name: a context is called ctx, or made on the spot.
func isContext(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return strings.HasSuffix(strings.ToLower(e.Name), "ctx")
	case *ast.CallExpr:
		method, ok := e.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		pkg, ok := method.X.(*ast.Ident)
		return ok && pkg.Name == "context" || method.Sel.Name == "Context"
	}
	return false
}

// eachFile calls see with each Go file under dirs that is no test, by its path from root with slashes.
func eachFile(t *testing.T, root string, dirs []string, see func(name string, file *ast.File, files *token.FileSet)) {
	t.Helper()
	for _, dir := range packageDirs(t, root) {
		if !slices.ContainsFunc(dirs, func(d string) bool { return below(dir, d) }) {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			t.Fatalf("read %s: %v", dir, err)
		}
		for _, entry := range entries {
			if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
				continue
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, filepath.Join(root, dir, entry.Name()), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatalf("parse: %v", err)
			}
			see(path.Join(dir, entry.Name()), file, files)
		}
	}
}
