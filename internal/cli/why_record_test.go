package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExplainSaysWhoseATaintIs whose set is gone, and what becomes of it.
func TestExplainSaysWhoseATaintIs(t *testing.T) {
	facts, err := os.ReadFile("testdata/explain/facts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const claim = `"set":"s1","name":"kernel-deadlock"` // in the record of worker-1
	for name, c := range map[string]struct {
		change      []string // old and new texts
		want, never string
	}{
		"a set made anew under its name takes it over": {[]string{claim, `"set":"former","name":"kernel-deadlock"`},
			"  ConditionSet kernel-deadlock: taint example.com/kernel-deadlock:NoSchedule since 2026-11-21T10:00:01Z (119m); matches since 2026-11-21T10:00:00Z (120m)\n" +
				"    KernelDeadlock is True since 2026-11-21T10:00:00Z (120m)\n    Now: correct the record of example.com/kernel-deadlock (PolicyRestored)\n", "does not exist"},
		"one of another name doesn't": {[]string{claim, `"set":"former","name":"former"`},
			"  ConditionSet former, which does not exist: taint example.com/kernel-deadlock:NoSchedule since 2026-11-21T10:00:01Z (119m)\n    It is undone once the set was found missing twice", "nobody can tell"},
		"a key that nobody declares": {
			[]string{claim, `"set":"former","name":"kernel-deadlock"`, `"key":"example.com/kernel-deadlock"`, `"key":"example.com/former"`, "taints: [{key: example.com/kernel-deadlock", "taints: [{key: example.com/former"},
			"To take it off: kubectl autohealer undo node/worker-1", "It is undone once"},
		"a record that can't be read": {[]string{`{"taints":[{"key":"example.com/kernel`, `{"taints":{"key":"example.com/kernel`},
			"To fix it, repair the annotation; or remove the taints, those of them that ConditionSets set, and then the annotation: kubectl taint node worker-1 example.com/kernel-deadlock:NoSchedule-; kubectl annotate node worker-1 autohealer.resourcestack.com/owned-taints-\n", "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "facts.yaml")
			if err := os.WriteFile(file, []byte(strings.NewReplacer(c.change...).Replace(string(facts))), 0o600); err != nil {
				t.Fatal(err)
			}
			_, stdout, stderr := run(t, "", "explain", "node/worker-1", "--facts", file)
			if !strings.Contains(stdout, c.want) || strings.Contains(stdout, c.never) {
				t.Errorf("want %q and never %q, got\n%s%s", c.want, c.never, stdout, stderr)
			}
		})
	}
}
