package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// argoCD is the folder of a kind in Argo CD's own layout; _ stands for every kind of the group there.
const argoCD = "argocd/resource_customizations/autohealer.resourcestack.com/_"

// health is what a script says of an object.
type health struct{ Status, Message string }

// judge runs a script as Argo CD runs one of argocd-cm (util/lua/lua.go), with the libraries that it opens and no others.
func judge(t *testing.T, script string, object map[string]any) health {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	l.SetGlobal("obj", asLua(l, object))
	if err := l.DoString(script); err != nil {
		t.Fatal(err)
	}
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script gave %s", l.Get(-1))
	}
	return health{lua.LVAsString(result.RawGetString("status")), lua.LVAsString(result.RawGetString("message"))}
}

// asLua gives a value as Argo CD does.
func asLua(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case bool:
		return lua.LBool(v)
	case float64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case []any:
		list := l.CreateTable(len(v), 0)
		for _, item := range v {
			list.Append(asLua(l, item))
		}
		return list
	case map[string]any:
		table := l.CreateTable(0, len(v))
		for key, item := range v {
			table.RawSetString(key, asLua(l, item))
		}
		return table
	}
	return lua.LNil
}

// What testdata has was read from a cluster; here it is held against the types and the rules of now, else it would stay as it was. Argo CD's own tests read the same files.
func TestWhatArgoCDSaysOfEachState(t *testing.T) {
	script := string(readFile(t, argoCD+"/health.lua"))
	var cases struct {
		Tests []struct {
			HealthStatus health
			InputPath    string
		}
	}
	if err := yaml.UnmarshalStrict(readFile(t, argoCD+"/health_test.yaml"), &cases); err != nil {
		t.Fatal(err)
	}
	used, seen := map[string]bool{}, map[string]bool{}
	for _, c := range cases.Tests {
		t.Run(strings.TrimSuffix(filepath.Base(c.InputPath), ".yaml"), func(t *testing.T) {
			var object map[string]any
			if err := yaml.Unmarshal(readFile(t, filepath.Join(argoCD, c.InputPath)), &object); err != nil {
				t.Fatal(err)
			}
			current(t, filepath.Join(argoCD, c.InputPath))
			if got := judge(t, script, object); got != c.HealthStatus {
				t.Errorf("got  %q\nwant %q", got, c.HealthStatus)
			}
			used[c.InputPath], seen[object["kind"].(string)+" "+c.HealthStatus.Status] = true, true
		})
	}
	for _, file := range must(filepath.Glob(argoCD + "/testdata/*")) {
		if name := "testdata/" + filepath.Base(file); !used[name] {
			t.Errorf("health_test.yaml doesn't have %s", name)
		}
	}
	for state := range seen { // of a kind that is new there is nothing yet
		if kind, _, _ := strings.Cut(state, " "); !seen[kind+" Healthy"] {
			t.Errorf("there is no healthy %s", kind)
		}
	}
}

// current fails for what the API server or the rules wouldn't write today: fields that there aren't, and refusals in other words.
func current(t *testing.T, file string) {
	t.Helper()
	text := readFile(t, file)
	var of metav1.TypeMeta
	if err := yaml.Unmarshal(text, &of); err != nil {
		t.Fatal(err)
	}
	object := kinds.Named(of.Kind).New()
	if err := yaml.UnmarshalStrict(text, object); err != nil {
		t.Error(err)
	}
	accepted := meta.FindStatusCondition(object.GetConditions(), "Accepted")
	if accepted == nil || accepted.Reason != "RuleViolated" {
		return
	}
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, verdict := guard.Admit(t.Context(), g, object); verdict.Allowed || !strings.HasPrefix(accepted.Message, verdict.Message()) { // rules of Guardrails may follow
		t.Errorf("the rules say\n%s\nand the file\n%s", verdict.Message(), accepted.Message)
	}
}

// Scripts that use more than Argo CD opens would pass, and fail there.
func TestTheLibrariesThatArgoCDLacksAreMissing(t *testing.T) {
	if got := judge(t, `return {status = string == nil and math == nil and "Healthy" or "Unknown"}`, nil); got.Status != "Healthy" {
		t.Error("the script has libraries here that it lacks in Argo CD")
	}
}

func TestTheComponentAddsTheHealthOfEveryKindToArgoCD(t *testing.T) {
	dir := t.TempDir()
	component, err := filepath.Abs("argocd")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"argocd-cm.yaml":     "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata: {url: https://argocd.example.org}\n",
		"kustomization.yaml": "namespace: argocd\nresources: [argocd-cm.yaml]\ncomponents: [" + relative(t, component) + "]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var is corev1.ConfigMap
	if err := yaml.UnmarshalStrict(kustomize(t, dir), &is); err != nil {
		t.Fatal(err)
	}
	if is.Namespace != "argocd" || is.Data["url"] != "https://argocd.example.org" || len(is.Data) != 1+len(kinds.All) {
		t.Errorf("namespace %s, data %v", is.Namespace, is.Data)
	}
	for _, kind := range kinds.All {
		if is.Data["resource.customizations.health."+kind.GVK().Group+"_"+kind.Name()] != string(readFile(t, argoCD+"/health.lua")) {
			t.Errorf("argocd-cm lacks the health of %s", kind.Name())
		}
	}
}

// kustomize builds a folder.
func kustomize(t *testing.T, dir string) []byte {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
