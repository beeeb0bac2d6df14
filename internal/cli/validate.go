package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/manifest"
	"github.com/resourcestack/autohealer/internal/cli/report"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/version"
)

type validateOptions struct {
	inputs
	clusterFlags
	old        []string
	rules      []string
	exceptions []string
	output     *output[report.Result]
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
(--live), and are Skipped(authorizer) without one. Rules of Guardrails over who asks, or what that user may do, are always
Skipped(request): kubectl apply --dry-run=server asks them. Documents of other API groups are ignored.

Guardrails and GuardrailExceptions in -f count for everything else there, as if those that are admitted had been applied
first. What is stored already is judged as an update: of what --old gives or, with --facts or --live, of what the cluster has. So
what is applied again unchanged passes, whatever has happened to the cluster since.

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
	cmd.Flags().StringSliceVar(&o.old, "old", nil, "file or directory (searched recursively) with the objects as they are stored: what is there too is judged as an update of it, and everything else as a creation. Default: what the facts' cluster has stored")
	cmd.Flags().StringSliceVar(&o.rules, "rules", nil, "file or directory with Guardrails whose rules judge too")
	cmd.Flags().StringSliceVar(&o.exceptions, "exceptions", nil, "file or directory with GuardrailExceptions that lift rules")
	cmd.Flags().BoolVar(&o.live, "live", false, "take the facts from the cluster that kubeconfig names")
	a.addFacts(cmd, &o.clusterFlags)
	cmd.MarkFlagsMutuallyExclusive("facts", "live")
	o.output = outputFlag(cmd, "Validation", map[string]printer[report.Result]{"": report.Text, "sarif": report.SARIF, "junit": report.JUnit, "github": report.GitHub})
	o.failOn = choiceFlag(cmd, "fail-on", "", "what gives exit code 1", "error", "warning")
	return cmd
}

func (a *App) runValidate(ctx context.Context, o *validateOptions) error {
	show, err := o.output.printer()
	if err != nil {
		return err
	}
	files, err := a.files(o.inputs)
	if err != nil {
		return err
	}
	w, err := a.judge(ctx, o)
	if err != nil {
		return err
	}
	stored, err := a.storedObjects(w, o.old)
	if err != nil {
		return err
	}
	w, guardrails, err := a.enforce(ctx, w, stored, files)
	if err != nil {
		return err
	}
	result := a.newResult(w)
	result.FailOnWarning = o.failOn.value == "warning"
	failed := a.judgeDocuments(ctx, w, stored, files, guardrails, &result)
	if len(result.Reports)+result.Ignored == 0 { // what should have written it may have failed
		return fmt.Errorf("--filename: there is no object in %s", strings.Join(o.filenames, ", "))
	}
	if err := show.write(result, a.Out); err != nil {
		return err
	}
	if failed {
		return exitStatus(exitFound)
	}
	return nil
}

// judgeDocuments adds a report for each document of ours, and for each that only looks like one. Those of Guardrails and
// exceptions are there already. Of ten thousand documents it keeps little: neither what was read nor what would be stored.
func (a *App) judgeDocuments(ctx context.Context, w *policyEnv, stored storedFunc, files []manifest.File, guardrails []check.Report, result *report.Result) (failed bool) {
	seen := map[check.Key]int{}
	var skipped []guard.Skip
	for d := range manifest.Each(files, "") {
		if d.IsKustomization() {
			a.printNotes(d.File, d.Line, false, fmt.Sprintf("the files here are judged, and not what is built of them: kubectl kustomize %s | kubectl autohealer validate -f -", path.Dir(d.File)))
		}
		r, concerns := check.Report{}, true
		if isGuardrail(d) {
			r, guardrails = guardrails[0], guardrails[1:]
		} else {
			r, concerns = w.reportOf(ctx, stored, d)
		}
		if !concerns {
			result.Ignored++
			continue
		}
		if key := w.checker.KeyOf(d.Object); r.Name != "" && check.Ours(d) {
			if first, again := seen[key]; again {
				r.Repeats(result.Reports[first])
			} else {
				seen[key] = len(result.Reports)
			}
		}
		failed = failed || !r.Allowed || result.FailOnWarning && r.Warns()
		r.Stored = nil
		if slices.Equal(r.Skipped, skipped) { // as it is for most of one kind
			r.Skipped = skipped
		}
		skipped = r.Skipped
		result.Reports = append(result.Reports, r)
	}
	return failed
}

