package arch

import (
	"io/fs"
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
)

// parts are what each kind must have: files by pattern, at least one of which matches the text where there is one.
// {Kind}, {kind} and {kinds} stand for ConditionSet, conditionset and conditionsets.
var parts = []struct{ what, files, text string }{
	{"types", "apis/v1alpha1/{kind}_types.go", `(?m)^type {Kind} struct`},
	{"a CRD", "crds/autohealer.resourcestack.com_{kinds}.yaml", `(?m)^    kind: {Kind}$`},
	{"a place in the CRDs' kustomization", "crds/Kustomization", `(?m)^- autohealer.resourcestack.com_{kinds}.yaml$`},
	{"an entry in PROJECT", "PROJECT", `(?m)^  kind: {Kind}$`},
	{"a controller", "controllers/{kind}/add.go", `func AddToManager\(`},
	{"a controller in the list", "controllers/add.go", `{kind}\.AddToManager\(`},
	{"rules", "internal/guard/catalog/{kind}.yaml", `(?m)^kind: {Kind}$`},
	{"the portable rules as a policy", "config/policy/{kind}.yaml", `{kinds}`},
	{"a webhook", "config/webhook/configuration/validating.yaml", `\b{kinds}\b`},
	{"the manager's rights", "config/rbac/manager_role.yaml", `\b{kinds}/status\b`},
	{"users' rights", "config/rbac/user_roles.yaml", `\b{kinds}\b`},
	{"a sample, or in the README why there is none", "config/samples/*.*", `(?m)^kind: {Kind}$|^\| {Kind} \| none: `},
	{"a place in the reference", "docs/reference/api.md", `(?m)^#+ {Kind}$`},
	{"a bad and a good object for kubectl autohealer check", "internal/cli/soundness/verdicts.go", `kind: "{Kind}"`},
	{"end-to-end tests", "e2e/*/*_test.go", `\b{Kind}\b|\b{kinds}\b`},
}

func TestEveryKindIsComplete(t *testing.T) {
	for kind, plural := range kinds(t) {
		for _, missing := range missingParts(t, root, kind, plural) {
			t.Errorf("%s lacks %s", kind, missing)
		}
	}
}

func TestMissingPartsAreFound(t *testing.T) {
	missing := missingParts(t, filepath.Join("testdata", "tree"), "Widget", "widgets")
	if len(missing) != len(parts)-1 {
		t.Errorf("testdata has a sample and nothing else, but %d of %d parts are missing: %q", len(missing), len(parts), missing)
	}
	if slices.ContainsFunc(missing, func(m string) bool { return strings.HasPrefix(m, "a sample") }) {
		t.Errorf("the sample wasn't found")
	}
}

func TestEveryDefinitionHasAKind(t *testing.T) {
	known := kinds(t)
	for _, definition := range definitions(t) {
		if known[definition.Spec.Names.Kind] == "" {
			t.Errorf("crds/ defines %s, which the scheme doesn't know", definition.Spec.Names.Kind)
		}
	}
}

// kinds are the scheme's own, with their plurals from the CRDs.
func kinds(t *testing.T) map[string]string {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for kind, goType := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		ours := goType.PkgPath() == reflect.TypeFor[v1alpha1.ConditionSet]().PkgPath()
		if _, isList := reflect.New(goType).Interface().(metav1.ListInterface); ours && !isList {
			found[kind] = strings.ToLower(kind) + "s"
		}
	}
	for _, definition := range definitions(t) {
		if _, ok := found[definition.Spec.Names.Kind]; ok {
			found[definition.Spec.Names.Kind] = definition.Spec.Names.Plural
		}
	}
	if len(found) == 0 {
		t.Fatal("the scheme has no kinds")
	}
	return found
}

func definitions(t *testing.T) []apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	var all []apiextensionsv1.CustomResourceDefinition
	for _, name := range glob(t, root, "crds/*.yaml") {
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(read(t, name), &definition); err != nil {
			t.Fatalf("read %s: %v", name, err)
		}
		all = append(all, definition)
	}
	return all
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
