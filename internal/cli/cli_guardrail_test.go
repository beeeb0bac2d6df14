package cli

import (
	"os"
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
	text, err := os.ReadFile("facts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	facts := filepath.Join(t.TempDir(), "facts.yaml")
	broken := "guardrails:\n- metadata: {name: platform}\n  spec: {rules: [{name: always, kinds: [ConditionSet], severity: Deny, expression: object.spec.efect == 'x'}]}\n"
	if err := os.WriteFile(facts, append(text, broken...), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := run(t, "", "validate", "-f", "manifests/warned.yaml", "--facts", facts); code != 1 || !strings.Contains(stdout, "error: platform/always: not checked: ") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}
