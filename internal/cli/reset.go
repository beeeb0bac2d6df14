package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/breaker"
	"github.com/resourcestack/autohealer/internal/kinds"
)

type resetOptions struct {
	timeout *time.Duration
	dryRun  dryRun
}

func (a *App) reset() *cobra.Command {
	o := &resetOptions{}
	cmd := &cobra.Command{
		Use:   "reset [conditionset/]NAME | healthcheckregistration/NAME | probeconfig/NAME",
		Short: "Close a policy's open breaker, after a look at why it opened",
		Long: `Close a policy's open breaker, after a look at why it opened: that of a ConditionSet opens when so many nodes match at once,
that of a HealthCheckRegistration when so many conditions turn False together, and that of all ProbeConfigs, which is one, when
so many targets fail together, that the reporter, the network or the policy is more likely wrong than they are. Then the policies act again, within the limits.

A reset on a ProbeConfig outside Autohealer's own namespace annotates that namespace instead, which takes the right to.

It resets the breaker that is open now: one that opens later stays open. It waits until the manager has followed.

Exit code: 0 no breaker is open any more, or with --dry-run it could be reset; 1 the manager did not follow in time; 2 it could not be done.`,
		Example: `  kubectl autohealer reset conditionset/kernel-deadlock
  kubectl autohealer reset -n autohealer-system probeconfig/shoots`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeBreakers,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.runReset(cmd.Context(), args[0], o) },
	}
	o.timeout = timeoutFlag(cmd, 10*time.Second, "how long to wait for the manager")
	o.dryRun = dryRunFlag(cmd)
	a.addCluster(cmd)
	return cmd
}

func (a *App) runReset(ctx context.Context, argument string, o *resetOptions) error {
	resource, policy, err := a.breakerPolicy(argument)
	if err != nil {
		return err
	}
	c, own, err := a.connect(ctx)
	if err != nil {
		return err
	}
	open, err := breaker.Reset(ctx, o.dryRun.writes(c), policy, own)
	switch {
	case err != nil:
		return fmt.Errorf("reset the breaker of %s: %w", argument, err)
	case open == nil:
		fmt.Fprintf(a.Out, "The breaker of %s/%s is not open.\n", resource, policy.GetName())
		return nil
	}
	ago := duration.HumanDuration(max(0, a.Clock.Since(open.OpenedAt)))
	fmt.Fprintf(a.Out, "%s.%s/%s: %s that opened %s ago is reset%s. %s\n", resource, v1alpha1.GroupVersion.Group, policy.GetName(), breakerOf(policy), ago, o.dryRun.suffix(), concerned(policy))
	if o.dryRun.on() {
		return nil
	}
	followed, err := open.Followed(ctx, c, *o.timeout)
	if err != nil {
		return fmt.Errorf("see whether the manager follows: %w", err)
	}
	if !followed {
		fmt.Fprintf(a.ErrOut, "No manager followed within %s; it will when it runs: kubectl autohealer status\n", *o.timeout)
		return exitStatus(exitFound)
	}
	return nil
}

// breakerKinds are the short names of the kinds that have a breaker.
var breakerKinds = map[string]string{"cset": "ConditionSet", "hcr": "HealthCheckRegistration", "prc": "ProbeConfig"}

// breakerPolicy is the policy that an argument names, with its kind as kubectl names that.
func (a *App) breakerPolicy(argument string) (resource string, policy client.Object, err error) {
	kind, name, slashed := strings.Cut(argument, "/")
	if !slashed {
		kind, name = "conditionset", argument
	}
	for short, named := range breakerKinds {
		k := kinds.Named(named)
		if !slices.Contains([]string{short, k.Plural(), strings.ToLower(named)}, strings.ToLower(kind)) {
			continue
		}
		policy := k.New()
		policy.SetName(name)
		if k.Namespaced {
			namespace, _, err := a.Config.ToRawKubeConfigLoader().Namespace()
			if err != nil {
				return "", nil, fmt.Errorf("find the namespace: %w", err)
			}
			policy.SetNamespace(namespace)
		}
		return strings.ToLower(named), policy, nil
	}
	return "", nil, fmt.Errorf("%q: only ConditionSets, HealthCheckRegistrations and ProbeConfigs have breakers", argument)
}

func breakerOf(policy client.Object) string {
	if _, ok := policy.(*v1alpha1.ProbeConfig); ok {
		return "the breaker of all ProbeConfigs"
	}
	return "the breaker"
}

// concerned says what a policy will act on.
func concerned(policy client.Object) string {
	switch p := policy.(type) {
	case *v1alpha1.ConditionSet:
		if n := p.Status.Nodes; n != nil {
			return fmt.Sprintf("%d of %d nodes match%s. They are tainted as the limits allow.", n.Matching, n.Selected, sampleNames(p.Status.SampleNodes, int(n.Matching)))
		}
	case *v1alpha1.HealthCheckRegistration:
		return fmt.Sprintf("%d of %d targets are healthy. What the checks find is written.", p.Status.Healthy, p.Status.Targets)
	case *v1alpha1.ProbeConfig:
		var failing []string
		for _, t := range p.Status.WorstTargets {
			failing = append(failing, t.Namespace)
		}
		if n := p.Status.Targets; n != nil {
			return fmt.Sprintf("%d of its %d targets fail the external probe%s. What fails is scaled down as the limits allow.", n.ExternalUnhealthy, n.Total, sampleNames(failing, int(n.ExternalUnhealthy)))
		}
	}
	return ""
}

// sampleNames names those that are known.
func sampleNames(names []string, of int) string {
	if len(names) == 0 || of == 0 {
		return ""
	}
	text := ": " + strings.Join(names, ", ")
	if of > len(names) {
		text += ", …"
	}
	return text
}

// completeBreakers completes the names of the policies whose breaker is open.
func (a *App) completeBreakers(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, err := a.client()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	namespace, _, err := a.Config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, kind := range kinds.Policies() {
		list := kind.NewList()
		if c.List(cmd.Context(), list, client.InNamespace(namespace)) != nil { // which those without one ignore
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		_ = meta.EachListItem(list, func(item runtime.Object) error {
			if policy, ok := item.(client.Object); ok && breaker.Of(policy) != nil {
				names = append(names, strings.ToLower(kind.Name())+"/"+policy.GetName())
			}
			return nil
		})
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
