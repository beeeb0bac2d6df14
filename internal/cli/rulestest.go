package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/guard"
)

func (a *App) rulesTest() *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "test [-f FILE]",
		Short: "Run the tests that rules carry",
		Long: `Run the tests that rules carry: those of the built-in rules, or, with -f, those of the rules in Guardrails.

Exit code: 0 all passed; 1 a test failed, or a rule doesn't compile; 2 the command line is wrong or the command failed.`,
		Example: `  kubectl autohealer rules test
  kubectl autohealer rules test -f guardrail.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runRulesTest(cmd.Context(), files) },
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "file or directory with Guardrails, or - for standard input")
	// It fails for a flag that isn't there, and this one is.
	_ = cmd.MarkFlagFilename("filename", "json", "yaml", "yml")
	return cmd
}

// testRun counts the tests of rules.
type testRun struct {
	app                  *App
	checker              *check.Checker
	rules, tests, failed int
}

func (a *App) runRulesTest(ctx context.Context, files []string) error {
	guardrails, err := readKind[v1alpha1.Guardrail](ctx, a, "--filename", "Guardrail", files)
	if err != nil {
		return err
	}
	checker, err := check.New(check.Options{Options: guard.Options{Clock: a.Clock}, Guardrails: guardrails})
	if err != nil {
		return err
	}
	run := &testRun{app: a, checker: checker}
	if len(files) == 0 {
		run.builtin(ctx)
	}
	for _, result := range checker.Guardrails {
		for _, e := range result.Errors {
			run.fail("%s/%s, %s for %s: %s", result.Name, e.Rule, e.Field, e.Kind, e.Message)
		}
	}
	for _, g := range guardrails {
		for i := range g.Spec.Rules {
			run.declared(ctx, g.Name, &g.Spec.Rules[i])
		}
	}
	if _, err := fmt.Fprintf(a.Out, "rules: %d, tests: %d, failed: %d\n", run.rules, run.tests, run.failed); err != nil {
		return err
	}
	if run.failed > 0 {
		return exitStatus(exitFound)
	}
	return nil
}

func (t *testRun) fail(format string, args ...any) {
	t.failed++
	fmt.Fprintf(t.app.Out, "FAIL "+format+"\n", args...)
}

func (t *testRun) builtin(ctx context.Context) {
	g := t.checker.Guard()
	for _, kind := range g.Kinds() {
		for _, rule := range g.Rules(kind) {
			t.rules++
			for _, test := range rule.Tests {
				t.one(ctx, kind, rule.ID, test)
			}
		}
	}
}

// declared runs the tests of a Guardrail's rule for each kind that it judges.
func (t *testRun) declared(ctx context.Context, guardrail string, rule *v1alpha1.GuardrailRule) {
	t.rules++
	id := guardrail + "/" + rule.Name
	if len(rule.Tests) == 0 {
		fmt.Fprintf(t.app.Out, "NOTE %s: it has no tests\n", id)
	}
	for i := range rule.Tests {
		test := guard.Test{GuardrailRuleTest: rule.Tests[i]}
		for _, kind := range rule.Kinds {
			if t.isStorable(ctx, kind, id, test) {
				t.one(ctx, kind, id, test)
			}
		}
	}
}

// isStorable says whether a test's objects could be stored: else its verdict would say nothing.
func (t *testRun) isStorable(ctx context.Context, kind, id string, test guard.Test) bool {
	object, old, err := test.Objects(kind)
	if err != nil {
		return true // running it fails, and says why
	}
	ok := true
	for field, o := range map[string]map[string]any{"oldObject": old, "object": object} {
		if o == nil {
			continue
		}
		for _, v := range t.checker.Storable(ctx, o, nil).Violations {
			t.tests, ok = t.tests+1, false
			t.fail("%s: %s: %s couldn't be stored as a %s: %s", id, test.Name, field, kind, v.Message)
		}
	}
	return ok
}

func (t *testRun) one(ctx context.Context, kind, id string, test guard.Test) {
	t.tests++
	verdict, err := t.checker.Guard().RunTest(ctx, kind, test)
	if err != nil {
		t.fail("%s: %s: %v", id, test.Name, err)
		return
	}
	got, message := guard.ExpectAdmit, ""
	for _, v := range verdict.Violations {
		if v.Rule == id {
			message = ": " + v.Message
			got = guard.ExpectWarn
			if v.Severity == guard.Deny {
				got = guard.ExpectDeny
			}
		}
	}
	for _, s := range verdict.Skipped {
		if s.Rule == id && (test.Facts == nil || ptr.Deref(test.Facts.Synced, true)) {
			t.fail("%s: %s: not checked: %s", id, test.Name, s.Reason)
			return
		}
	}
	if got != test.Expect {
		t.fail("%s: %s: got %s, want %s%s", id, test.Name, got, test.Expect, message)
	}
}
