package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/breaker"
)

func (a *App) reset() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "reset [conditionset/]NAME",
		Short: "Close a ConditionSet's open breaker, after a look at why it opened",
		Long: `Close a ConditionSet's open breaker, after a look at why it opened: a breaker opens when so many nodes match at once that the
reporter, the network or the set is more likely wrong than the nodes are sick. Then the set acts again, within the limits.

It resets the breaker that is open now: one that opens later stays open. It waits until the manager has followed.

Exit code: 0 no breaker is open any more; 1 the manager did not follow in time; 2 it could not be done.`,
		Example:           "  kubectl autohealer reset conditionset/kernel-deadlock",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeBreakers,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.runReset(cmd.Context(), args[0], timeout) },
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for the manager")
	_ = cmd.RegisterFlagCompletionFunc("timeout", cobra.NoFileCompletions) // it fails for a flag that isn't there
	a.Config.AddFlags(cmd.Flags())
	return cmd
}

func (a *App) runReset(ctx context.Context, policy string, timeout time.Duration) error {
	name := policy
	if kind, rest, slashed := strings.Cut(policy, "/"); slashed {
		switch strings.ToLower(kind) {
		case "conditionset", "conditionsets", "cset":
			name = rest
		default:
			return fmt.Errorf("%q: this resets breakers of ConditionSets; of another kind, the message of its condition BreakerOpen says how", policy)
		}
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	open, err := breaker.Reset(ctx, c, name)
	switch {
	case err != nil:
		return fmt.Errorf("reset the breaker of %s: %w", policy, err)
	case open == nil:
		fmt.Fprintf(a.Out, "The breaker of conditionset/%s is not open.\n", name)
		return nil
	}
	ago := duration.HumanDuration(max(0, a.Clock.Since(open.Breaker.OpenedAt.Time)))
	fmt.Fprintf(a.Out, "conditionset.%s/%s: the breaker that opened %s ago is reset. %s\n", v1alpha1.GroupVersion.Group, name, ago, matchingNow(open.Set))
	followed, err := open.Followed(ctx, c, timeout)
	if err != nil {
		return fmt.Errorf("see whether the manager follows: %w", err)
	}
	if !followed {
		fmt.Fprintf(a.ErrOut, "No manager followed within %s; it will when it runs: kubectl autohealer status\n", timeout)
		return exitStatus(exitFound)
	}
	return nil
}

// matchingNow says what the set will act on.
func matchingNow(set *v1alpha1.ConditionSet) string {
	n := set.Status.Nodes
	if n == nil {
		return ""
	}
	says := fmt.Sprintf("%d of %d nodes match", n.Matching, n.Selected)
	if len(set.Status.SampleNodes) > 0 {
		says += ": " + strings.Join(set.Status.SampleNodes, ", ")
	}
	if int(n.Matching) > len(set.Status.SampleNodes) {
		says += ", …"
	}
	return says + ". They are tainted as the limits allow."
}

// completeBreakers completes the names of the sets whose breaker is open.
func (a *App) completeBreakers(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, err := a.client()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var sets v1alpha1.ConditionSetList
	if c.List(cmd.Context(), &sets) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range sets.Items {
		if b := sets.Items[i].Status.Breaker; b != nil && !b.Reset {
			names = append(names, "conditionset/"+sets.Items[i].Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
