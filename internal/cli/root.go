// Package cli is the kubectl plugin: `kubectl autohealer VERB`. A verb is a cobra command, thin over the packages below.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/suggest"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/version"
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
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return complete(ctx, root)
	}
	failed, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if status, ok := errors.AsType[exitStatus](err); ok {
		return int(status)
	}
	fmt.Fprintf(app.ErrOut, "error: %s\n", app.connectionError(err))
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
	root := group(
		"kubectl-autohealer", "Check Autohealer's policies before they are stored, see what they would do, and stop what they do",
		app.validate(),
		app.plan(),
		group("facts", "Keep what previews need to know of a cluster", app.factsExport()),
		group("rules", "Look at the rules that judge policies", app.rulesList(), app.rulesExplain(), app.rulesTest()),
		app.hash(),
		app.convert(),
		app.envoyBootstrap(),
		app.freeze(),
		app.thaw(),
		app.status(),
		app.why(),
		app.undo(),
		app.reset(),
		app.history(),
		app.check(),
		app.uninstall(),
		app.version(),
	)
	root.Long = root.Short + `.

It judges with the same rules, by the same code, as the webhook in a cluster.`
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl autohealer"}
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = version.Of(app.Version)
	root.PersistentPreRun = func(*cobra.Command, []string) { app.began = true }
	root.SetIn(app.In)
	root.SetOut(app.Out)
	root.SetErr(app.ErrOut)
	return root
}

// clusterClock is a cluster's: that of its API server, and ours until that has answered. Holds and Leases are times of the
// cluster, and a workstation's clock may be off.
type clusterClock struct {
	server *kube.ServerClock
	ours   clock.PassiveClock
}

func (c clusterClock) Now() time.Time {
	if now := c.server.Now(); !now.IsZero() {
		return now
	}
	return c.ours.Now()
}

func (c clusterClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// restConfig is for the cluster that kubectl's flags name.
func (a *App) restConfig() (*rest.Config, error) {
	cfg, err := a.Config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w (kubectl config view shows what there is; --kubeconfig and --context choose)", err)
	}
	return cfg, nil
}

// client talks to the cluster that kubectl's flags name, and learns its time.
func (a *App) client() (client.Client, error) {
	cfg, err := a.restConfig()
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1 // these are few requests, and whoever stops everything shouldn't wait for a turn of their own
	server := &kube.ServerClock{Clock: a.Clock}
	server.Watch(cfg)
	a.cluster = clusterClock{server, a.Clock}
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), v1alpha1.AddToScheme(known)); err != nil {
		return nil, fmt.Errorf("prepare client: %w", err)
	}
	c, err := client.New(cfg, client.Options{Scheme: known})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return c, nil
}

// connectionError is what an error says, with the API server that can't be reached, and how to ask another, in place of the request's URL.
func (a *App) connectionError(err error) string {
	text := err.Error()
	failed, isRequest := errors.AsType[*url.Error](err)
	if !isRequest {
		return text
	}
	cfg, noCluster := a.Config.ToRESTConfig()
	requested, _ := url.Parse(failed.URL)
	if noCluster != nil || requested == nil {
		return text
	}
	server, _ := url.Parse(cfg.Host)
	raw, unreadable := a.Config.ToRawKubeConfigLoader().RawConfig()
	if server == nil || server.Host != requested.Host || unreadable != nil {
		return text
	}
	instead := fmt.Sprintf("can't reach the API server %s of context %q: %v (kubectl config get-contexts lists others; --context takes one)",
		server.Redacted(), cmp.Or(ptr.Deref(a.Config.Context, ""), raw.CurrentContext), failed.Err)
	switch {
	case ptr.Deref(a.Config.APIServer, "") != "":
		instead = fmt.Sprintf("can't reach the API server %s of --server: %v", server.Redacted(), failed.Err)
	case len(raw.Clusters) == 0:
		instead = fmt.Sprintf("no kubeconfig names a cluster, and there is no API server at %s: %v (set KUBECONFIG, or give --kubeconfig)", server.Redacted(), failed.Err)
	}
	return strings.Replace(text, failed.Error(), instead, 1)
}

// group is a command that only has others.
func group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: noSuchVerb, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(verbs...)
	return cmd
}

// noSuchVerb refuses what is no verb: cobra would have found that.
func noSuchVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var verbs []string
	for _, verb := range cmd.Commands() {
		if verb.Name() != "uninstall" { // nobody who wants to install is to be led there
			verbs = append(verbs, verb.Name())
		}
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), suggest.DidYouMean(args[0], verbs))
}
