package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAMisspeltGroup: what can't be applied is told, and what is another program's isn't refused.
func TestAMisspeltGroup(t *testing.T) {
	stranger := strings.Replace(conditionSet("a", kubelet), "resourcestack.com", "resourcestacks.com", 1)
	for args, want := range map[string]int{"validate -f -": 0, "validate -f - --fail-on warning": 1} {
		code, stdout, stderr := run(t, stranger, strings.Fields(args)...)
		const says = `<stdin>:1: ConditionSet a: warning: manifest/kind: apiVersion "autohealer.resourcestacks.com/v1alpha1" is not Autohealer's, so nothing is checked; if this is Autohealer's ConditionSet, write apiVersion: autohealer.resourcestack.com/v1alpha1`
		if code != want || !strings.Contains(stdout, says) {
			t.Errorf("%s: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

// weederOfNoNamespace breaks a rule that may be lifted.
const weederOfNoNamespace = `{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: WeederConfig, metadata: {name: mail},
	spec: {servicesAndDependantSelectors: {queue: {podSelectors: [{matchExpressions: [{key: app, operator: DoesNotExist}]}]}}}}`

// TestAnExceptionNamesTheNamespace where the object will be, also when its manifest leaves that to kubectl.
func TestAnExceptionNamesTheNamespace(t *testing.T) {
	for args, want := range map[string]string{"hash -f - -o exception": "    namespace: default\n", "hash -f - -o exception -n shop": "    namespace: shop\n"} {
		if _, stdout, stderr := run(t, weederOfNoNamespace, strings.Fields(args)...); !strings.Contains(stdout, want) {
			t.Errorf("%s: want %q in\n%s%s", args, want, stdout, stderr)
		}
	}
}

// TestOldObjectsOfTheDefaultNamespace are found whether either manifest names it; one that can't be read is told.
func TestOldObjectsOfTheDefaultNamespace(t *testing.T) {
	dir := t.TempDir()
	named := strings.Replace(weederOfNoNamespace, "name: mail", "name: mail, namespace: default", 1)
	for file, text := range map[string]string{"mail.yaml": named, "broken.yaml": "{"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, stdout, stderr := run(t, weederOfNoNamespace, "validate", "-f", "-", "--old", dir)
	if code != 0 || !strings.Contains(stdout, "0 refused") || !strings.Contains(stderr, "broken.yaml:1: warning: --old: ") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}
