package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/manifest"
	"github.com/resourcestack/autohealer/internal/cli/report"
)

type validateOptions struct {
	inputs
	clusterFlags
	old        []string
	rules      []string
	exceptions []string
	output     *choice
	failOn     *choice
}

func (a *App) validate() *cobra.Command {
	o := &validateOptions{}
	cmd := &cobra.Command{
		Use:   "validate -f FILE",
		Short: "Judge manifests as API server, admission policy and webhook would",
		Long: `Judge manifests as API server, admission policy and webhook would, without a cluster.

Text and schema are checked first: duplicate keys, unknown fields, types, bounds and the CRD's own rules. Then come the
rules of the catalogue. Rules that ask what a policy would do to the cluster need facts of it; without them they
are listed as Skipped(facts), which doesn't change the exit code. Those that ask what an account may do need an API server
(--live), and are Skipped(authorizer) without one. Documents of other API groups are ignored.

Exit code: 0 all is well; 1 something would be refused, or, with --fail-on=warning, warned of; 2 the command line is wrong
or the command failed.`,
		Example: `  # all manifests of a repository
  kubectl autohealer validate -R -f policies/

  # what kustomize or Helm renders
  kubectl kustomize overlays/prod | kubectl autohealer validate -f -

  # a pull request, beside the lines that it changes
  kubectl autohealer validate -R -f policies/ --old main/policies/ -o github`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runValidate(cmd.Context(), o) },
	}
	o.addFlags(cmd)
	cmd.Flags().StringSliceVar(&o.old, "old", nil, "file or directory (searched recursively) with the objects as they are stored: what is there too is judged as an update of it")
	cmd.Flags().StringSliceVar(&o.rules, "rules", nil, "file or directory with Guardrails whose rules judge too")
	cmd.Flags().StringSliceVar(&o.exceptions, "exceptions", nil, "file or directory with GuardrailExceptions that lift rules")
	cmd.Flags().BoolVar(&o.live, "live", false, "take the facts from the cluster that kubeconfig names")
	a.addFacts(cmd, &o.clusterFlags)
	cmd.MarkFlagsMutuallyExclusive("facts", "live")
	o.output = choiceFlag(cmd, "output", "o", "output format", report.Formats()...)
	o.failOn = choiceFlag(cmd, "fail-on", "", "what gives exit code 1", "error", "warning")
	return cmd
}

func (a *App) runValidate(ctx context.Context, o *validateOptions) error {
	files, err := a.files(o.inputs)
	if err != nil {
		return err
	}
	old, err := a.stored(o.old)
	if err != nil {
		return err
	}
	w, err := a.judge(ctx, o)
	if err != nil {
		return err
	}
	result := a.newResult(w)
	result.FailOnWarning = o.failOn.value == "warning"
	failed := false
	for _, d := range documentsOf(files) {
		if !check.Ours(d) {
			result.Ignored++
			continue
		}
		r := w.checker.Document(ctx, d, old[keyOf(d.Object)])
		failed = failed || !r.Allowed || result.FailOnWarning && r.Warns()
		result.Reports = append(result.Reports, r)
	}
	if len(result.Reports)+result.Ignored == 0 { // what should have written it may have failed
		return fmt.Errorf("--filename: there is no object in %s", strings.Join(o.filenames, ", "))
	}
	if err := report.Writers[o.output.value](a.Out, result); err != nil {
		return fmt.Errorf("write %s: %w", o.output.value, err)
	}
	if failed {
		return exitStatus(exitFound)
	}
	return nil
}

// newResult is a result without reports yet.
func (a *App) newResult(w *world) report.Result {
	result := report.Result{Version: a.buildVersion(), Colors: wantsColors(a.Out)}
	if w.snapshot != nil {
		result.Facts = w.snapshot.Describe(a.Clock.Now())
	}
	for _, kind := range w.checker.Guard().Kinds() {
		result.Rules = append(result.Rules, w.checker.Guard().Rules(kind)...)
	}
	return result
}

// judge is the world that judges: what the flags give.
func (a *App) judge(ctx context.Context, o *validateOptions) (*world, error) {
	p, err := a.readPolicies(ctx, o.rules, o.exceptions)
	if err != nil {
		return nil, err
	}
	s, err := a.readSnapshot(ctx, o.clusterFlags)
	if err != nil {
		return nil, err
	}
	w, err := a.newWorld(ctx, s, p)
	if err != nil {
		return nil, err
	}
	for _, rail := range w.checker.Guardrails {
		if !slices.ContainsFunc(p.guardrails, func(given *v1alpha1.Guardrail) bool { return given.Name == rail.Name }) {
			continue // a stored one judges as it does in the cluster: what its broken rules are about is refused
		}
		for _, e := range rail.Errors {
			return nil, fmt.Errorf("--rules: Guardrail %s, rule %s, %s for %s: %s", rail.Name, e.Rule, e.Field, e.Kind, e.Message)
		}
	}
	return w, nil
}

// objectKey is what makes two manifests one object.
type objectKey struct{ kind, namespace, name string }

func keyOf(object map[string]any) objectKey {
	u := unstructured.Unstructured{Object: object}
	return objectKey{kind: u.GetKind(), namespace: u.GetNamespace(), name: u.GetName()}
}

// stored reads the objects that --old gives.
func (a *App) stored(paths []string) (map[objectKey]map[string]any, error) {
	files, err := manifest.Files(paths, true, a.In)
	if err != nil {
		return nil, fmt.Errorf("--old: %w", err)
	}
	old := map[objectKey]map[string]any{}
	for _, d := range documentsOf(files) {
		if d.Object != nil && check.Ours(d) {
			old[keyOf(d.Object)] = d.Object
		}
	}
	return old, nil
}
