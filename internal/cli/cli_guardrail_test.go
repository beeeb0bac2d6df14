package cli

import (
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
	_, hashed, _ := run(t, "", "hash", "-f", set)
	line, _, _ := strings.Cut(hashed, " #")
	exception := strings.Join([]string{
		"apiVersion: autohealer.resourcestack.com/v1alpha1", "kind: GuardrailException", "metadata: {name: for-now}", "spec:",
		"  ruleIDs: [platform/names-its-team]", "  targetRef: {kind: ConditionSet, name: kernel-deadlock}", "  reason: The team is being renamed.",
		"  expiresAt: 2026-11-23T12:00:00Z", "  " + line, "",
	}, "\n")
	code, stdout, stderr := run(t, exception, "validate", "-f", set, "--rules", "guardrails/guardrail.yaml", "--exceptions", "-")
	if want := "GuardrailException for-now lifts this rule until 2026-11-23T12:00:00Z"; code != 0 || !strings.Contains(stdout, want) {
		t.Errorf("exit code %d; want %q in\n%s%s", code, want, stdout, stderr)
	}
	other := strings.Replace(exception, line, `specHash: "0000000000000000000000000000000000000000000000000000000000000000"`, 1)
	if code, stdout, _ := run(t, other, "validate", "-f", set, "--rules", "guardrails/guardrail.yaml", "--exceptions", "-"); code != 1 {
		t.Errorf("an exception for another spec: exit code %d\n%s", code, stdout)
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
	if _, stdout, _ := run(t, "", "validate", "-f", guardrail); !strings.Contains(stdout, "Skipped(facts) for 1 object: guardrail/refuses-stored, guardrail/refusals-not-counted\n") {
		t.Errorf("without facts:\n%s", stdout)
	}
}
