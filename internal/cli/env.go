package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/manifest"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
	"github.com/resourcestack/autohealer/internal/guard"
)

// policyEnv is what a verb knows of a cluster and of its operators' will.
type policyEnv struct {
	checker *check.Checker
	// snapshot and facts are nil when nothing is known of a cluster.
	snapshot *snapshot.Snapshot
	facts    *snapshot.Facts
	// policies judge: those that were given and the cluster's.
	policies policies
}

// stored is the object of this name in the cluster, nil when there is none or nothing is known of one.
func (w *policyEnv) stored(object map[string]any) map[string]any {
	if w.facts == nil {
		return nil
	}
	key := w.checker.KeyOf(object)
	return w.facts.Object(key.Kind, key.Namespace, key.Name)
}

// newEnv loads policies and, where it is known, a cluster.
func (a *App) newEnv(ctx context.Context, s *snapshot.Snapshot, p policies) (*policyEnv, error) {
	w, engine := &policyEnv{snapshot: s, policies: p}, guard.Options{OwnNamespace: a.ownNamespaceOr(s), Clock: a.Clock}
	namespace := *a.Config.Namespace
	if s != nil {
		namespace = cmp.Or(namespace, s.Namespace)
		w.policies = policies{replacing(p.guardrails, s.Guardrails()...), replacing(p.exceptions, s.Exceptions()...)}
		g, err := w.policies.guard(guard.Options{Clock: a.Clock}) //nolint:contextcheck // compiling waits for nothing
		if err != nil {
			return nil, err
		}
		if w.facts, err = snapshot.NewFacts(ctx, s, g, a.ownNamespaceOr(s)); err != nil {
			return nil, err
		}
		engine.Facts, engine.Planners, engine.Stored, engine.Authorizer = w.facts, w.facts.Planners(), s, s.Rights
	}
	var err error
	w.checker, err = check.New(check.Options{Options: engine, Guardrails: w.policies.guardrails, Exceptions: w.policies.exceptions, Namespace: namespace})
	return w, err
}

// newChecker asks the rules that need nothing but an object.
func (a *App) newChecker() (*check.Checker, error) {
	return check.New(check.Options{Options: guard.Options{Clock: a.Clock}})
}

// clusterFlags say where facts come from.
type clusterFlags struct {
	facts string
	live  bool
}

func (a *App) addFacts(cmd *cobra.Command, f *clusterFlags) {
	cmd.Flags().StringVar(&f.facts, "facts", "", "file with facts of a cluster, written by facts export or kubectl get -o yaml")
	// It fails for a flag that isn't there, and this one is.
	_ = cmd.MarkFlagFilename("facts", "yaml", "yml")
	a.addCluster(cmd)
}

// addCluster adds the flags that say which cluster is meant, and where Autohealer is in it. Of the command's own flags it names those
// whose values nobody can complete.
func (a *App) addCluster(cmd *cobra.Command, free ...string) {
	for _, flag := range free {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions) // it fails for a flag that isn't there
	}
	a.addConfig(cmd)
	cmd.Flags().StringVar(&a.ownNamespace, "autohealer-namespace", "",
		"namespace that Autohealer runs in. Default: where the cluster or its facts have it, or else "+check.DefaultNamespace)
	_ = cmd.RegisterFlagCompletionFunc("autohealer-namespace", a.completeNamespaces)
}

// ownNamespaceOr is Autohealer's namespace: as the flag says, as it was found, or where it is by default.
func (a *App) ownNamespaceOr(s *snapshot.Snapshot) string {
	found := ""
	if s != nil {
		found = s.OwnNamespace
	}
	return cmp.Or(a.ownNamespace, found, check.DefaultNamespace)
}

// findNamespace is Autohealer's namespace in a cluster: as the flag says, as it is found there, or where it is by default, also beside an error.
func (a *App) findNamespace(ctx context.Context, c client.Reader) (string, error) {
	if a.ownNamespace != "" {
		return a.ownNamespace, nil
	}
	found, err := snapshot.FindOwn(ctx, c)
	return cmp.Or(found, check.DefaultNamespace), err
}

// connect gives a client and Autohealer's namespace in its cluster.
func (a *App) connect(ctx context.Context) (c client.Client, own string, err error) {
	if c, err = a.client(); err != nil {
		return nil, "", err
	}
	own, err = a.findNamespace(ctx, c)
	return c, own, err
}

