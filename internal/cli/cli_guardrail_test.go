package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestGuardrailsAndExceptions: rules of one's own judge too, and an exception for the printed hash lifts one of them.
func TestGuardrailsAndExceptions(t *testing.T) {
	t.Chdir("testdata")
	const set = "manifests/warned.yaml"
	code, stdout, _ := run(t, "", "validate", "-f", set, "--rules", "guardrails/guardrail.yaml")
	if want := "error: platform/names-its-team: nobody can be asked about kernel-deadlock; add the label team"; code != 1 || !strings.Contains(stdout, want) {
		t.Errorf("exit code %d; want %q in\n%s", code, want, stdout)
	}
	_, exception, _ := run(t, "", "hash", "-f", set, "--rules", "guardrails/guardrail.yaml", "-o", "exception")
	if code, _, stderr := run(t, exception, "validate", "-f", set, "--exceptions", "-"); code != 2 || !strings.Contains(stderr, "spec.reason") {
		t.Errorf("an exception that nobody gave a reason: exit code %d, %s", code, stderr)
	}
	exception = strings.Replace(exception, `reason: ""`, "reason: The team is being renamed.", 1)
	code, stdout, stderr := run(t, exception, "validate", "-f", set, "--rules", "guardrails/guardrail.yaml", "--exceptions", "-")
	if want := "GuardrailException kernel-deadlock lifts this rule until 2026-11-22T12:00:00Z"; code != 0 || !strings.Contains(stdout, want) {
		t.Errorf("exit code %d; want %q in\n%s%s", code, want, stdout, stderr)
	}
	_, hashed, _ := run(t, "", "hash", "-f", set)
	line, _, _ := strings.Cut(hashed, " #")
	other := strings.Replace(exception, line, `specHash: "0000000000000000000000000000000000000000000000000000000000000000"`, 1)
	if code, stdout, _ := run(t, other, "validate", "-f", set, "--rules", "guardrails/guardrail.yaml", "--exceptions", "-"); code != 1 {
		t.Errorf("an exception for another spec: exit code %d\n%s", code, stdout)
	}
}

// TestAnExceptionForANameThatLooksLikeANumber is one that the API server reads.
func TestAnExceptionForANameThatLooksLikeANumber(t *testing.T) {
	const set = `{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: ConditionSet, metadata: {name: "123"},
		spec: {type: A, effect: NoSchedule, taintKey: example.com/a, conditions: {Ready: {status: true}}}}`
	_, exception, _ := run(t, set, "hash", "-f", "-", "-o", "exception")
	exception = strings.Replace(exception, `reason: ""`, "reason: It is a drill.", 1)
	if code, stdout, stderr := run(t, exception, "validate", "-f", "-"); code != 0 || !strings.Contains(stdout, "1 object checked") {
		t.Errorf("exit code %d\n%s%s\n%s", code, stdout, stderr, exception)
	}
}

func TestRulesTest(t *testing.T) {
	t.Chdir("testdata")
	for file, want := range map[string]string{
		"guardrail.yaml": "rules: 1, tests: 2, failed: 0\n",
		"wrong.yaml":     "FAIL platform/always: this never holds: got admit, want deny\nrules: 1, tests: 1, failed: 1\n",
		"broken.yaml":    "undefined field 'efect'",
	} {
		if _, stdout, stderr := run(t, "", "rules", "test", "-f", "guardrails/"+file); !strings.Contains(stdout, want) {
			t.Errorf("%s: want %q in\n%s%s", file, want, stdout, stderr)
		}
	}
	if code, _, stderr := run(t, "", "validate", "-f", "manifests/good.yaml", "--rules", "guardrails/broken.yaml"); code != 2 || !strings.Contains(stderr, "--rules: Guardrail platform, rule always, expression") {
		t.Errorf("a rule that doesn't compile: exit code %d: %s", code, stderr)
	}
}

