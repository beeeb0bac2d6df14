package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/trail"
)

// readLogs gives the managers' logs.
const readLogs = "kubectl -n " + check.DefaultNamespace + " logs deployment/" + managerName + " --all-pods --tail=-1"

type actsOptions struct {
	filename string
	since    time.Duration
	output   *choice
}

func (a *App) acts() *cobra.Command {
	o := &actsOptions{}
	cmd := &cobra.Command{
		Use:   "acts [KIND/NAME ...]",
		Short: "Tell what was done, from the audit trail in the managers' logs",
		Long: `Tell what was done, from the audit trail in the managers' logs: each act with its time, its target, its policy and its
reason. It reads logs from standard input, or from a file, of one replica or of all; lines that are no acts are passed over.
With arguments it tells only of acts on these objects, or for these policies or Services, in whatever namespace. Where Autohealer
runs in another namespace than ` + check.DefaultNamespace + `, name that one to kubectl.

Exit code: 0 it is told; 2 the command line is wrong or the command failed.`,
		Example: `  ` + readLogs + ` | kubectl autohealer acts --since=1h
  ` + readLogs + ` | kubectl autohealer acts node/worker-7
  kubectl autohealer acts -f manager.log conditionset/kernel-deadlock -o json`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(_ *cobra.Command, args []string) error { return a.runActs(o, args) },
	}
	cmd.Flags().StringVarP(&o.filename, "filename", "f", "-", "file with logs, or - for standard input")
	cmd.Flags().DurationVar(&o.since, "since", 0, "only acts that are younger, such as 1h")
	// Both fail for a flag that isn't there, and these are.
	_ = cmd.MarkFlagFilename("filename", "log", "json", "txt")
	_ = cmd.RegisterFlagCompletionFunc("since", cobra.NoFileCompletions)
	o.output = choiceFlag(cmd, "output", "o", "output format: a table, or the lines as they were logged", "text", "json")
	return cmd
}

func (a *App) runActs(o *actsOptions, args []string) error {
	for _, arg := range args {
		if kind, name, slashed := strings.Cut(arg, "/"); !slashed || kind == "" || name == "" {
			return fmt.Errorf("%q: write a kind and a name, such as node/worker-7", arg)
		}
	}
	acts, err := a.readActs(o.filename)
	if err != nil {
		return err
	}
	now := a.Clock.Now()
	acts = slices.DeleteFunc(acts, func(act trail.Act) bool {
		asked := slices.ContainsFunc(args, func(arg string) bool {
			kind, name, _ := strings.Cut(arg, "/")
			return act.Concerns(strings.ToLower(kind), name)
		})
		return o.since > 0 && now.Sub(act.Time) > o.since || len(args) > 0 && !asked
	})
	switch {
	case o.output.value == "json":
		return trail.Lines(a.Out, acts)
	case len(acts) == 0:
		_, err := fmt.Fprintln(a.ErrOut, "Nothing was done, as far as these logs tell.")
		return err
	}
	return trail.Table(a.Out, acts)
}

func (a *App) readActs(filename string) ([]trail.Act, error) {
	if filename != "-" {
		file, err := os.Open(filename)
		if err != nil {
			return nil, fmt.Errorf("--filename: %w", err)
		}
		defer func() { _ = file.Close() }() // it was only read
		return trail.Read(file)
	}
	if isTerminal(a.In) {
		return nil, errors.New("nothing to read; give it the managers' logs:\n  " + readLogs + " | kubectl autohealer acts")
	}
	return trail.Read(a.In)
}
