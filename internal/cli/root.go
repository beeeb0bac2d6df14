package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// Exit codes.
const (
	exitOK = 0
	// exitFound: validate found a violation, plan found something to do.
	exitFound = 1
	// exitError: the command line is wrong, or the command could not do its work.
	exitError = 2
	// exitRefused: plan was asked about an object that would be refused.
	exitRefused = 3
)

// exitStatus ends a command whose output has said everything.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// App is what commands share.
type App struct {
	genericiooptions.IOStreams
	// Version set when the program was linked; "" asks the Go toolchain.
	Version string
	// Clock. Default: the machine's.
	Clock clock.PassiveClock
	// Config reads kubeconfig and kubectl's flags for clusters.
	Config *genericclioptions.ConfigFlags
	// Rights makes what asks a cluster what accounts may do. Without it, rules that ask are listed as skipped.
	Rights func(*rest.Config) (authorizer.UnconditionalAuthorizer, error)

	// ownNamespace is what a flag says of where Autohealer is; "" when it says nothing.
	ownNamespace string
	// cluster is the time of the cluster that client talks to.
	cluster clock.PassiveClock
	// began: the command line was understood.
	began bool
}

// Run runs the plugin with arguments and gives its exit code.
func Run(ctx context.Context, app *App, args []string) int {
	root := New(app) //nolint:contextcheck // cobra gives each verb the context of ExecuteContextC
	root.SetArgs(args)
	failed, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if status, ok := errors.AsType[exitStatus](err); ok {
		return int(status)
	}
	fmt.Fprintf(app.ErrOut, "error: %s\n", app.reaching(err))
	if !app.began {
		fmt.Fprintf(app.ErrOut, "See '%s --help'.\n", failed.CommandPath())
	}
	return exitError
}

// New is the plugin's command with all verbs.
func New(app *App) *cobra.Command {
	if app.Clock == nil {
		app.Clock = clock.RealClock{}
	}
	if app.Config == nil {
		app.Config = genericclioptions.NewConfigFlags(true)
	}
	root := &cobra.Command{
		Use:   "kubectl-autohealer",
		Short: "Check Autohealer's policies before they are stored, see what they would do, and stop what they do",
		Long: `Check Autohealer's policies before they are stored, see what they would do, and stop what they do.

It judges with the same rules, by the same code, as the webhook in a cluster.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl autohealer"},
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRun: func(*cobra.Command, []string) { app.began = true },
	}
	root.SetIn(app.In)
	root.SetOut(app.Out)
	root.SetErr(app.ErrOut)
	root.AddCommand(
		app.validate(),
		app.plan(),
		app.facts(),
		app.rules(),
		app.hash(),
		app.convert(),
		app.envoyBootstrap(),
		app.freeze(),
		app.thaw(),
		app.status(),
		app.why(),
		app.undo(),
		app.reset(),
		app.acts(),
		app.check(),
		app.uninstall(),
		app.version(),
	)
	return root
}
