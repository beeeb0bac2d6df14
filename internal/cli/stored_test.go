package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// factsWith writes the facts of testdata with more of what is stored, and gives the file.
func factsWith(t *testing.T, more string) string {
	t.Helper()
	text, err := os.ReadFile("facts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "facts.yaml")
	if err := os.WriteFile(file, append(text, more...), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// storedPolicy is one more item of a facts file.
func storedPolicy(kind, metadata, spec string) string {
	return "- apiVersion: autohealer.resourcestack.com/v1alpha1\n  kind: " + kind + "\n  metadata: " + metadata + "\n  spec: " + spec + "\n"
}

// kubelet matches 4 of 20 nodes, and the limit is 2. It is written as nobody's Go type writes it.
const kubelet = `{type: KubeletUnhealthy, effect: NoSchedule, taintKey: example.com/kubelet, includeControlPlane: false, nodeSelector: {matchLabels: {}}, conditions: {KubeletUnhealthy: {status: true}}}`

func conditionSet(name, spec string) string {
	return "apiVersion: autohealer.resourcestack.com/v1alpha1\nkind: ConditionSet\nmetadata: {name: " + name + "}\nspec: " + spec + "\n"
}

// TestWhatIsStoredIsJudgedAsAnUpdate: during an incident more nodes match than a limit allows, and what was stored before is
// applied again, unchanged, with everything else of its application.
func TestWhatIsStoredIsJudgedAsAnUpdate(t *testing.T) {
	t.Chdir("testdata")
	facts := factsWith(t, storedPolicy("ConditionSet", "{name: kubelet, uid: k2, generation: 1}", kubelet))
	relabelled := strings.Replace(conditionSet("kubelet", kubelet), "kubelet}", "kubelet, labels: {team: nodes}}", 1)
	for name, c := range map[string]struct {
		args, manifest string
		code           int
		want           string
	}{
		"unchanged":                {"validate --facts " + facts, conditionSet("kubelet", kubelet), 0, "1 object checked: 0 refused, 0 with warnings"},
		"an unrelated edit":        {"validate --facts " + facts, relabelled, 0, "1 object checked: 0 refused, 0 with warnings"},
		"under another name":       {"validate --facts " + facts, conditionSet("new", kubelet), 1, "error: conditionset/would-exceed-limit: "},
		"given another old object": {"validate --old stored --facts " + facts, conditionSet("kubelet", kubelet), 1, "error: conditionset/would-exceed-limit: "},
		"planned":                  {"plan --facts " + facts, conditionSet("kubelet", kubelet), 1, "held back   2 by limits"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := run(t, c.manifest, append(strings.Fields(c.args), "-f", "-")...)
			if code != c.code || !strings.Contains(stdout, c.want) {
				t.Errorf("exit code %d instead of %d; want %q in\n%s%s", code, c.code, c.want, stdout, stderr)
			}
		})
	}
}

// TestAStoredGuardrailIsJudgedAsAnUpdate: of a stored Guardrail only what is new in it is told.
func TestAStoredGuardrailIsJudgedAsAnUpdate(t *testing.T) {
	t.Chdir("testdata")
	const spec = "{rules: [{name: owned, kinds: [ConditionSet], expression: \"'owner' in object.metadata.?labels.orValue({})\", severity: Deny}]}"
	manifest := "apiVersion: autohealer.resourcestack.com/v1alpha1\nkind: Guardrail\nmetadata: {name: platform}\nspec: " + spec + "\n"
	facts := factsWith(t, storedPolicy("Guardrail", `{name: platform, uid: g1, creationTimestamp: "2026-11-01T00:00:00Z"}`, spec))
	if _, stdout, _ := run(t, manifest, "validate", "-f", "-", "--facts", "facts.yaml"); !strings.Contains(stdout, "guardrail/refuses-stored") {
		t.Errorf("a new one isn't warned of:\n%s", stdout)
	}
	if code, stdout, stderr := run(t, manifest, "validate", "-f", "-", "--facts", facts); code != 0 || !strings.Contains(stdout, "0 refused, 0 with warnings") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

// TestARuleOverWhoAsks can't be asked here, which every format says in the same words, and refuses nothing.
func TestARuleOverWhoAsks(t *testing.T) {
	t.Chdir("testdata")
	facts := factsWith(t, storedPolicy("Guardrail", `{name: org, uid: g1, creationTimestamp: "2026-11-01T00:00:00Z"}`, "{rules: [{name: by-operators, kinds: [ConditionSet],"+
		" expression: \"request.userInfo.groups.exists(g, g == 'operators')\"}, {name: entitled, kinds: [ConditionSet], expression: \"authorizer.group('').resource('nodes').check('patch').allowed()\"}]}"))
	for args, want := range map[string]string{
		"validate":          "Skipped(request) for 1 object: org/by-operators, org/entitled\n1 object checked: 0 refused, 0 with warnings; 2 rules skipped for want of a request that says who asks (kubectl apply --dry-run=server); ",
		"validate -o junit": "Skipped(request): org/by-operators, org/entitled",
		"validate -o sarif": "Skipped(request): org/by-operators",
		"validate -o json":  `"missing": "request"`,
		"plan":              "  Skipped(request): org/by-operators: judges who asks, and nobody does here (kubectl apply --dry-run=server)\n",
	} {
		code, stdout, stderr := run(t, "", append(strings.Fields(args), "-f", "manifests/plan-none.yaml", "--facts", facts)...)
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%s: exit code %d, want %q in\n%s%s", args, code, want, stdout, stderr)
		}
	}
}

// TestWhereAutohealerIs: elsewhere policies are tenants', and may not reach into other namespaces.
func TestWhereAutohealerIs(t *testing.T) {
	t.Chdir("testdata")
	const platform = "apiVersion: autohealer.resourcestack.com/v1alpha1\nkind: WeederConfig\nmetadata: {name: all, namespace: healing}\n" +
		"spec: {namespaceSelector: {matchLabels: {team: shop}}, servicesAndDependantSelectors: {queue: {podSelectors: [{matchLabels: {app: mail}}]}}}\n"
	text, err := os.ReadFile("facts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	facts := filepath.Join(t.TempDir(), "facts.yaml")
	elsewhere := strings.Replace(string(text), "annotations:\n", "annotations:\n    facts.autohealer.resourcestack.com/autohealer-namespace: healing\n", 1)
	if err := os.WriteFile(facts, []byte(elsewhere), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]int{
		"": 1, "--autohealer-namespace healing": 0, "--facts facts.yaml": 1, "--facts " + facts: 0, "--autohealer-namespace elsewhere --facts " + facts: 1,
	} {
		code, stdout, stderr := run(t, platform, append([]string{"validate", "-f", "-"}, strings.Fields(args)...)...)
		if code != want || want == 1 && !strings.Contains(stdout, "error: weederconfig/namespace-selector") {
			t.Errorf("%s: exit code %d, want %d\n%s%s", args, code, want, stdout, stderr)
		}
	}
}
