package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/freeze"
	"github.com/resourcestack/autohealer/internal/domain/lease"
)

// managerName is the manager's Deployment, and its Lease.
const managerName = lease.Name

// stopManager is what is left when nothing can be frozen. An error about where Autohealer is would be in the way.
func (a *App) stopManager(ctx context.Context, c client.Client) string {
	own, _ := a.findNamespace(ctx, c)
	return "kubectl -n " + own + " scale deployment " + managerName + " --replicas=0"
}

type freezeOptions struct {
	reason  string
	timeout *time.Duration
	dryRun  dryRun
}

func (a *App) freeze() *cobra.Command {
	o := &freezeOptions{}
	cmd := &cobra.Command{
		Use:   "freeze",
		Short: "Stop everything in the cluster at once, undo included",
		Long: `Stop everything in the cluster at once, undo included. No policy does anything, and nothing that was done is taken back, until
thaw: tainted nodes stay tainted, and deleted policies stay until what they did can be undone.

It makes the Guardrail ` + v1alpha1.FreezeGuardrail + `, which no GitOps tool tracks, and waits until the manager confirms that it is in force. It
works while the webhook is down. To stop new acts only and let undo go on, apply a Guardrail with paused: true instead.

Exit code: 0 the manager confirmed, or none runs, or with --dry-run it could be frozen; 1 it did not confirm in time; 2 it could not be done.`,
		Example: `  kubectl autohealer freeze --reason "INC-4711: nodes flap"`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.runFreeze(cmd.Context(), o) },
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, for those who find everything frozen")
	o.timeout = timeoutFlag(cmd, 10*time.Second, "how long to wait for the manager")
	o.dryRun = dryRunFlag(cmd)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	a.addCluster(cmd, "reason")
	return cmd
}

func (a *App) runFreeze(ctx context.Context, o *freezeOptions) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	began := a.Clock.Now()
	gr, made, err := freeze.Freeze(ctx, o.dryRun.writes(c), o.reason)
	if err != nil {
		return fmt.Errorf("make Guardrail %s: %w%s", v1alpha1.FreezeGuardrail, err, a.freezeAlternatives(ctx, c, err))
	}
	if made {
		fmt.Fprintf(a.Out, "guardrail.%s/%s created%s\n", v1alpha1.GroupVersion.Group, gr.Name, o.dryRun.suffix())
	} else {
		fmt.Fprintf(a.Out, "Autohealer was frozen already, %s.\n", frozenSince(gr, a.cluster.Now()))
	}
	if o.dryRun.on() {
		return nil
	}
	confirmed, err := freeze.Confirmed(ctx, c, gr, *o.timeout)
	if err != nil {
		return fmt.Errorf("see whether the manager confirms: %w", err)
	}
	const thaw = "To go on: kubectl autohealer thaw"
	if confirmed {
		took := ""
		if made {
			took = fmt.Sprintf(", after %.1fs", a.Clock.Since(began).Seconds())
		}
		fmt.Fprintf(a.Out, "Frozen: nothing is done and nothing undone. The manager confirms%s.\n%s\n", took, thaw)
		return nil
	}
	own, _ := a.findNamespace(ctx, c)
	leads, known, _ := a.managerLeads(ctx, c, own)
	if known && !leads {
		fmt.Fprintf(a.Out, "Frozen: no manager leads now, so nothing is done anyway; one that starts does nothing, either.\n%s\n", thaw)
		return nil
	}
	fmt.Fprintf(a.ErrOut, `The Guardrail is stored, and no manager confirmed it within %s. A manager that sees it stops; to be sure, stop all:
  %s
See what they say: kubectl -n %s logs deployment/%s --all-pods --tail=20
`, *o.timeout, a.stopManager(ctx, c), own, managerName)
	return exitStatus(exitFound)
}

// managerLeads says whether a manager holds its Lease; known is false when that can't be read, and when no manager wrote it so, which
// doubt says.
func (a *App) managerLeads(ctx context.Context, c client.Client, own string) (leads, known bool, doubt string) {
	held := &coordinationv1.Lease{}
	err := c.Get(ctx, types.NamespacedName{Namespace: own, Name: managerName}, held)
	switch {
	case apierrors.IsNotFound(err):
		return false, true, ""
	case err != nil:
		return false, false, ""
	}
	shows := lease.Of(held.Spec, a.cluster.Now())
	doubt = shows.Message(held.Spec)
	return shows == lease.None, doubt == "", doubt
}

