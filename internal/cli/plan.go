package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/manifest"
	"github.com/resourcestack/autohealer/internal/cli/report"
)

type planOptions struct {
	inputs
	clusterFlags
	output *choice
}

func (a *App) plan() *cobra.Command {
	o := &planOptions{}
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Tell what policies would do to the cluster now",
		Long: `Tell what policies would do to the cluster now: how many nodes they match, which, and what the limits hold back.

It reads nodes, their leases, DaemonSets and policies once, and writes nothing. Of several policies in -f each is judged as
if those before it had been applied. With --facts it asks a file instead of a cluster.

Exit code: 0 nothing would be done; 1 something would; 2 the command line is wrong or the command failed; 3 a policy would
be refused.`,
		Example: `  # before a policy is applied
  kubectl autohealer plan -f kernel-deadlock.yaml

  # without access to the cluster
  kubectl autohealer facts export -o facts.yaml
  kubectl autohealer plan -f kernel-deadlock.yaml --facts facts.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runPlan(cmd.Context(), o) },
	}
	o.addFlags(cmd)
	a.addFacts(cmd, &o.clusterFlags)
	o.output = choiceFlag(cmd, "output", "o", "output format", "text", "json")
	return cmd
}

func (a *App) runPlan(ctx context.Context, o *planOptions) error {
	files, err := a.files(o.inputs)
	if err != nil {
		return err
	}
	o.live = o.facts == ""
	s, err := a.readSnapshot(ctx, o.clusterFlags)
	if err != nil {
		return err
	}
	w, err := a.newWorld(ctx, s, policies{})
	if err != nil {
		return err
	}
	now, policy := a.Clock.Now(), w.checker.Guard().Policy()
	forecast := report.Forecast{
		TakenAt: s.TakenAt.Time, Age: s.Age(now), Facts: s.Describe(now), Colors: wantsColors(a.Out),
		EvictPace: policy.Limits.EvictPace, PausedBy: policy.PausedBy,
	}
	if forecast.Plans, err = a.planAll(ctx, w, documentsOf(files)); err != nil {
		return err
	}
	if len(forecast.Plans) == 0 {
		return fmt.Errorf("--filename: there is no ConditionSet in %s", strings.Join(o.filenames, ", "))
	}
	if err := forecast.Write(a.Out, o.output.value); err != nil {
		return err
	}
	switch {
	case forecast.Refused():
		return exitStatus(exitRefused)
	case forecast.Acts():
		return exitStatus(exitFound)
	}
	return nil
}

func (a *App) planAll(ctx context.Context, w *world, documents []manifest.Document) ([]report.Plan, error) {
	var plans []report.Plan
	for _, d := range documents {
		if !check.Ours(d) || len(d.Problems) == 0 && d.Object["kind"] != "ConditionSet" {
			continue
		}
		p, err := a.planOne(ctx, w, d)
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// planOne asks rules and planner about one set, as an update where one of its name is stored. An admitted one is in force
// for those that follow, as when all are applied in their order.
func (a *App) planOne(ctx context.Context, w *world, d manifest.Document) (report.Plan, error) {
	name := keyOf(d.Object).name
	old, err := w.facts.Object(name)
	if err != nil {
		return report.Plan{}, err
	}
	p := report.Plan{Report: w.checker.Document(ctx, d, old)}
	if p.Report.Stored == nil {
		return p, nil
	}
	p.Set = &v1alpha1.ConditionSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(p.Report.Stored, p.Set); err != nil {
		return p, fmt.Errorf("read ConditionSet: %w", err)
	}
	p.Preview = w.facts.PreviewConditionSet(p.Set, w.checker.Guard().Policy().Limits, a.Clock.Now())
	if p.Report.Allowed {
		w.facts.Apply(p.Set)
	}
	if sum, ok := w.facts.Summary(name); ok {
		p.TaintedNow, p.BreakerOpens = sum.Tainted, sum.Breaker != nil && !sum.Breaker.Reset
	}
	return p, nil
}