// TestAGuardrailThatRefusesWhatIsStored is told so when the cluster's facts are there.
func TestAGuardrailThatRefusesWhatIsStored(t *testing.T) {
	t.Chdir("testdata")
	const guardrail = "guardrails/guardrail.yaml"
	if code, stdout, _ := run(t, "", "validate", "-f", guardrail, "--facts", "facts.yaml"); code != 0 || !strings.Contains(stdout, "warning: guardrail/refuses-stored: ") || !strings.Contains(stdout, "kernel") {
		t.Errorf("exit code %d\n%s", code, stdout)
	}
	if _, stdout, _ := run(t, "", "validate", "-f", guardrail); !strings.Contains(stdout, "Skipped(facts) for 1 object: guardrail/loose-count, guardrail/refuses-stored, guardrail/refusals-not-counted\n") {
		t.Errorf("without facts:\n%s", stdout)
	}
}

// TestABrokenRuleOfTheCluster refuses what it is about, as the webhook does; validate goes on.
func TestABrokenRuleOfTheCluster(t *testing.T) {
	t.Chdir("testdata")
	facts := factsWith(t, storedPolicy("Guardrail", "{name: platform}", "{rules: [{name: always, kinds: [ConditionSet], severity: Deny, expression: object.spec.efect == 'x'}]}"))
	if code, stdout, stderr := run(t, "", "validate", "-f", "manifests/warned.yaml", "--facts", facts); code != 1 || !strings.Contains(stdout, "error: platform/always: not checked: ") || !strings.Contains(stdout, " (Guardrail platform)\n") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

const (
	owned = `
---
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: Guardrail
metadata: {name: org}
spec: {rules: [{name: owned, kinds: [ConditionSet], exceptable: true, expression: "'owner' in object.metadata.?labels.orValue({})"}]}
`
	nobodys = `
---
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: ConditionSet
metadata: {name: nobodys}
spec: {type: A, effect: NoSchedule, taintKey: example.com/a, conditions: {KernelDeadlock: {status: true}}}
`
	excused = `
---
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: GuardrailException
metadata: {name: nobodys}
spec: {ruleIDs: [org/owned], targetRef: {kind: ConditionSet, name: nobodys}, specHash: HASH, reason: "The owner is on leave.", expiresAt: "2026-11-22T12:00:00Z"}
`
	broken = `
---
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: Guardrail
metadata: {name: broken}
spec: {rules: [{name: typo, kinds: [ConditionSet], expression: "object.spec.efect == 'NoSchedule'"}]}
`
)

// TestWhatIsAppliedTogetherIsJudgedTogether: Guardrails and exceptions among the files judge the rest of them, wherever they
// stand there.
func TestWhatIsAppliedTogetherIsJudgedTogether(t *testing.T) {
	t.Chdir("testdata")
	_, hashed, _ := run(t, nobodys, "hash", "-f", "-")
	_, hash, _ := strings.Cut(hashed, `"`)
	excused := strings.Replace(excused, "HASH", hash[:64], 1)
	for name, c := range map[string]struct {
		manifest string
		code     int
		want     string
	}{
		"a Guardrail before":        {owned + nobodys, 1, "ConditionSet nobodys: error: org/owned: "},
		"a Guardrail after":         {nobodys + owned, 1, "ConditionSet nobodys: error: org/owned: "},
		"an exception, too":         {nobodys + excused + owned, 0, "GuardrailException nobodys lifts this rule until 2026-11-22T12:00:00Z"},
		"an exception alone":        {nobodys + excused, 0, "GuardrailException nobodys: warning: guardrailexception/unknown-rule: "},
		"one object twice":          {nobodys + nobodys, 0, "ConditionSet nobodys: warning: manifest/duplicate-object: <stdin>:3 has the same object already"},
		"a Guardrail that can't be": {nobodys + broken, 1, "2 objects checked: 1 refused, 0 with warnings"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := run(t, c.manifest, "validate", "-f", "-")
			if code != c.code || !strings.Contains(stdout, c.want) {
				t.Errorf("exit code %d instead of %d; want %q in\n%s%s", code, c.code, c.want, stdout, stderr)
			}
		})
	}
	pause := strings.Replace(owned, "{rules:", "{paused: true, rules:", 1)
	for manifest, c := range map[string]struct {
		code int
		want string
	}{
		nobodys + pause:           {3, "error: org/owned: "},
		pause + excused + nobodys: {0, "would taint nothing: paused by Guardrail org\n"},
		nobodys + broken:          {3, "Guardrail broken: would be refused\n"},
	} {
		if code, stdout, stderr := run(t, manifest, "plan", "-f", "-", "--facts", "facts.yaml"); code != c.code || !strings.Contains(stdout, c.want) {
			t.Errorf("plan: exit code %d instead of %d; want %q in\n%s%s", code, c.code, c.want, stdout, stderr)
		}
	}
}

