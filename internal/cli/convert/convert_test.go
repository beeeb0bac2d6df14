package convert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/manifest"
)

func convertText(text string) Result {
	return Convert([]manifest.File{{Name: "f", Text: []byte(text)}}, "ConditionSet")
}

// set is a list with one set of one condition; changes replace its lines.
func set(changes ...string) string {
	text := "type: ConditionSets\nconditionSets:\n- type: KernelDeadlock\n  effect: NoSchedule\n  taintKey: example.com/k\n  conditions:\n  - ConditionType: KernelDeadlock\n    conditionStatus: true\n"
	return strings.NewReplacer(changes...).Replace(text)
}

const planes = "f:2: warning: conditionSets: control-plane nodes are left out now; a set that is to taint them too needs includeControlPlane: true"

func TestConvert(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		objects int
		notes   []string
	}{
		"a set":                   {set(), 1, []string{planes}},
		"a field in another case": {set("ConditionType", "conditionType"), 1, []string{planes}},
		"a list without its type": {set("type: ConditionSets\n", "# nothing\n"), 1, []string{planes}},
		"a condition twice": {
			set("    conditionStatus: true\n", "    conditionStatus: true\n  - conditionType: KernelDeadlock\n    conditionStatus: Unknown\n"), 0,
			[]string{"f:9: error: conditionSets[0].conditions[1]: condition KernelDeadlock is in conditionSets[0].conditions[0] already; a set has each condition once: remove one, or make two sets of them", planes},
		},
		"a key twice":             {set("  effect", "  type: Other\n  effect"), 0, []string{`f:4: error: key "type" is on line 3 already; a map keeps only one of them`}},
		"a field in both cases":   {set("  - C", "  - conditionType: X\n    C"), 0, []string{"f:7: error: conditionSets[0].conditions[0]: ConditionType and conditionType are one field; remove one of them", planes}},
		"an unknown field":        {set("  effect", "  delay: 5m\n  effect"), 1, []string{"f:4: warning: conditionSets[0].delay: has no counterpart, and is left out", planes}},
		"an unknown field deep":   {set("    conditionStatus", "    since: 5m\n    conditionStatus"), 1, []string{"f:8: warning: conditionSets[0].conditions[0].since: has no counterpart, and is left out", planes}},
		"a field without a value": {set("example.com/k", ""), 0, []string{"f:5: error: conditionSets[0].taintKey: must be a string, and not empty", planes}},
		"a missing field":         {set("  effect: NoSchedule\n", ""), 0, []string{"f:3: error: conditionSets[0].effect: must be a string, and not empty", planes}},
		"no condition":            {"conditionSets: [{type: A, effect: B, taintKey: c}]", 0, []string{"f:1: error: conditionSets[0].conditions: must be a list with at least one condition", strings.Replace(planes, "f:2", "f:1", 1)}},
		"a missing status":        {set("    conditionStatus: true\n", ""), 0, []string{"f:7: error: conditionSets[0].conditions[0]: conditionStatus is missing", planes}},
		"a status that is none":   {set(": true", ": 1"), 0, []string{"f:8: error: conditionSets[0].conditions[0].conditionStatus: 1 is none of true, false, Unknown", planes}},
		"a type without letters":  {set("type: KernelDeadlock", "type: \"...\""), 0, []string{`f:3: error: conditionSets[0].type: "..." has nothing that a name can be made of`, planes}},
		"sets that are none":      {"type: ConditionSets\nconditionSets: {}\n", 0, []string{"f:2: error: conditionSets: must be a list with at least one set"}},
		"two sets of one name": {
			set() + "- type: kernel.Deadlock\n  effect: NoSchedule\n  taintKey: example.com/k\n  conditions: [{ConditionType: A, conditionStatus: Unknown}]\n", 2,
			[]string{planes, "f:9: error: would become ConditionSet kernel-deadlock, and so would f:3; kubectl apply would keep only the last of them: give one another type, or convert one alone"},
		},
		"effects of several keys": {
			set() + "- type: B\n  effect: NoExecute\n  taintKey: example.com/b\n  conditions: [{ConditionType: A, conditionStatus: Unknown}]\n", 2,
			[]string{"f:2: warning: conditionSets: of all sets that match a node only the highest effect was applied; ConditionSets do so only among those of one taintKey. For the former write conditionSetPrecedence: Node in a Guardrail", planes},
		},
		"something else":     {"kind: Pod\n", 0, []string{"f:1: warning: is no configuration that can be converted to ConditionSet, and is left out"}},
		"another kind's":     {"servicesAndDependantSelectors: {}\n", 0, []string{"f:1: warning: is no configuration that can be converted to ConditionSet, and is left out; for this one write --to WeederConfig"}},
		"another's in a map": {"apiVersion: v1\nkind: ConfigMap\ndata:\n  a: 'servicesAndDependantSelectors: {}'\n", 0, []string{"f:4: warning: data[a]: is no configuration that can be converted to ConditionSet, and is left out; for this one write --to WeederConfig"}},
		"an empty map":       {"apiVersion: v1\nkind: ConfigMap\n", 0, []string{"f:1: warning: data: is empty, so there is nothing to convert"}},
		"a map of others":    {"apiVersion: v1\nkind: ConfigMap\ndata:\n  a: 'x: {'\n  b: 1\n  c: ok\n", 0, []string{"f:4: warning: data[a]: is no configuration that can be converted to ConditionSet, and is left out", "f:5: error: data[b]: must be a string", "f:6: warning: data[c]: is no configuration that can be converted to ConditionSet, and is left out"}},
		"a map with a typo":  {"apiVersion: v1\nkind: ConfigMap\ndata:\n  a: |\n    conditionSets: {\n", 0, []string{"f:5: error: data[a]: no valid YAML, did not find expected node content: indent what belongs together alike, and close the quotes and brackets above"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := convertText(c.text)
			var notes []string
			failed := false
			for _, n := range r.Notes {
				word := "warning"
				if n.Error {
					word, failed = "error", true
				}
				notes = append(notes, fmt.Sprintf("%s:%d: %s: %s", n.File, n.Line, word, n.Message))
			}
			if diff := cmp.Diff(c.notes, notes); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if len(r.Objects) != c.objects || r.Failed() != failed {
				t.Errorf("%d objects, want %d; failed %v", len(r.Objects), c.objects, r.Failed())
			}
		})
	}
}

