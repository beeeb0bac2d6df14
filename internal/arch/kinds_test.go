package arch

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// parts are what each kind must have beside its entry in the registry: files by pattern, at least one of which matches the text where
// there is one. {Kind}, {kind} and {kinds} stand for ConditionSet, conditionset and conditionsets.
var parts = []struct{ what, files, text string }{
	{"types", "apis/v1alpha1/{kind}_types.go", `(?m)^type {Kind} struct`},
	{"a CRD", "crds/autohealer.resourcestack.com_{kinds}.yaml", `(?m)^    kind: {Kind}$`},
	{"an entry in PROJECT", "PROJECT", `(?m)^  kind: {Kind}$`},
	{"a controller", "controllers/{kind}/add.go", `func AddToManager\(`},
	{"rules", "internal/guard/catalog/{kind}.yaml", `(?m)^kind: {Kind}$`},
	{"the portable rules as a policy", "config/policy/{kind}.yaml", `{kinds}`},
	{"a sample, or in the README why there is none", "config/samples/*.*", `(?m)^kind: {Kind}$|^\| {Kind} \| none: `},
	{"a place in the reference", "docs/reference/api.md", `(?m)^#+ {Kind}$`},
	{"a page of concepts", "docs/concepts/*.md", `\b{Kind}\b`},
	{"end-to-end tests", "e2e/*/*_test.go", `\b{Kind}\b|\b{kinds}\b`},
}

func TestEveryKindIsComplete(t *testing.T) {
	for _, k := range kinds.All {
		for _, missing := range missingParts(t, root, k.Name(), k.Plural()) {
			t.Errorf("%s lacks %s", k.Name(), missing)
		}
	}
}

func TestMissingPartsAreFound(t *testing.T) {
	missing := missingParts(t, brokenTree(t), "Widget", "widgets")
	if len(missing) != len(parts)-1 {
		t.Errorf("testdata has a sample and nothing else, but %d of %d parts are missing: %q", len(missing), len(parts), missing)
	}
	if slices.ContainsFunc(missing, func(m string) bool { return strings.HasPrefix(m, "a sample") }) {
		t.Errorf("the sample wasn't found")
	}
}

// stated is what the registry, the CRDs and PROJECT must say alike of each kind.
type stated struct {
	plural     string
	namespaced bool
}

func TestSchemeDefinitionsAndProjectHaveTheKindsOfTheRegistry(t *testing.T) {
	registry := map[string]stated{}
	for _, k := range kinds.All {
		registry[k.Name()] = stated{k.Plural(), k.Namespaced}
	}
	if got := definitions(t); !maps.Equal(got, registry) {
		t.Errorf("crds/ has %v, the registry %v", got, registry)
	}
	project, known := projectKinds(t), schemeKinds(t)
	for name, of := range registry {
		if namespaced, there := project[name]; !there || namespaced != of.namespaced {
			t.Errorf("PROJECT has %s: %t, with a namespace: %t; the registry %t", name, there, namespaced, of.namespaced)
		}
		if !known[name] {
			t.Errorf("the scheme has no %s", name)
		}
	}
	if len(project) != len(registry) || len(known) != len(registry) {
		t.Errorf("PROJECT has %v, the scheme %v, the registry %v", project, known, registry)
	}
}

// schemeKinds are the kinds of our own that the scheme knows.
func schemeKinds(t *testing.T) map[string]bool {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for kind, goType := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		ours := goType.PkgPath() == reflect.TypeFor[v1alpha1.ConditionSet]().PkgPath()
		if _, isList := reflect.New(goType).Interface().(metav1.ListInterface); ours && !isList {
			found[kind] = true
		}
	}
	return found
}

// projectKinds says of each kind in PROJECT whether it has a namespace.
func projectKinds(t *testing.T) map[string]bool {
	t.Helper()
	var project struct {
		Resources []struct {
			Kind string
			Path string
			API  struct{ Namespaced bool }
		}
	}
	if err := yaml.Unmarshal(read(t, filepath.Join(root, "PROJECT")), &project); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, r := range project.Resources {
		if r.Path != module+"apis/v1alpha1" {
			t.Errorf("PROJECT has %s in %s", r.Kind, r.Path)
		}
		found[r.Kind] = r.API.Namespaced
	}
	return found
}

func definitions(t *testing.T) map[string]stated {
	t.Helper()
	found := map[string]stated{}
	for _, name := range glob(t, root, "crds/*.yaml") {
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(read(t, name), &definition); err != nil {
			t.Fatalf("read %s: %v", name, err)
		}
		spec := definition.Spec
		found[spec.Names.Kind] = stated{spec.Names.Plural, spec.Scope == apiextensionsv1.NamespaceScoped}
	}
	return found
}

func missingParts(t *testing.T, root, kind, plural string) []string {
	t.Helper()
	names := strings.NewReplacer("{Kind}", kind, "{kind}", strings.ToLower(kind), "{kinds}", plural)
	var missing []string
	for _, part := range parts {
		pattern := names.Replace(part.files)
		text := regexp.MustCompile(names.Replace(part.text))
		if !slices.ContainsFunc(glob(t, root, pattern), func(name string) bool { return text.Match(read(t, name)) }) {
			missing = append(missing, part.what+" ("+pattern+")")
		}
	}
	return missing
}

func glob(t *testing.T, root, pattern string) []string {
	t.Helper()
	found, err := fs.Glob(os.DirFS(root), pattern)
	if err != nil {
		t.Fatalf("glob %s: %v", pattern, err)
	}
	for i := range found {
		found[i] = filepath.Join(root, found[i])
	}
	return found
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
