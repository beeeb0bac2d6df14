package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/internal/cli/uninstall"
)

type uninstallOptions struct {
	yes     bool
	dryRun  dryRun
	timeout *time.Duration
}

func (a *App) uninstall() *cobra.Command {
	o := &uninstallOptions{}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Autohealer from the cluster, with everything that it did",
		Long: `Remove Autohealer from the cluster, with everything that it did: freeze it, take back taints and scalings by the records on the
objects, take off holds, and delete policies, webhook, manager, kinds, rights and namespace, each before what it needs to go.

It shows what it will do and asks, or with --yes doesn't. It works from every state: while the webhook or the manager is down,
while namespaces are being deleted, when the kinds are gone, and after another uninstall that stopped halfway; run it again
until it exits with 0. It deletes only what has the names and labels of an installation, and names what stays. Before the first
step it sees whether you have all rights and everything can be undone; if not, it says what is missing and does nothing.

If a GitOps tool applies Autohealer or its policies, take them out of Git first, or it puts them back.

Exit code: 0 nothing of Autohealer is left, or with --dry-run all can be removed; 1 it stopped, and says where and why, or you
declined; 2 it did not begin: the command line is wrong, rights are missing, or something can't be undone.`,
		Example: `  kubectl autohealer uninstall --dry-run=server
  kubectl autohealer uninstall
  kubectl autohealer uninstall --yes --timeout=5m`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.runUninstall(cmd.Context(), o) },
	}
	o.dryRun = dryRunFlag(cmd)
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "don't ask")
	o.timeout = timeoutFlag(cmd, 2*time.Minute, "how long to wait, in each step, for what was deleted to be gone")
	a.addCluster(cmd)
	return cmd
}

func (a *App) runUninstall(ctx context.Context, o *uninstallOptions) error {
	if ptr.Deref(a.Config.Namespace, "") != "" {
		return errors.New("--namespace: it is the whole cluster that is cleaned; leave it out")
	}
	u, err := a.uninstaller(ctx, o)
	if err != nil {
		return err
	}
	found, err := u.Survey(ctx)
	u.Progress("")
	switch {
	case err != nil:
		return err
	case len(found.Blocked) > 0:
		return fmt.Errorf("nothing was done, since not all of it can be:\n  %s%s", strings.Join(found.Blocked, "\n  "), roleHintFor(found.Blocked))
	case found.Nothing():
		fmt.Fprintln(a.Out, "Nothing of Autohealer is in this cluster.")
		a.printRemaining(found.Remaining)
		return nil
	}
	found.Write(a.Out)
	if o.dryRun.value == "client" {
		a.printRemaining(found.Remaining)
		fmt.Fprintln(a.Out, "Nothing was done"+o.dryRun.suffix()+".")
		return nil
	}
	if !o.yes && !o.dryRun.on() && !a.confirm() {
		fmt.Fprintln(a.Out, "uninstall is cancelled")
		return exitStatus(exitFound)
	}
	err = u.Run(ctx, found)
	u.Progress("")
	if err != nil {
		fmt.Fprintf(a.ErrOut, "error: uninstall stopped at: %v\nWhat was done so far holds. To go on, run it again; to let Autohealer go on instead, if it is there still: kubectl autohealer thaw\n", err)
		return exitStatus(exitFound)
	}
	a.printRemaining(found.Remaining)
	if o.dryRun.value == "server" {
		fmt.Fprintln(a.Out, "Nothing was done, and all of it can be"+o.dryRun.suffix()+".")
		return nil
	}
	fmt.Fprintln(a.Out, "Nothing of Autohealer is left.")
	return nil
}

func (a *App) uninstaller(ctx context.Context, o *uninstallOptions) (*uninstall.Uninstaller, error) {
	c, own, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	kinds, err := a.kinds()
	if err != nil {
		return nil, err
	}
	u := &uninstall.Uninstaller{
		Client: c, Kinds: kinds, Clock: a.cluster, Namespace: own, Manager: managerName, Timeout: *o.timeout,
		Leads:    func(ctx context.Context) (leads, known bool, doubt string) { return a.managerLeads(ctx, c, own) },
		Progress: a.progress(),
	}
	if o.dryRun.value == "server" { // a look writes reviews of rights, which a client that only reads doesn't
		u.Client, u.DryRun = o.dryRun.writes(c), true
	}
	u.Report = func(what string) {
		u.Progress("")
		fmt.Fprintln(a.Out, what+o.dryRun.suffix())
	}
	return u, nil
}

// progress shows how far something is, in one line of a terminal that the next call replaces.
func (a *App) progress() func(string) {
	if !isTerminal(a.ErrOut) {
		return func(string) {}
	}
	return func(now string) { fmt.Fprint(a.ErrOut, "\r\x1b[K", now) }
}

// confirm asks as kubectl does.
func (a *App) confirm() bool {
	fmt.Fprint(a.Out, "Do you want to continue? (y/N): ")
	answer, err := bufio.NewReader(a.In).ReadString('\n')
	if err != nil {
		fmt.Fprintln(a.Out)
	}
	answer = strings.TrimSpace(answer)
	return answer == "y" || answer == "Y"
}

func (a *App) printRemaining(remaining []string) {
	if len(remaining) == 0 {
		return
	}
	fmt.Fprintln(a.Out, "What stays, since it isn't Autohealer's to delete:")
	for _, what := range remaining {
		fmt.Fprintln(a.Out, "  "+what)
	}
}

// roleHintFor says which role has the rights that are missing, on a line of its own; "" where none is.
func roleHintFor(blocked []string) string {
	for _, why := range blocked {
		if strings.HasPrefix(why, "You may not ") || strings.Contains(why, "forbidden") {
			return "\nIt takes the ClusterRole cluster-admin."
		}
	}
	return ""
}
