package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resourcestack/autohealer/internal/cli/soundness"
)

type checkOptions struct {
	output *output[*soundness.Report]
	wait   bool
	// timeout of wait.
	timeout *time.Duration
}

const (
	// checkInterval is how long --wait waits between two checks.
	checkInterval = time.Second
	// checkTimeout bounds a check, of an API server that takes requests and doesn't answer. Part of a check lasts 15 seconds.
	checkTimeout = time.Minute
)

func (a *App) check() *cobra.Command {
	o := &checkOptions{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "See whether the installation is sound",
		Long: `See whether the installation is sound: CRDs, admission policies, webhook, its certificates, the rights of the manager and of the
roles for people, the manager and its caches, whether there is a second installation, and taints that no manager takes off. One bad object of each kind must be
refused in the words of its rule, and one good one admitted; both are dry runs, and nothing is stored.

It has one line for each part, and says what to do about those that aren't sound, but for what may follow from another part: mend
that first. -o yaml has all that was found. A part that is missing, or can't be looked at, isn't sound. Installed objects are compared
with those of the plugin's own version. With --wait it looks again until all is sound or --timeout is up, for CI after an installation.
A look takes a minute at most.

Exit code: 0 the installation is sound; 1 it isn't, or something could not be looked at; 2 the command line is wrong, or the
cluster can't be asked.`,
		Example: `  kubectl autohealer check
  kubectl autohealer check --wait --timeout=5m
  kubectl autohealer check -o jsonpath='{.parts[?(@.state!="Sound")].name}'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("timeout") && !o.wait {
				return errors.New("--timeout is for --wait")
			}
			return a.runCheck(cmd.Context(), o)
		},
	}
	o.output = outputFlag(cmd, "Check", map[string]printer[*soundness.Report]{"": func(w io.Writer, r *soundness.Report) error {
		r.Write(w)
		return nil
	}})
	cmd.Flags().BoolVar(&o.wait, "wait", false, "look again until all is sound")
	o.timeout = timeoutFlag(cmd, 2*time.Minute, "how long to wait, with --wait")
	a.addCluster(cmd)
	return cmd
}

func (a *App) runCheck(ctx context.Context, o *checkOptions) error {
	show, err := o.output.printer()
	if err != nil {
		return err
	}
	if *a.Config.Timeout == "0" { // what asks for kinds takes no context
		*a.Config.Timeout = checkTimeout.String()
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	server, err := a.Config.ToDiscoveryClient()
	if err != nil {
		return err
	}
	var within time.Duration
	if o.wait {
		within = *o.timeout
	}
	report, err := a.awaitSound(ctx, within, func(ctx context.Context) (*soundness.Report, error) {
		own, err := a.findNamespace(ctx, c) // each time anew: while one waits it may be installed
		if err != nil {
			return nil, err
		}
		check := soundness.Checker{Client: c, Server: server, Clock: a.cluster, Namespace: own, Manager: managerName}
		return check.Check(ctx)
	})
	if err != nil {
		return err
	}
	if err := show.write(report, a.Out); err != nil {
		return err
	}
	if !report.Sound {
		return exitStatus(exitFound)
	}
	return nil
}

// awaitSound looks until all is sound or time is up, and gives the last look that ended. While there is time an API server that
// doesn't answer may come back.
func (a *App) awaitSound(ctx context.Context, within time.Duration, check func(context.Context) (*soundness.Report, error)) (*soundness.Report, error) {
	progress := a.progress()
	defer progress("")
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	var last *soundness.Report
	atMost := checkTimeout // for the first look, also without --wait
	for until := a.Clock.Now().Add(within); ; atMost = min(checkTimeout, max(checkInterval, until.Sub(a.Clock.Now()))) {
		report, err := runOnce(ctx, atMost, check)
		if err == nil {
			last = report
		}
		over := !a.Clock.Now().Before(until)
		if over && last != nil && errors.Is(err, context.DeadlineExceeded) { // it was cut off: what the one before found says more
			return last, nil
		}
		if over || err == nil && report.Sound {
			return report, err
		}
		if err == nil {
			progress("not sound yet: " + strings.Join(report.Unsound(), ", "))
		} else {
			progress("not sound yet: " + err.Error())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

func runOnce(ctx context.Context, atMost time.Duration, check func(context.Context) (*soundness.Report, error)) (*soundness.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	return check(ctx)
}
