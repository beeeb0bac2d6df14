package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/resourcestack/autohealer/internal/cli/overview"
)

type statusOptions struct {
	output        *output[*overview.Overview]
	allNamespaces bool
	selector      string
	watch         bool
}

// watchInterval is how often --watch reads the cluster.
const watchInterval = 2 * time.Second

func (a *App) status() *cobra.Command {
	o := &statusOptions{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show every policy, the limits and the manager on one screen",
		Long: `Show every policy, the limits and the manager on one screen: which policies the rules accept, what they do, what is held back and
why, and which breakers are open; how much of the limits is used; whether a manager leads.

Policies of all namespaces are shown; -n shows those of one, and cluster-scoped ones. What they do is what the manager last
wrote into their status; the limits are counted from the records on the nodes.

Exit code: 0 all is well; 1 someone should look: a policy isn't accepted or ready, a breaker is open, no manager leads,
everything is frozen, or something could not be read; 2 the command line is wrong or the command failed.`,
		Example: `  kubectl autohealer status
  kubectl autohealer status -w
  kubectl autohealer status -o jsonpath='{.policies[?(@.breakerOpen==true)].name}'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.runStatus(cmd.Context(), o) },
	}
	o.output = outputFlag(cmd, "Status", map[string]printer[*overview.Overview]{"": a.statusText(false), "wide": a.statusText(true), "name": statusNames})
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "show policies of all namespaces, also with -n")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "show only policies with these labels, such as team=shop,tier!=test")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on, and show what changes")
	a.addCluster(cmd, "selector")
	return cmd
}

func (a *App) runStatus(ctx context.Context, o *statusOptions) error {
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	show, err := o.output.printer()
	if err != nil {
		return err
	}
	c, own, err := a.connect(ctx)
	if err != nil {
		return err
	}
	r := overview.Reader{Client: c, Clock: a.cluster, ManagerNamespace: own, ManagerName: managerName, Selector: selector}
	if n := a.Config.Namespace; n != nil && !o.allNamespaces {
		r.Namespace = *n
	}
	if o.watch {
		return a.watchStatus(ctx, r, show)
	}
	now, err := r.Read(ctx)
	if err != nil {
		return err
	}
	if err := show.write(now, a.Out); err != nil {
		return err
	}
	if !now.Healthy() {
		return exitStatus(exitFound)
	}
	return nil
}

// watchStatus shows each change until someone ends it: on a terminal in place of what was shown, else below it.
func (a *App) watchStatus(ctx context.Context, r overview.Reader, show printer[*overview.Overview]) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	var shown *overview.Overview
	for {
		now, err := r.Read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && shown == nil:
			return err
		case err != nil: // the API server may come back
			fmt.Fprintln(a.ErrOut, "error:", err)
		case now.Differs(shown) || isTerminal(a.Out):
			var text bytes.Buffer
			if err := show(&text, now); err != nil {
				return fmt.Errorf("--output: %w", err)
			}
			a.redraw(text.Bytes(), shown != nil)
			shown = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (a *App) redraw(text []byte, again bool) {
	switch {
	case isTerminal(a.Out):
		fmt.Fprint(a.Out, "\x1b[H\x1b[2J\x1b[3J")
	case again:
		fmt.Fprintln(a.Out)
	}
	_, _ = a.Out.Write(text) // nobody may be looking any more
}

func (a *App) statusText(wide bool) printer[*overview.Overview] {
	return func(w io.Writer, now *overview.Overview) error {
		return now.Text(w, overview.TextOptions{Wide: wide, Colors: wantsColors(a.Out), Now: a.Clock.Now()})
	}
}

func statusNames(w io.Writer, now *overview.Overview) error {
	for _, p := range now.Policies {
		fmt.Fprintln(w, p.Ref())
	}
	return nil
}
