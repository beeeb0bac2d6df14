package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/manifest"
	"github.com/resourcestack/autohealer/internal/cli/report"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/outlier/detector"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/guard"
)

func readOutlierPolicy(op *v1alpha1.OutlierPolicy) (*outlier.Policy, error) {
	policy, err := outlier.NewPolicy(op)
	if err != nil {
		return nil, fmt.Errorf("read OutlierPolicy %s/%s: %w", op.Namespace, op.Name, err)
	}
	return policy, nil
}

// runTrace tells whom Envoy would have ejected for each OutlierPolicy, by their rules over the object alone.
func (a *App) runTrace(ctx context.Context, o *planOptions, documents []manifest.Document) error {
	trace, err := readTrace(o.trace)
	if err != nil {
		return fmt.Errorf("--trace: %w", err)
	}
	checker, err := check.New(check.Options{Options: guard.Options{Clock: a.Clock}, Namespace: *a.Config.Namespace})
	if err != nil {
		return err
	}
	simulations, ejections := 0, 0
	for _, d := range documents {
		if !check.Ours(d) || len(d.Problems) == 0 && d.Object["kind"] != "OutlierPolicy" {
			continue
		}
		r := checker.Document(ctx, d, nil)
		if !r.Allowed || r.Stored == nil {
			return a.refuse(d, r)
		}
		ejected, err := a.simulate(r, trace)
		if err != nil {
			return err
		}
		simulations, ejections = simulations+1, ejections+ejected
	}
	switch {
	case simulations == 0:
		return fmt.Errorf("--filename: there is no OutlierPolicy in %s", strings.Join(o.filenames, ", "))
	case ejections > 0:
		return exitStatus(exitFound)
	}
	return nil
}

// refuse tells why a policy would be refused.
func (a *App) refuse(d manifest.Document, r check.Report) error {
	for _, v := range r.Violations {
		a.tell(d.File, d.Line, true, fmt.Sprintf("%s: %s", v.Rule, v.Message))
	}
	return exitStatus(exitRefused)
}

func readTrace(name string) (detector.Trace, error) {
	file, err := os.Open(name)
	if err != nil {
		return detector.Trace{}, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	trace, err := detector.ReadTrace(file)
	if err != nil {
		return detector.Trace{}, fmt.Errorf("%s: %w", name, err)
	}
	return trace, nil
}

// simulate tells whom Envoy would have ejected for a policy, and gives how often.
func (a *App) simulate(r check.Report, trace detector.Trace) (ejections int, err error) {
	op, err := typed[v1alpha1.OutlierPolicy](r.Stored)
	if err != nil {
		return 0, err
	}
	policy, err := readOutlierPolicy(op)
	if err != nil {
		return 0, err
	}
	var events strings.Builder
	if policy.Detects() {
		for _, e := range detector.Simulate(policy.Settings, trace, nil) {
			at := e.At.String()
			if !trace.Began.IsZero() {
				at = trace.Began.Add(e.At).UTC().Format("15:04:05.000")
			}
			if e.Action == detector.Ejected {
				ejections++
			}
			fmt.Fprintf(&events, "  %12s  %s %s\n", at, report.Printable(e.Host), happened(e))
		}
	}
	name := report.Printable(strings.TrimPrefix(op.Namespace+"/"+op.Name, "/"))
	fmt.Fprintf(a.Out, "OutlierPolicy %s: %s of %s\n%s", name, sample.Count(ejections, "ejection"), sample.Count(len(trace.Hosts), "host"), events.String())
	return ejections, nil
}

// happened says what became of a host.
func happened(e detector.Event) string {
	why := map[detector.Cause]string{
		detector.ConsecutiveServerErrors: "consecutive 5xx", detector.ConsecutiveLocalOrigin: "consecutive failures of Envoy's own",
	}[e.Cause]
	switch e.Action {
	case detector.Ejected:
		return fmt.Sprintf("ejected for %s, time %d: %s", e.For, e.Times, why)
	case detector.Returned:
		return fmt.Sprintf("back after %s", e.For)
	case detector.Observed:
		return "counted, not ejected: " + why
	}
	return "spared, as many as may be are ejected: " + why
}
