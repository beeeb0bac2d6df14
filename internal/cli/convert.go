package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/cli/convert"
	"github.com/resourcestack/autohealer/internal/guard"
)

func (a *App) convert() *cobra.Command {
	var in inputs
	cmd := &cobra.Command{
		Use:   "convert -f FILE",
		Short: "Turn older configurations into policies",
		Long: `Turn older configurations into policies, on standard output. What could not be carried over is told on standard error.

To ConditionSet: the list of condition sets (type: ConditionSets), bare or in the data of a ConfigMap.

To WeederConfig, to ProbeConfig: the configuration of dependency-watchdog's weeder and of its prober, bare or in the data of
a ConfigMap. What each of its lines became is told on standard error.

To OutlierPolicy: the block outlierDetection that was designed for Contour's configuration, bare or in the data of a ConfigMap, and
HTTPProxies with that design's field in their services.

Nothing is written unless everything can be converted and the result passes validate. Exit code: 0 it was written; 1 it
could not be converted, or would be refused; 2 the command line is wrong or the command failed.`,
		Example: `  kubectl get configmap condition-sets -n kube-system -o yaml | kubectl autohealer convert -f - > policies.yaml`,
	}
	in.addFlags(cmd)
	to := choiceFlag(cmd, "to", "", "kind of the policies", convert.Kinds()...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.runConvert(cmd.Context(), in, to.value) }
	return cmd
}

func (a *App) runConvert(ctx context.Context, in inputs, kind string) error {
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
	failed := result.Failed() || len(result.Objects) == 0
	var out strings.Builder
	for _, o := range result.Objects {
		r := checker.Object(ctx, o.Content, nil)
		for _, v := range r.Violations {
			a.printNotes(o.File, o.Line, v.Severity == guard.Deny, fmt.Sprintf("%s %s: %s: %s (%s)", r.Kind, r.Name, v.Rule, v.Message, v.Docs))
		}
		failed = failed || !r.Allowed
		text, err := yaml.Marshal(o.Content)
		if err != nil {
			return fmt.Errorf("write %s %s: %w", r.Kind, r.Name, err)
		}
		if out.Len() > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	if failed {
		fmt.Fprintln(a.ErrOut, "nothing was written")
		return exitStatus(exitFound)
	}
	for _, n := range result.Became {
		fmt.Fprintf(a.ErrOut, "%s:%d: %s\n", n.File, n.Line, n.Message)
	}
	_, err = fmt.Fprint(a.Out, out.String())
	return err
}

func (a *App) printNotes(file string, line int, isError bool, message string) {
	word := "warning"
	if isError {
		word = "error"
	}
	fmt.Fprintf(a.ErrOut, "%s:%d: %s: %s\n", file, line, word, message)
}
