package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/lease"
	"github.com/resourcestack/autohealer/internal/version"
)

// versions is what version tells.
type versions struct {
	Client string `json:"clientVersion"`
	// Manager is that of the manager that leads, "" when it isn't known, which ManagerUnknown says why.
	Manager        string `json:"managerVersion,omitempty"`
	ManagerUnknown string `json:"managerVersionUnknown,omitempty"`
	Kubernetes     string `json:"kubernetesVersion,omitempty"`
}

func (a *App) version() *cobra.Command {
	clientOnly := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program, of the manager and of Kubernetes",
		Long: `Print the versions of this program, of the manager that leads in the cluster, as it wrote it on its Lease, and of the cluster's API
server.

Exit code: 0 they are printed, or it is said why the manager's isn't known; 2 the command line is wrong or the cluster can't be asked.`,
		Example: `  kubectl autohealer version
  kubectl autohealer version --client`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	output := outputFlag(cmd, "Version", map[string]printer[versions]{"": versionsText})
	cmd.Flags().BoolVar(&clientOnly, "client", false, "only the version of this program, without a cluster")
	a.addCluster(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		show, err := output.printer()
		if err != nil {
			return err
		}
		v := versions{Client: version.Of(a.Version)}
		if !clientOnly {
			err = a.askVersions(cmd.Context(), &v)
		}
		return errors.Join(show.write(v, a.Out), err) // what is known is shown beside an error
	}
	return cmd
}

// askVersions asks a cluster for what runs in it.
func (a *App) askVersions(ctx context.Context, v *versions) error {
	server, err := a.Config.ToDiscoveryClient()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	kubernetes, err := server.ServerVersion()
	if err != nil {
		return fmt.Errorf("ask for the API server's version: %w", err)
	}
	v.Kubernetes = kubernetes.GitVersion
	c, own, err := a.connect(ctx)
	if err != nil {
		return err
	}
	var held coordinationv1.Lease
	err = c.Get(ctx, types.NamespacedName{Namespace: own, Name: managerName}, &held)
	switch {
	case apierrors.IsNotFound(err):
		v.ManagerUnknown = fmt.Sprintf("there is no Lease %s in namespace %s: no manager ran there yet, or it runs with --leader-elect=false; if it runs in another namespace, name that with --autohealer-namespace", managerName, own)
	case apierrors.IsForbidden(err):
		v.ManagerUnknown = err.Error() + ". It takes the ClusterRole autohealer-viewer, bound in namespace " + own + " or in the whole cluster"
	case err != nil:
		return fmt.Errorf("ask for the manager's version: %w", err)
	default:
		v.Manager, v.ManagerUnknown = ofLeader(&held, a.cluster.Now())
	}
	return nil
}

// ofLeader is the version of the manager that leads, or why it isn't known. What one wrote that led before says nothing of what runs now.
func ofLeader(held *coordinationv1.Lease, now time.Time) (version, unknown string) {
	switch doubt := lease.Of(held.Spec, now); doubt {
	case lease.None:
	case lease.NotHeld:
		return "", "no manager leads now"
	default:
		return "", fmt.Sprintf("the Lease %s in namespace %s %s", held.Name, held.Namespace, doubt.Message(held.Spec))
	}
	if version = lease.Version(held); version == "" {
		return "", "the manager that leads doesn't report its version"
	}
	return version, ""
}

func versionsText(w io.Writer, v versions) error {
	fmt.Fprintf(w, "Client Version: %s\n", v.Client)
	switch {
	case v.Manager != "":
		fmt.Fprintf(w, "Manager Version: %s\n", v.Manager)
	case v.ManagerUnknown != "":
		fmt.Fprintf(w, "Manager Version: not known: %s\n", v.ManagerUnknown)
	}
	if v.Kubernetes != "" {
		fmt.Fprintf(w, "Kubernetes Version: %s\n", v.Kubernetes)
	}
	return nil
}