// reportOf judges a document; concerns is false of one that is none of ours.
func (w *policyEnv) reportOf(ctx context.Context, stored storedFunc, d manifest.Document) (r check.Report, concerns bool) {
	if !check.Ours(d) {
		return w.checker.ForeignKindWarning(d)
	}
	return w.checker.Document(ctx, d, stored(d.Object)), true
}

// newResult is a result without reports yet.
func (a *App) newResult(w *policyEnv) report.Result {
	result := report.Result{Version: version.Of(a.Version), Colors: wantsColors(a.Out)}
	if w.snapshot != nil {
		result.Facts = w.snapshot.Describe(a.Clock.Now())
	}
	for _, kind := range w.checker.Guard().Kinds() {
		result.Rules = append(result.Rules, w.checker.Guard().Rules(kind)...)
	}
	return result
}

// judge is the environment that judges: what the flags give.
func (a *App) judge(ctx context.Context, o *validateOptions) (*policyEnv, error) {
	p, err := a.readPolicies(ctx, o.rules, o.exceptions)
	if err != nil {
		return nil, err
	}
	s, err := a.readSnapshot(ctx, o.clusterFlags)
	if err != nil {
		return nil, err
	}
	w, err := a.newEnv(ctx, s, p)
	if err != nil {
		return nil, err
	}
	for _, gr := range w.checker.Guardrails {
		if !slices.ContainsFunc(p.guardrails, func(given *v1alpha1.Guardrail) bool { return given.Name == gr.Name }) {
			continue // a stored one judges as it does in the cluster: what its broken rules are about is refused
		}
		for _, e := range gr.Errors {
			return nil, fmt.Errorf("--rules: Guardrail %s, rule %s, %s for %s: %s", gr.Name, e.Rule, e.Field, e.Kind, e.Message)
		}
	}
	return w, nil
}

// storedFunc gives the stored object that one is an update of; nil for a creation.
type storedFunc func(map[string]any) map[string]any

// storedObjects finds what an object is an update of: in what --old gives, or else in the cluster whose facts there are.
func (a *App) storedObjects(w *policyEnv, paths []string) (storedFunc, error) {
	if len(paths) == 0 {
		return w.stored, nil
	}
	old := map[check.Key]map[string]any{}
	for _, path := range paths {
		files, err := manifest.Files([]string{path}, true, a.In)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, manifest.ErrNoFile) { // as before the first policy
			fmt.Fprintf(a.ErrOut, "warning: --old: %v; what is judged counts as new\n", err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("--old: %w", err)
		}
		for _, d := range documentsOf(files) {
			switch {
			case d.Object == nil:
				a.printNotes(d.File, d.Line, false, "--old: "+d.Problems[0].Message+"; what it was counts as new")
			case check.Ours(d):
				old[w.checker.KeyOf(d.Object)] = d.Object
			}
		}
	}
	return func(object map[string]any) map[string]any { return old[w.checker.KeyOf(object)] }, nil
}

// dryRun is kubectl's flag for verbs that change something.
type dryRun struct{ *choice }

func dryRunFlag(cmd *cobra.Command) dryRun {
	d := dryRun{choiceFlag(cmd, "dry-run", "", "say what would be done, and change nothing; client only reads, and server has the API server judge each write, too", "none", "client", "server")}
	cmd.Flags().Lookup("dry-run").NoOptDefVal = "client"
	return d
}

// on: nothing is changed.
func (d dryRun) on() bool { return d.value != "none" }

// suffix of what is said to be done.
func (d dryRun) suffix() string {
	return map[string]string{"client": " (dry run)", "server": " (server dry run)"}[d.value]
}

// writes gives a client whose writes are as the flag wants them.
func (d dryRun) writes(c client.Client) client.Client {
	switch d.value {
	case "client":
		return dryRunClient{client.NewDryRunClient(c)}
	case "server":
		return client.NewDryRunClient(c)
	}
	return c
}

// dryRunClient is a client that only reads: what it is to create, patch or delete counts as written. It is over one of dry runs, so that another
// write changes nothing, either.
type dryRunClient struct{ client.Client }

// Create fails where there is such an object, as far as that can be read.
func (r dryRunClient) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	there, _ := o.DeepCopyObject().(client.Object)
	if err := r.Get(ctx, client.ObjectKeyFromObject(o), there); err != nil {
		return client.IgnoreNotFound(err)
	}
	return apierrors.NewAlreadyExists(schema.GroupResource{}, o.GetName())
}

// Patch does nothing.
func (dryRunClient) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}

// Delete does nothing.
func (dryRunClient) Delete(context.Context, client.Object, ...client.DeleteOption) error { return nil }