func TestKebab(t *testing.T) {
	for camel, want := range map[string]string{
		"KubeletContainerRuntimeUnhealthy": "kubelet-container-runtime-unhealthy", "NTPProblem": "ntp-problem",
		"CorruptDockerOverlay2": "corrupt-docker-overlay2", "a_b..c": "a-b-c", "GPU": "gpu", "XéY": "x-y", "": "", "-": "",
	} {
		if got := kebab(camel); got != want {
			t.Errorf("%q became %q, want %q", camel, got, want)
		}
	}
}

// FuzzConvert: whatever the text, converting ends, and what it gives holds its schema unless values are wrong.
func FuzzConvert(f *testing.F) {
	checker, err := check.New(check.Options{})
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{
		set(), set(": true", ": unknown"), "conditionSets: [1]", "conditionSets: [{conditions: [{}]}]", "type: ConditionSets",
		"apiVersion: v1\nkind: ConfigMap\ndata:\n  a: |\n    " + strings.ReplaceAll(set(), "\n", "\n    "),
		`{"type": "ConditionSets", "conditionSets": [{"type": "A", "effect": "NoExecute", "taintKey": "a/b", "conditions": [{"conditionType": "A", "conditionStatus": "FALSE"}]}]}`,
	} {
		f.Add(byte(0), text)
	}
	for _, text := range []string{
		watchdog, inConfigMap(watchdog), "servicesAndDependantSelectors: []", "servicesAndDependantSelectors: {a: {podSelectors: 1}, b: null}\nwatchDuration: [1]",
		"servicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {a: b}}], also: 1}}\nwatchDuration: 0\nother: {}\n---\nservicesAndDependantSelectors: {etcd: {}}",
	} {
		f.Add(byte(3), text)
	}
	for _, text := range []string{
		prober, oldProber, inConfigMap(prober), gardener, "KubeconfigSecretName: [1]\nprobeInterval: 1\nDEPENDENTRESOURCEINFOS: [{REF: {}, ref: 1, scaleup: {Level: 1}, scaleDown: {}}]",
		"dependentResourceInfos: [1]", "name: A b\nnamespace: 1\n" + prober, "kubeConfigSecretName: again\n" + prober,
		"internalKubeConfigSecretName: a\nexternalKubeConfigSecretName: b\nprobeTimeout: 1\ndependentResourceInfos: [{ref: {}, shouldExist: 1, scaleUp: [], scaleDown: {replicas: x, also: 1}}]",
	} {
		f.Add(byte(2), text)
	}
	for _, text := range []string{
		contour, inConfigMap(contour), example1, "outlierDetection: {interval: [1], disabled: 3, unknown: {}}", "outlierDetection: []",
		"apiVersion: projectcontour.io/v1\nkind: HTTPProxy\nmetadata: {name: a}\nspec: {tcpproxy: {services: [{name: b, port: 1, outlierDetection: {}}, {name: c, port: 2, outlierDetection: {disabled: true}}]}, routes: [{}, 1]}",
	} {
		f.Add(byte(1), text)
	}
	kinds := Kinds()
	f.Fuzz(func(t *testing.T, which byte, text string) {
		kind := kinds[int(which)%len(kinds)]
		r := Convert([]manifest.File{{Name: "f", Text: []byte(text)}}, kind)
		for _, n := range r.Notes {
			if n.Line < 1 || n.Message == "" {
				t.Errorf("a note without a place or a text: %+v", n)
			}
		}
		if r.Failed() {
			return
		}
		seen := map[string]bool{}
		for _, o := range r.Objects {
			written, err := yaml.Marshal(o.Content)
			if err != nil {
				t.Fatal(err)
			}
			again := manifest.Read(manifest.File{Name: "again.yaml", Text: written})
			if len(again) != 1 || len(again[0].Problems) > 0 {
				t.Fatalf("what was written can't be read: %s", written)
			}
			if diff := cmp.Diff(o.Content, again[0].Object); diff != "" {
				t.Errorf("what was written reads otherwise: %s", diff)
			}
			for _, v := range checker.Document(t.Context(), again[0], nil).Violations {
				if strings.Contains(v.Field, ".podSelectors[") || strings.Contains(v.Field, ".ref") { // handed on as they are, and the schema's word on them
					continue
				}
				if v.Rule == check.RuleUnknownField || v.Rule == check.RuleDuplicateKey || v.Rule == check.RuleUndecodable || v.Rule == check.RuleKind || strings.HasPrefix(v.Field, "metadata") {
					t.Errorf("%s: %s\n%s", v.Rule, v.Message, written)
				}
			}
			name := fmt.Sprint(o.Content["metadata"])
			if seen[name] {
				t.Errorf("two objects are named %s", name)
			}
			seen[name] = true
		}
	})
}
