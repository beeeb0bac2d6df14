package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resourcestack/autohealer/internal/cli/trail"
)

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
reason. It reads the logs of the manager's pods, of all replicas, and what their containers logged before their last restart; or
with -f logs that you kept. Lines that are no acts are passed over. With arguments it tells only of acts on these objects, or for
these policies or Services, in whatever namespace. To read the pods' logs takes get on deployments and pods/log and list on pods in
Autohealer's namespace.

Exit code: 0 it is told; 2 the command line is wrong or the command failed.`,
		Example: `  kubectl autohealer acts --since=1h
  kubectl autohealer acts node/worker-7
  kubectl autohealer acts -f manager.log conditionset/kernel-deadlock -o json`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.runActs(cmd.Context(), o, args) },
	}
	cmd.Flags().StringVarP(&o.filename, "filename", "f", "", "file with logs, or - for standard input, in place of the pods' logs")
	cmd.Flags().DurationVar(&o.since, "since", 0, "only acts that are younger, such as 1h")
	// It fails for a flag that isn't there, and this one is.
	_ = cmd.MarkFlagFilename("filename", "log", "json", "txt")
	o.output = choiceFlag(cmd, "output", "o", "output format: a table, or the lines as they were logged", "text", "json")
	a.addCluster(cmd, "since")
	return cmd
}

func (a *App) runActs(ctx context.Context, o *actsOptions, args []string) error {
	for _, arg := range args {
		if kind, name, slashed := strings.Cut(arg, "/"); !slashed || kind == "" || name == "" {
			return fmt.Errorf("%q: write a kind and a name, such as node/worker-7", arg)
		}
	}
	acts, err := a.readActs(ctx, o)
	if err != nil {
		return err
	}
	now := a.Clock.Now()
	if a.cluster != nil {
		now = a.cluster.Now()
	}
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

func (a *App) readActs(ctx context.Context, o *actsOptions) ([]trail.Act, error) {
	if o.filename == "" {
		return a.actsInCluster(ctx, o.since)
	}
	logs := a.In
	if o.filename != "-" {
		file, err := os.Open(o.filename)
		if err != nil {
			return nil, fmt.Errorf("--filename: %w", err)
		}
		defer func() { _ = file.Close() }() // it was only read
		logs = file
	}
	lines := bufio.NewReader(logs)
	if _, err := lines.Peek(1); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("--filename %s: %w", o.filename, errNothingLogged)
	}
	return trail.Read(lines)
}
