package arch

import (
	"errors"
	"fmt"
	"go/build"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

const module = "github.com/resourcestack/autohealer/"

// room is a directory with all below it, and what its packages may import directly.
type room struct {
	dir string
	// ours are the directories of this module that it may import, with all below them. Its own are allowed except in
	// rooms whose packages stay apart.
	ours []string
	// theirs are the prefixes of other modules' packages; nil allows all.
	theirs []string
	// std are packages of the standard library that it may not import.
	notStd []string
	// apart: its packages don't import each other; only its top package imports them all.
	apart bool
}

var machinery = []string{"k8s.io/api/", "k8s.io/apimachinery/"}

// rooms is the direction of data: apply → webhooks → (stored) → controllers → domain → actuate → cluster.
var rooms = []room{
	{dir: "apis", theirs: machinery},
	{dir: "crds", theirs: []string{}},
	// Envoy's types are what OutlierPolicies are translated to.
	{
		dir: "internal/domain/outlier", ours: []string{"apis", "internal/domain"}, notStd: []string{"context", "net/http", "os"},
		theirs: append([]string{"github.com/envoyproxy/go-control-plane/envoy/", "google.golang.org/protobuf/"}, machinery...),
	},
	{dir: "internal/domain/celerrors", ours: []string{}, theirs: []string{"github.com/google/cel-go/common/operators"}},
	// A registration's expressions are part of what it says, and so is what the types of fields tell of them.
	{dir: "internal/domain/registration", ours: []string{"apis", "internal/domain"}, theirs: append([]string{"github.com/google/cel-go/", "k8s.io/apiserver/pkg/cel", "k8s.io/kube-openapi/pkg/validation/spec"}, machinery...), notStd: []string{"context", "net/http", "os"}},
	// klog for the logger that k8s.io/api's toleration check asks for; kstatus computes from an object alone.
	{dir: "internal/domain", ours: []string{"apis"}, theirs: append([]string{"k8s.io/klog/v2", "github.com/fluxcd/cli-utils/pkg/kstatus/status"}, machinery...), notStd: []string{"context", "net/http", "os"}},
	{dir: "internal/shoots", ours: []string{"internal/kubeconfig"}},
	{dir: "internal/kubeconfig", ours: []string{}},
	{dir: "internal/probing", ours: []string{"internal/domain", "internal/kubeconfig", "internal/metric"}},
	{dir: "internal/checking", ours: []string{"apis", "internal/domain", "internal/kube", "internal/kubeconfig", "internal/shoots"}},
	{dir: "internal/kinds", ours: []string{"apis", "internal/domain"}, notStd: []string{"context", "net/http", "os"}},
	{dir: "internal/guard", ours: []string{"apis", "crds", "internal/domain", "internal/kinds", "internal/kubeconfig"}},
	{dir: "internal/kube", ours: []string{"apis", "internal/domain", "internal/guard", "internal/kubeconfig", "internal/retry"}},
	{dir: "internal/policy", ours: []string{"apis", "internal/domain", "internal/guard", "internal/kinds", "internal/kube", "internal/metric"}},
	{dir: "internal/actuate", ours: []string{"apis", "internal/domain", "internal/guard", "internal/kube", "internal/xds"}},
	{dir: "internal/certs", ours: []string{"internal/metric"}},
	{dir: "internal/metric", ours: []string{}},
	{dir: "internal/retry", ours: []string{}},
	// What extension authors import brings no rules, and none of our kinds.
	{dir: "pkg", ours: []string{"internal/domain/health", "internal/domain/limit", "internal/kubeconfig", "internal/retry", "internal/shoots"}},
	{dir: "internal/installation", ours: []string{"apis", "internal/kube", "internal/metric"}},
	// It serves messages and knows nothing of what they stand for.
	{dir: "internal/xds", ours: []string{"internal/metric"}},
	// What people take back by hand is written as the manager would.
	{dir: "internal/cli/undo", ours: []string{"apis", "internal/actuate", "internal/cli/display", "internal/domain"}},
	// The plugin reads and tells; what it asks is what webhook and controllers ask.
	{dir: "internal/cli", ours: []string{"apis", "config", "crds", "internal/domain", "internal/guard", "internal/kinds", "internal/kube", "internal/kubeconfig", "internal/version"}},
	{dir: "webhooks", ours: []string{"apis", "internal/guard", "internal/kinds", "internal/metric"}},
	{dir: "controllers", ours: []string{"apis", "internal/actuate", "internal/checking", "internal/domain", "internal/guard", "internal/kinds", "internal/kube", "internal/kubeconfig", "internal/metric", "internal/policy", "internal/probing", "internal/retry"}, apart: true},
}

// writers make clients beside controller-runtime's, which is all that most of the product has. Programs may have them, and the
// room that changes foreign objects.
var (
	writers = []string{"k8s.io/client-go/kubernetes", "k8s.io/client-go/dynamic", "k8s.io/client-go/metadata"}
	writing = []string{"cmd", "internal/manager", "internal/rights", "e2e", "hack", "bench", "internal/actuate"}
)

func TestImportsGoOneWay(t *testing.T) {
	for _, violation := range importViolations(t, root) {
		t.Error(violation)
	}
}

// brokenTree gives the directory of a tree that breaks every rule.
func brokenTree(t *testing.T) string {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "tree.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := txtar.FS(archive)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestForbiddenImportsAreFound(t *testing.T) {
	got := importViolations(t, brokenTree(t))
	for _, want := range []string{
		"apis/v1 may not import internal/kube",
		"apis/v1 may not import sigs.k8s.io/controller-runtime",
		"controllers/a may not import controllers/b",
		"controllers/b may not import webhooks",
		"internal/domain/x may not import context",
		"internal/domain/x may not import internal/guard",
		"internal/kube may not import cmd",
		"internal/kube may not import k8s.io/client-go/kubernetes",
		"webhooks may not import controllers/a",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("not found: %s", want)
		}
	}
	if len(got) != 9 {
		t.Errorf("found %d violations instead of 9: %s", len(got), strings.Join(got, "; "))
	}
}