type thawOptions struct {
	timeout *time.Duration
	dryRun  dryRun
}

func (a *App) thaw() *cobra.Command {
	o := &thawOptions{}
	cmd := &cobra.Command{
		Use:   "thaw",
		Short: "Let Autohealer go on after freeze",
		Long: `Let Autohealer go on after freeze: it deletes the Guardrail ` + v1alpha1.FreezeGuardrail + `. What stopped matching meanwhile is undone; what
matches is done as the limits allow, those that waited longest first.

Exit code: 0 nothing is frozen any more, or with --dry-run it could be thawed; 1 another Guardrail freezes, too, or this
one was not gone in time; 2 it could not be done.`,
		Example:           "  kubectl autohealer thaw",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.runThaw(cmd.Context(), o) },
	}
	o.timeout = timeoutFlag(cmd, 10*time.Second, "how long to wait until it is gone")
	o.dryRun = dryRunFlag(cmd)
	a.addConfig(cmd)
	return cmd
}

func (a *App) runThaw(ctx context.Context, o *thawOptions) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	var remaining *v1alpha1.Guardrail
	was, others, err := freeze.Thaw(ctx, o.dryRun.writes(c))
	if err == nil && was != nil && !o.dryRun.on() {
		remaining, err = freeze.Gone(ctx, c, was, *o.timeout)
	}
	if err != nil {
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("thaw: %w%s", err, roleHint)
		}
		return fmt.Errorf("thaw: %w", err)
	}
	if remaining != nil {
		fmt.Fprintf(a.ErrOut, "Guardrail %s is deleted, still there after %s, and freezes until it is gone: it waits for the finalizers %q. See who set them: kubectl get guardrail %[1]s -o yaml\n", remaining.Name, *o.timeout, remaining.Finalizers)
		return exitStatus(exitFound)
	}
	if was != nil {
		fmt.Fprintf(a.Out, "guardrail.%s/%s deleted%s; it was frozen %s\n", v1alpha1.GroupVersion.Group, was.Name, o.dryRun.suffix(), frozenSince(was, a.cluster.Now()))
	}
	if len(others) > 0 {
		fmt.Fprintf(a.ErrOut, "Everything is frozen still, by Guardrail %s: set its spec.frozen to false, or delete it, where it comes from.\n", strings.Join(others, ", "))
		return exitStatus(exitFound)
	}
	if was == nil {
		fmt.Fprintln(a.Out, "Nothing is frozen.")
	}
	return nil
}

// frozenSince tells since when, by whom and why.
func frozenSince(gr *v1alpha1.Guardrail, now time.Time) string {
	text := fmt.Sprintf("since %s (%s)", gr.CreationTimestamp.UTC().Format(time.RFC3339), now.Sub(gr.CreationTimestamp.Time).Round(time.Second))
	if by := gr.Annotations[v1alpha1.AnnotationFrozenBy]; by != "" {
		text += " by " + by
	}
	if why := gr.Annotations[v1alpha1.AnnotationFreezeReason]; why != "" {
		text += ": " + why
	}
	return text
}

// roleHint is for those who lack rights.
const roleHint = "\nIt takes the ClusterRole autohealer-guardrail-admin."

// freezeAlternatives says what else to do, on lines of its own; "" where the error says enough.
func (a *App) freezeAlternatives(ctx context.Context, c client.Client, err error) string {
	switch {
	case meta.IsNoMatchError(err):
		return "\nThis cluster doesn't know Autohealer's kinds, so no policy is there to act. If a manager runs all the same, stop it:\n  " + a.stopManager(ctx, c)
	case apierrors.IsForbidden(err):
		return roleHint + " Who may scale Deployments can stop the manager instead, which stops undo, too:\n  " + a.stopManager(ctx, c)
	case strings.Contains(err.Error(), "failed calling webhook"):
		return "\nThe webhook configuration of this cluster is older than freeze, so the API server calls the webhook, which doesn't answer. Stop the manager instead:\n  " + a.stopManager(ctx, c)
	case errors.Is(err, context.DeadlineExceeded):
		return "\nThe API server doesn't answer; no manager can act by it, either."
	}
	return ""
}
