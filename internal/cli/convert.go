package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/convert"
	"github.com/resourcestack/autohealer/internal/guard"
)

func (a *App) convert() *cobra.Command {
	var in inputs
	cmd := &cobra.Command{
		Use:   "convert -f FILE",
		Short: "Turn older configurations into policies, and OutlierPolicies into others' policies",
		Long: `Turn older configurations into policies, on standard output. What could not be carried over is reported on standard error.

To ConditionSet: the list of condition sets (type: ConditionSets), bare or in the data of a ConfigMap.

To WeederConfig, to ProbeConfig: the configuration of dependency-watchdog's weeder and of its prober, bare or in the data of
a ConfigMap. What each of its lines became is reported on standard error.

To OutlierPolicy: the block outlierDetection that was designed for Contour's configuration, bare or in the data of a ConfigMap, and
HTTPProxies with that design's field in their services.

To DestinationRule, to BackendTrafficPolicy: OutlierPolicies, for who runs Istio or Envoy Gateway. What these don't have, or take for something else, is
reported on standard error; --strict refuses it.

Nothing is written unless everything can be converted and the result passes validate. Exit code: 0 it was written; 1 it
could not be converted, or would be refused; 2 the command line is wrong or the command failed.`,
		Example: `  kubectl get configmap condition-sets -n kube-system -o yaml | kubectl autohealer convert -f - > policies.yaml`,
	}
	in.addFlags(cmd)
	to := choiceFlag(cmd, "to", "", "kind of the policies", convert.Kinds()...)
	strict := cmd.Flags().Bool("strict", false, "write nothing where something would be lost or changed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.runConvert(cmd.Context(), in, to.value, *strict) }
	return cmd
}

func (a *App) runConvert(ctx context.Context, in inputs, kind string, strict bool) error {
	files, err := a.files(in)
	if err != nil {
		return err
	}
	checker, err := a.newChecker()
	if err != nil {
		return err
	}
	result := convert.Convert(files, kind)
	for _, n := range result.Notes {
		a.printNotes(n.File, n.Line, n.Error, n.Message)
	}
	allowed := a.judgeConverted(ctx, checker, result.Policies)
	if !allowed || result.Failed() || len(result.Objects) == 0 || strict && len(result.Notes) > 0 {
		fmt.Fprintln(a.ErrOut, "nothing was written")
		return exitStatus(exitFound)
	}
	return a.writeConverted(result)
}

// judgeConverted tells what the rules say of policies, and whether they allow them all.
func (a *App) judgeConverted(ctx context.Context, checker *check.Checker, policies []convert.Object) bool {
	allowed := true
	for _, o := range policies {
		r := checker.Object(ctx, o.Content, nil)
		for _, v := range r.Violations {
			a.printNotes(o.File, o.Line, v.Severity == guard.Deny, fmt.Sprintf("%s %s: %s: %s (%s)", r.Kind, r.Name, v.Rule, v.Message, v.Docs))
		}
		allowed = allowed && r.Allowed
	}
	return allowed
}

func (a *App) writeConverted(result convert.Result) error {
	for _, n := range result.Outcomes {
		fmt.Fprintf(a.ErrOut, "%s:%d: %s\n", n.File, n.Line, n.Message)
	}
	for i, o := range result.Objects {
		text, err := yaml.Marshal(o.Content)
		if err != nil {
			return fmt.Errorf("write what became of %s:%d: %w", o.File, o.Line, err)
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := a.Out.Write(text); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) printNotes(file string, line int, isError bool, message string) {
	word := "warning"
	if isError {
		word = "error"
	}
	fmt.Fprintf(a.ErrOut, "%s:%d: %s: %s\n", file, line, word, message)
}
