package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/display"
	"github.com/resourcestack/autohealer/internal/cli/manifest"
	"github.com/resourcestack/autohealer/internal/cli/report"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kinds"
)

type planOptions struct {
	inputs
	clusterFlags
	output *output[report.Plans]
}

func (a *App) plan() *cobra.Command {
	o := &planOptions{}
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Show what policies would do to the cluster now",
		Long: `Show what policies would do to the cluster now. Of a ConditionSet: how many nodes it matches, which, and what the limits
hold back. Of a WeederConfig: for which Services a window is or would be open, which pods would be deleted, which not, and
why; for each other Service the same as if it recovered now. Of a ProbeConfig, which probes nothing here: what would be
scaled down in each target, level by level, if only the way from outside failed, and what it would have back; and what a
stored one of its name scaled down that this one would give back at once. Of an OutlierPolicy: for which of Envoy's clusters it
would hold and for which another one does, and how many hosts might be ejected at once. Of a HealthCheckRegistration: for each
target what every condition would become, and which checks say so; shoots aren't asked.

It reads nodes, their leases, DaemonSets, namespaces, Services, EndpointSlices, pods and policies once, of a ProbeConfig also
the Secrets and scales that it names, of a HealthCheckRegistration its targets and what its checks look at, and writes nothing.

Of several policies in -f each is judged as if those before it had been applied, and all as if the Guardrails and exceptions
in -f that are admitted had been. With --facts it asks a file instead of a
cluster.

Exit code: 0 nothing would be done; 1 something would; 2 the command line is wrong or the command failed; 3 a policy would
be refused.`,
		Example: `  # before a policy is applied
  kubectl autohealer plan -f kernel-deadlock.yaml
  kubectl autohealer plan -f weeder.yaml

  # without access to the cluster
  kubectl autohealer facts export > facts.yaml
  kubectl autohealer plan -f kernel-deadlock.yaml --facts facts.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runPlan(cmd.Context(), o) },
	}
	o.addFlags(cmd)
	a.addFacts(cmd, &o.clusterFlags)
	o.output = outputFlag(cmd, "Plan", map[string]printer[report.Plans]{"": func(w io.Writer, plans report.Plans) error { return plans.Text(w) }})
	return cmd
}

func (a *App) runPlan(ctx context.Context, o *planOptions) error {
	show, err := o.output.printer()
	if err != nil {
		return err
	}
	files, err := a.files(o.inputs)
	if err != nil {
		return err
	}
	o.live = o.facts == ""
	s, err := a.readSnapshot(ctx, o.clusterFlags)
	if err != nil {
		return err
	}
	w, err := a.newEnv(ctx, s, policies{})
	if err != nil {
		return err
	}
	w, guardrails, err := a.enforce(ctx, w, w.stored, files)
	if err != nil {
		return err
	}
	now := a.Clock.Now()
	plans := report.Plans{
		TakenAt: s.TakenAt.Time, Age: s.Age(now), Facts: s.Describe(now), Colors: wantsColors(a.Out), PausedBy: w.checker.Guard().Policy().PausedBy,
	}
	if plans.Plans, err = a.planAll(ctx, w, files, guardrails); err != nil {
		return err
	}
	if len(plans.Plans) == 0 {
		return fmt.Errorf("--filename: there is no %s in %s", display.List(kinds.Names(kinds.Policies()), "or"), strings.Join(o.filenames, ", "))
	}
	if err := show.write(plans, a.Out); err != nil {
		return err
	}
	switch {
	case plans.Refused():
		return exitStatus(exitRefused)
	case plans.Acting() > 0:
		return exitStatus(exitFound)
	}
	return nil
}

// planAll plans all policies. Guardrails and exceptions do nothing by themselves; those that would be refused are reported.
func (a *App) planAll(ctx context.Context, w *policyEnv, files []manifest.File, guardrails []check.Report) ([]report.Plan, error) {
	var plans []report.Plan
	for d := range manifest.Each(files, "") {
		if isGuardrail(d) {
			if !guardrails[0].Allowed {
				plans = append(plans, report.Plan{Report: guardrails[0]})
			}
			guardrails = guardrails[1:]
			continue
		}
		kind, _ := d.Object["kind"].(string)
		if !check.Ours(d) || len(d.Problems) == 0 && !slices.Contains(kinds.Names(kinds.Policies()), kind) {
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

// planOne asks rules and planner about one policy, as an update where one of its name is stored. An admitted one is in force
// for those that follow, as when all are applied in their order.
func (a *App) planOne(ctx context.Context, w *policyEnv, d manifest.Document) (report.Plan, error) {
	p := report.Plan{Report: w.checker.Document(ctx, d, w.stored(d.Object))}
	if p.Report.Stored == nil {
		return p, nil
	}
	if err := w.snapshot.Covers(p.Report.Kind); err != nil {
		return p, fmt.Errorf("%s %s: %w", p.Report.Kind, strings.TrimPrefix(p.Report.Namespace+"/"+p.Report.Name, "/"), err)
	}
	err := w.forecast(ctx, &p)
	return p, err
}

// forecast asks the planner of a policy's kind what the policy would do, and puts an admitted one in force for those that follow. Of
// a kind that isn't here nothing is foretold but the verdict.
func (w *policyEnv) forecast(ctx context.Context, p *report.Plan) error {
	object := kinds.Named(p.Report.Kind).New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(p.Report.Stored, object); err != nil {
		return fmt.Errorf("read %T: %w", object, err)
	}
	policy := w.checker.Guard().Policy()
	limits, paused := policy.Limits, policy.PausedBy
	switch o := object.(type) {
	case *v1alpha1.ConditionSet:
		forecast := w.facts.ForecastConditionSet(o, limits, time.Time{})
		if err := w.apply(p, o); err != nil {
			return err
		}
		sum, _ := w.facts.Summary(o.Name) // with this one in its place
		p.ConditionSet(o, forecast, sum, policy)
		return nil
	case *v1alpha1.WeederConfig:
		p.WeederConfig(o, w.facts.ForecastPods(o, stateOfWeeder(p, policy), limits), paused)
	case *v1alpha1.ProbeConfig:
		of := report.Probes{BreakerOpen: w.facts.ProbeBreakerOpen(), Now: w.facts.ProbedNow(client.ObjectKeyFromObject(o))}
		forecast, err := w.facts.ForecastProbeConfig(ctx, o, limits, time.Time{})
		if of.Unknown, err = unknown(err); err != nil {
			return err
		}
		if !p.Report.Allowed {
			forecast.Items.Restores = nil // the stored one stays
		}
		p.ProbeConfig(o, forecast, of, paused)
	case *v1alpha1.OutlierPolicy:
		read, err := outlier.NewPolicy(o)
		if err != nil {
			return fmt.Errorf("read OutlierPolicy %s/%s: %w", o.Namespace, o.Name, err)
		}
		p.OutlierPolicy(o, read, w.facts.ForecastOutlierPolicy(o, limits, time.Time{}), paused)
	case *v1alpha1.HealthCheckRegistration:
		forecast, err := w.facts.ForecastRegistration(ctx, o, limits, time.Time{})
		notKnown, err := unknown(err)
		if err != nil {
			return err
		}
		p.HealthCheckRegistration(o, forecast, notKnown, paused)
	default:
		return nil
	}
	return w.apply(p, object)
}

// apply puts an admitted policy in force.
func (w *policyEnv) apply(p *report.Plan, policy client.Object) error {
	if !p.Report.Allowed {
		return nil
	}
	return w.facts.Apply(policy)
}

func stateOfWeeder(p *report.Plan, policy guardrail.Policy) lifecycle.State {
	switch {
	case !p.Report.Allowed:
		return lifecycle.Refused
	case policy.Paused():
		return lifecycle.Paused
	}
	return lifecycle.Active
}

// unknown takes an error that says that something isn't known for what is reported.
func unknown(err error) (string, error) {
	if errors.Is(err, guard.ErrNotKnown) {
		return err.Error(), nil
	}
	return "", err
}