// readSnapshot reads the facts that the flags ask for; nil when they ask for none.
func (a *App) readSnapshot(ctx context.Context, f clusterFlags) (*snapshot.Snapshot, error) {
	switch {
	case f.facts != "":
		text, err := os.ReadFile(f.facts)
		if err != nil {
			return nil, fmt.Errorf("--facts: %w", err)
		}
		s, err := snapshot.Read(manifest.Decoded(text))
		if err != nil {
			return nil, fmt.Errorf("--facts %s: %w", f.facts, err)
		}
		for _, gap := range s.Gaps() {
			fmt.Fprintf(a.ErrOut, "warning: --facts %s: %s\n", f.facts, gap)
		}
		return s, nil
	case f.live:
		return a.readLive(ctx)
	}
	return nil, nil
}

func (a *App) readLive(ctx context.Context) (*snapshot.Snapshot, error) {
	cfg, err := a.restConfig()
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = 500, 1000 // what HealthCheckRegistrations look at is read object by object
	progress := a.progress()
	live := snapshot.Live{
		Config: cfg, Clock: a.Clock,
		Progress: func(kind string, n int) { progress(fmt.Sprintf("reading %s: %d", kind, n)) },
		Warn:     func(text string) { fmt.Fprintln(a.ErrOut, "warning:", text) },
	}
	s, err := live.Read(ctx)
	progress("")
	if err != nil {
		return nil, err
	}
	if s.Namespace, _, err = a.Config.ToRawKubeConfigLoader().Namespace(); err != nil {
		return nil, fmt.Errorf("find the namespace: %w", err)
	}
	s.Rights, err = a.rights(ctx, cfg)
	return s, err
}

// rights asks a cluster what accounts may do; nil when its user may not ask that.
func (a *App) rights(ctx context.Context, cfg *rest.Config) (authorizer.UnconditionalAuthorizer, error) {
	if a.Rights == nil {
		return nil, nil
	}
	asking, err := a.Rights(cfg)
	if err != nil {
		return nil, err
	}
	anybody := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: user.Anonymous}, Verb: "get", Resource: "pods", ResourceRequest: true}
	if _, _, err := asking.Authorize(ctx, anybody); err != nil {
		fmt.Fprintln(a.ErrOut, "warning: what service accounts may do can't be asked:", err)
		return nil, nil
	}
	return asking, nil
}

func (a *App) factsExport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write what previews need to know of a cluster",
		Long: `Write what previews need to know of a cluster, on standard output: a List of Kubernetes objects, as kubectl get -o yaml prints it, with what is read of
them: nodes with their labels, taints and conditions, their leases, which DaemonSets they can't do without; namespaces, Services and
which pods are behind them; of pods their labels, owners, and how their containers run and ran; Autohealer's policies; routes;
what stored ProbeConfigs name: the scales of dependents and the servers of kubeconfigs; and what stored HealthCheckRegistrations
read: their targets, and what their checks look at, of up to 1,000 targets of each. With the file, validate and plan say offline
what they would say now, but for what service accounts may do, and for what a ProbeConfig or a HealthCheckRegistration names that
no stored one does. An annotation of the List has a line for each thing that was asked for, as kubectl get takes it: what isn't
among the objects of such a line doesn't exist, and of anything else nothing is known.

The file names nodes, pods and their labels. It holds nothing secret: of Secrets only those with kubeconfigs that policies name are read,
and kept of them are the key, and the kubeconfig's server or why it is refused. It holds no environment of containers, no
messages and no annotations of others, unless a HealthCheckRegistration reads them.`,
		Example: `  kubectl autohealer facts export > facts.yaml
  kubectl autohealer validate -R -f policies/ --facts facts.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runFactsExport(cmd.Context()) },
	}
	a.addCluster(cmd)
	return cmd
}

func (a *App) runFactsExport(ctx context.Context) error {
	s, err := a.readLive(ctx)
	if err != nil {
		return err
	}
	s.OwnNamespace = a.ownNamespaceOr(s)
	w, err := a.newEnv(ctx, s, policies{})
	if err != nil {
		return err
	}
	if err := w.facts.Record(ctx, func(text string) { fmt.Fprintln(a.ErrOut, "warning:", text) }); err != nil {
		return fmt.Errorf("read what policies name: %w", err)
	}
	return s.Write(a.Out)
}
