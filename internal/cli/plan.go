package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/manifest"
	"github.com/resourcestack/autohealer/internal/cli/report"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/guard"
)

type planOptions struct {
	inputs
	clusterFlags
	output *choice
	trace  string
}

// planned are the kinds that a plan is made for.
var planned = []any{"ConditionSet", "WeederConfig", "ProbeConfig", "OutlierPolicy", "HealthCheckRegistration"}

func (a *App) plan() *cobra.Command {
	o := &planOptions{}
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Tell what policies would do to the cluster now",
		Long: `Tell what policies would do to the cluster now. Of a ConditionSet: how many nodes it matches, which, and what the limits
hold back. Of a WeederConfig: for which Services a window is or would be open, which pods would be deleted, which not, and
why; for each other Service the same as if it recovered now. Of a ProbeConfig, which probes nothing here: what would be
scaled down in each target, level by level, if only the way from outside failed, and what it would have back; and what a
stored one of its name scaled down that this one would give back at once. Of an OutlierPolicy: for which of Envoy's clusters it
would hold and for which another one does, and how many hosts might be ejected at once. Of a HealthCheckRegistration: for each
target what every condition would become, and which checks say so; shoots aren't asked.

It reads nodes, their leases, DaemonSets, namespaces, Services, EndpointSlices, pods and policies once, of a ProbeConfig also
the Secrets and scales that it names, of a HealthCheckRegistration its targets and what its checks look at, and writes nothing.
With --trace it asks nobody: it tells whom of a trace's hosts Envoy would have ejected for the OutlierPolicies in -f, and when.
The file has lines of time, host and result: a number of seconds, a duration or a moment; an HTTP status, connect-failure,
timeout, or for bytes alone connected; a line without a result only names a host. Jitter, which is chance, is left out.

Of several policies in -f each is judged as if those before it had been applied, and all as if the Guardrails and exceptions
in -f that are admitted had been. With --facts it asks a file instead of a
cluster.

Exit code: 0 nothing would be done; 1 something would; 2 the command line is wrong or the command failed; 3 a policy would
be refused.`,
		Example: `  # before a policy is applied
  kubectl autohealer plan -f kernel-deadlock.yaml
  kubectl autohealer plan -f weeder.yaml

  # whom would Envoy have ejected yesterday?
  kubectl autohealer plan -f outlierpolicy.yaml --trace trace.csv

  # without access to the cluster
  kubectl autohealer facts export -o facts.yaml
  kubectl autohealer plan -f kernel-deadlock.yaml --facts facts.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runPlan(cmd.Context(), o) },
	}
	o.addFlags(cmd)
	a.addFacts(cmd, &o.clusterFlags)
	cmd.Flags().StringVar(&o.trace, "trace", "", "file with what a proxy saw; tells whom Envoy would have ejected")
	// Both fail for flags that aren't there, and these are.
	_ = cmd.MarkFlagFilename("trace", "csv")
	cmd.MarkFlagsMutuallyExclusive("trace", "facts")
	o.output = choiceFlag(cmd, "output", "o", "output format", "text", "json")
	return cmd
}

func (a *App) runPlan(ctx context.Context, o *planOptions) error {
	files, err := a.files(o.inputs)
	if err != nil {
		return err
	}
	if o.trace != "" {
		return a.runTrace(ctx, o, documentsOf(files))
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
	w, rails, err := a.enforce(ctx, w, w.stored, files)
	if err != nil {
		return err
	}
	now, policy := a.Clock.Now(), w.checker.Guard().Policy()
	forecast := report.Forecast{
		TakenAt: s.TakenAt.Time, Age: s.Age(now), Facts: s.Describe(now), Colors: wantsColors(a.Out),
		EvictPace: policy.Limits.EvictPace, PausedBy: policy.PausedBy,
	}
	if forecast.Plans, err = a.planAll(ctx, w, files, rails); err != nil {
		return err
	}
	if len(forecast.Plans) == 0 {
		return fmt.Errorf("--filename: there is no ConditionSet, WeederConfig, ProbeConfig, OutlierPolicy or HealthCheckRegistration in %s", strings.Join(o.filenames, ", "))
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

// planAll plans all policies. Guardrails and exceptions do nothing by themselves; those that would be refused are told.
func (a *App) planAll(ctx context.Context, w *world, files []manifest.File, rails map[manifest.Place]check.Report) ([]report.Plan, error) {
	var plans []report.Plan
	for d := range manifest.Each(files, "") {
		if rail, isRail := rails[d.Place()]; isRail {
			if !rail.Allowed {
				plans = append(plans, report.Plan{Report: rail})
			}
			continue
		}
		if !check.Ours(d) || len(d.Problems) == 0 && !slices.Contains(planned, d.Object["kind"]) {
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
func (a *App) planOne(ctx context.Context, w *world, d manifest.Document) (report.Plan, error) {
	old, err := w.stored(ctx, d.Object)
	if err != nil {
		return report.Plan{}, err
	}
	p := report.Plan{Report: w.checker.Document(ctx, d, old)}
	switch {
	case p.Report.Stored == nil:
		return p, nil
	case p.Report.Kind == "WeederConfig":
		return p, a.planWeeder(w, &p)
	case p.Report.Kind == "ProbeConfig":
		return p, a.planProbe(ctx, w, &p)
	case p.Report.Kind == "OutlierPolicy":
		return p, a.planOutlier(w, &p)
	case p.Report.Kind == "HealthCheckRegistration":
		return p, a.planChecks(ctx, w, &p)
	}
	return p, a.planSet(w, &p)
}

func (a *App) planSet(w *world, p *report.Plan) error {
	p.Set = &v1alpha1.ConditionSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(p.Report.Stored, p.Set); err != nil {
		return fmt.Errorf("read ConditionSet: %w", err)
	}
	p.Preview = w.facts.PreviewConditionSet(p.Set, w.checker.Guard().Policy().Limits, a.Clock.Now())
	if p.Report.Allowed {
		w.facts.Apply(p.Set)
	}
	if sum, ok := w.facts.Summary(p.Set.Name); ok {
		p.TaintedNow, p.BreakerOpens = sum.Tainted, sum.Breaker != nil && !sum.Breaker.Reset
	}
	return nil
}

func (a *App) planWeeder(w *world, p *report.Plan) error {
	wc := &v1alpha1.WeederConfig{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(p.Report.Stored, wc); err != nil {
		return fmt.Errorf("read WeederConfig: %w", err)
	}
	if !w.facts.KnowsWorkloads() {
		return fmt.Errorf("WeederConfig %s/%s: the facts have no pods and Services; write them anew with facts export, as a user who may list both everywhere", wc.Namespace, wc.Name)
	}
	policy := w.checker.Guard().Policy()
	state := lifecycle.Active
	switch {
	case !p.Report.Allowed:
		state = lifecycle.Refused
	case policy.Paused():
		state = lifecycle.Paused
	}
	p.Weeder = &report.WeederPlan{
		Config: wc, Preview: w.facts.PreviewWeederConfig(wc, policy.Limits, a.Clock.Now()), Outlook: w.facts.OutlookOf(wc, state, policy.Limits),
	}
	if p.Report.Allowed {
		w.facts.ApplyWeederConfig(wc)
	}
	return nil
}

func (a *App) planProbe(ctx context.Context, w *world, p *report.Plan) error {
	pc := &v1alpha1.ProbeConfig{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(p.Report.Stored, pc); err != nil {
		return fmt.Errorf("read ProbeConfig: %w", err)
	}
	if !w.facts.KnowsProbed() {
		return fmt.Errorf("ProbeConfig %s/%s: the facts have nothing of what ProbeConfigs name; write them anew with facts export, as a user who may read it", pc.Namespace, pc.Name)
	}
	p.Probe = &report.ProbePlan{
		Config: pc, BreakerOpen: w.facts.ProbeBreakerOpen(), Now: w.facts.ProbedNow(types.NamespacedName{Namespace: pc.Namespace, Name: pc.Name}),
	}
	var err error
	if p.Probe.Preview, err = w.facts.PreviewProbeConfig(ctx, pc, w.checker.Guard().Policy().Limits, a.Clock.Now()); err == nil {
		p.Probe.Outlook, err = w.facts.OutlookOfProbes(ctx, pc)
	}
	if errors.Is(err, guard.ErrNotKnown) {
		p.Probe.Unknown, err = err.Error(), nil
	}
	if p.Report.Allowed {
		w.facts.ApplyProbeConfig(pc)
	} else {
		p.Probe.Outlook.GivesBack = nil // the stored one stays
	}
	return err
}