// importViolations lists what packages under root import against the table, sorted.
func importViolations(t *testing.T, root string) []string {
	t.Helper()
	var violations []string
	for _, dir := range packageDirs(t, root) {
		pkg, err := build.ImportDir(filepath.Join(root, dir), 0)
		if _, none := errors.AsType[*build.NoGoError](err); none {
			continue
		}
		if err != nil {
			t.Fatalf("read package %s: %v", dir, err)
		}
		for _, imported := range pkg.Imports {
			if !mayImport(dir, imported) {
				violations = append(violations, fmt.Sprintf("%s may not import %s", dir, strings.TrimPrefix(imported, module)))
			}
		}
	}
	slices.Sort(violations)
	return violations
}

func mayImport(dir, imported string) bool {
	if imported == module+"cmd" || strings.HasPrefix(imported, module+"cmd/") {
		return below(dir, "cmd")
	}
	if slices.ContainsFunc(writers, func(w string) bool { return imported == w || strings.HasPrefix(imported, w+"/typed/") }) &&
		!slices.ContainsFunc(writing, func(p string) bool { return below(dir, p) }) {
		return false
	}
	if strings.HasPrefix(imported, module+"e2e/") && slices.ContainsFunc(product, func(p string) bool { return below(dir, p) }) {
		return false // among them timings that are no cluster's
	}
	i := slices.IndexFunc(rooms, func(r room) bool { return below(dir, r.dir) })
	if i < 0 {
		return true
	}
	return rooms[i].mayImport(dir, imported)
}

func (r room) mayImport(dir, imported string) bool {
	if ours, ok := strings.CutPrefix(imported, module); ok {
		if below(ours, r.dir) {
			return !r.apart || dir == r.dir || below(ours, kindDir(dir))
		}
		return slices.ContainsFunc(r.ours, func(allowed string) bool { return below(ours, allowed) })
	}
	if !strings.Contains(strings.SplitN(imported, "/", 2)[0], ".") { // standard library
		return !slices.Contains(r.notStd, imported)
	}
	return r.theirs == nil || slices.ContainsFunc(r.theirs, func(prefix string) bool { return strings.HasPrefix(imported, prefix) })
}

// kindDir is the first two elements: controllers/conditionset.
func kindDir(dir string) string {
	elements := strings.Split(dir, "/")
	return path.Join(elements[:min(2, len(elements))]...)
}

func below(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }

// root of the repository, seen from here.
var root = filepath.Join("..", "..")

// packageDirs are the directories under root that may hold packages of this module, with slashes.
func packageDirs(t *testing.T, root string) []string {
	t.Helper()
	var dirs []string
	err := filepath.WalkDir(root, func(p string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.IsDir() {
			return nil
		}
		relative, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if relative != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || relative == "bin" || otherModule(p)) {
			return filepath.SkipDir
		}
		dirs = append(dirs, filepath.ToSlash(relative))
		return nil
	})
	if err != nil {
		t.Fatalf("walk %s: %v", root, err)
	}
	return dirs
}

func otherModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}