// TestTheSamples pass as they are, with a warning of the rule that is among them.
func TestTheSamples(t *testing.T) {
	code, stdout, stderr := run(t, "", "validate", "-f", filepath.Join("..", "..", "config", "samples"))
	if code != 0 || !strings.Contains(stdout, "platform/names-its-team") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

// TestWhatATestOfARuleMaySay: the cluster, the rights and who asks; and objects that nobody could store prove nothing.
func TestWhatATestOfARuleMaySay(t *testing.T) {
	const object = "{spec: {type: A, effect: NoSchedule, taintKey: example.com/a, conditions: {KernelDeadlock: {status: true}}}}"
	const (
		who    = "request.userInfo.username == 'jane' || 'operators' in request.userInfo.groups"
		rights = "authorizer.serviceAccount('default', 'healer').group('').resource('pods').namespace('default').check('delete').allowed()"
		limits = "limits.maxTaintedNodes.percent <= 5"
	)
	for name, c := range map[string]struct{ expression, object, says, want string }{
		"as it is":                       {"object.spec.effect == 'NoSchedule'", object, "expect: admit", ""},
		"a misspelt field":               {"object.spec.effect == 'NoSchedule'", strings.Replace(object, "taintKey", "tainKey", 1), "expect: admit", `object couldn't be stored as a ConditionSet: unknown field "spec.tainKey"`},
		"a value that isn't one":         {"object.spec.effect != 'NoExecute'", strings.Replace(object, "NoSchedule", "NoSched", 1), "expect: admit", `object couldn't be stored as a ConditionSet: spec.effect is "NoSched"; write NoExecute`},
		"an old object":                  {"oldObject == null", object, "oldObject: {spec: {}}, expect: deny", "oldObject couldn't be stored as a ConditionSet: spec.conditions is missing; write it"},
		"no nodes":                       {"facts.nodes > 2", object, "expect: deny", ""},
		"three nodes":                    {"facts.nodes > 2", object, "facts: {nodes: 3}, expect: admit", ""},
		"old facts":                      {"facts.ageSeconds < 60", object, "facts: {ageSeconds: 61}, expect: deny", ""},
		"facts that aren't there":        {"facts.nodes > 2", object, "facts: {synced: false}, expect: admit", ""},
		"accounts may everything":        {rights, object, "expect: admit", ""},
		"accounts may nothing":           {rights, object, "accountsMay: false, expect: deny", ""},
		"nobody asks":                    {who, object, "expect: deny", "not checked: the user who asks isn't known"},
		"a user":                         {who, object, "userInfo: {username: jane}, expect: admit", ""},
		"a user of no group":             {who, object, "userInfo: {username: joe}, expect: deny", ""},
		"a user of a group":              {who, object, "userInfo: {username: joe, groups: [operators]}, expect: admit", ""},
		"limits are the Guardrail's own": {limits, object, "expect: admit", ""},
	} {
		t.Run(name, func(t *testing.T) {
			guardrail := `apiVersion: autohealer.resourcestack.com/v1alpha1
kind: Guardrail
metadata: {name: org}
spec:
  limits: {maxTaintedNodes: 5%}
  rules: [{name: r, kinds: [ConditionSet], expression: "` + c.expression + `", tests: [{name: t, object: ` + c.object + ", " + c.says + "}]}]\n"
			code, stdout, stderr := run(t, guardrail, "rules", "test", "-f", "-")
			if passed := c.want == ""; passed != (code == 0) || !strings.Contains(stdout, c.want) {
				t.Errorf("exit code %d; want %q in\n%s%s", code, c.want, stdout, stderr)
			}
		})
	}
}
