package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/kubebuilder/v4/pkg/model/resource"
)

// names of a kind, as templates have them: for Foo, foo, foos and Foos.
type names struct {
	Kind, Lower, Plural, Kinds string
	// Scope is Cluster or Namespaced, and Namespaced says which.
	Scope      string
	Namespaced bool
	// Target is the kind of Kubernetes' own that the scaffold selects, Targets its plural, Package and Import where its type is. It is one
	// that the manager's cache has with its labels.
	Target, Targets, Package, Import string
	Repo                             string
}

const usage = "make scaffold KIND=Foo SCOPE=Cluster|Namespaced"

var aKind = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{1,39}$`)

// reserved are names of packages or folders that Go doesn't build, or that not everybody may import, and the file that lists the
// kinds' policies.
var reserved = []string{"documentation", "internal", "kustomization", "main", "testdata", "vendor"}

func namesOf(kind, scope, repo string) (names, error) {
	n := names{Kind: kind, Lower: strings.ToLower(kind), Scope: scope, Namespaced: scope == "Namespaced", Target: "Node", Targets: "Nodes", Package: "corev1", Import: "core/v1", Repo: repo}
	if n.Namespaced {
		n.Target, n.Targets, n.Package, n.Import = "DaemonSet", "DaemonSets", "appsv1", "apps/v1"
	}
	switch {
	case kind == "" || scope == "":
		return n, errors.New("write " + usage)
	case !aKind.MatchString(kind):
		return n, fmt.Errorf("KIND=%s is no name of a kind: it begins with a capital letter, and has 2 to 40 letters and digits", kind)
	case scope != "Cluster" && scope != "Namespaced":
		return n, fmt.Errorf("SCOPE=%s is neither Cluster nor Namespaced", scope)
	case strings.HasSuffix(kind, "List"):
		return n, fmt.Errorf("KIND=%s would be taken for the list of another kind", kind)
	case token.IsKeyword(n.Lower) || types.Universe.Lookup(n.Lower) != nil || slices.Contains(reserved, n.Lower):
		return n, fmt.Errorf("KIND=%s would have packages and files of the name %s, which means something else to Go or to Kustomize", kind, n.Lower)
	}
	// The registry and controller-gen each derive it, and must agree.
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	if n.Plural = plural.Resource; n.Plural != resource.RegularPlural(kind) {
		return n, fmt.Errorf("KIND=%s: its plural is irregular, %s or %s; choose a name with a regular one", kind, n.Plural, resource.RegularPlural(kind))
	}
	same := 0
	for same < len(n.Lower) && same < len(n.Plural) && n.Lower[same] == n.Plural[same] {
		same++
	}
	n.Kinds = kind[:same] + n.Plural[same:]
	return n, nil
}

// declared are those of the types that the kind needs that the API's package has already, with where.
func (n names) declared(apis string) (found []string, err error) {
	files, err := filepath.Glob(filepath.Join(apis, "*.go"))
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	for _, name := range files {
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("read the API's types: %w", err)
		}
		for _, decl := range file.Decls {
			found = append(found, n.taken(set, decl)...)
		}
	}
	return found, nil
}

func (n names) taken(set *token.FileSet, decl ast.Decl) (found []string) {
	general, ok := decl.(*ast.GenDecl)
	if !ok {
		return nil
	}
	for _, spec := range general.Specs {
		var all []*ast.Ident
		switch s := spec.(type) {
		case *ast.TypeSpec:
			all = []*ast.Ident{s.Name}
		case *ast.ValueSpec:
			all = s.Names
		}
		for _, name := range all {
			if slices.Contains([]string{n.Kind, n.Kind + "Spec", n.Kind + "Status", n.Kind + "List"}, name.Name) {
				at := set.Position(name.Pos())
				found = append(found, fmt.Sprintf("%s (%s:%d)", name.Name, filepath.Base(at.Filename), at.Line))
			}
		}
	}
	return found
}
