// Package probeconfig measures probes of API servers: what thousands of probed targets cost, against the same requests of the standard
// library alone (begin at Probing), and how soon after the probe that decides the first scale reaches the API server (Protection).
package probeconfig

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/resourcestack/autohealer/bench/report"
	"github.com/resourcestack/autohealer/bench/testbed"
)

// Bench measures ProbeConfigs.
type Bench struct {
	*testbed.Bed
	// Targets are as many as the limit of open files allows at most.
	Targets  int
	ProbeFor time.Duration
}

// Probing measures what 10,000 targets cost that are probed from both sides every 10 seconds, so 20,000 connections and 2,000
// probes a second, against the same requests made by the standard library alone. Servers, Prober and reference are processes of
// their own; the control plane has nothing to do with it. Where every probe dials there are half as many targets: handshakes
// take more than two processors have, on both their sides.
func (b *Bench) Probing(ctx context.Context) (err error) {
	targets := fitting(b.Targets)
	b.Say("%d probed targets, two probes each every 10 s, for %s", targets, b.ProbeFor)
	servers := apiServers{}
	process, err := testbed.StartRole(ctx, serversRole, struct{}{}, &servers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, process.End()) }()
	for _, kept := range []struct {
		how            string
		every, targets int
		goal           float64
	}{{"connections kept, every 6th probe dials", 6, targets, 1.5}, {"every probe dials", 1, targets / 2, 0}} {
		load := load{apiServers: servers, Interval: 10 * time.Second, Duration: b.ProbeFor, FreshEvery: kept.every, Targets: kept.targets}
		var ours, bare cost
		if err := testbed.RunRole(ctx, proberRole, load, &ours); err != nil {
			return err
		}
		if err := testbed.RunRole(ctx, bareRole, load, &bare); err != nil {
			return err
		}
		b.reportProbing(kept.how, kept.goal, load, ours, bare)
	}
	return nil
}

// fitting is how many of so many targets a process may have both connections to at once, with some files to spare.
func fitting(targets int) int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return targets
	}
	const spare = 400
	return min(targets, int(min(files.Cur, 1<<30)-spare)/2)
}

func (b *Bench) reportProbing(how string, goal float64, load load, ours, bare cost) {
	perProbe := func(c cost) report.Series { return report.Series{c.CPU.Seconds() * 1e6 / float64(max(1, c.Requests))} }
	what := fmt.Sprintf("processor time of a probe, %d targets, %s", load.Targets, how)
	late, lateness := "runs that began more than 1 s late, "+how, fmt.Sprintf("%.2f%%", 100*ours.Late)
	if goal > 0 {
		b.Report.Ratio(what, "%.0f µs", perProbe(ours), perProbe(bare), report.AtMost(goal))
		b.Report.Checked(late, lateness, "< 5%", ours.Late < 0.05)
	} else {
		b.Report.Ratio(what, "%.0f µs", perProbe(ours), perProbe(bare), nil)
		b.Report.Value(late, lateness)
	}
	b.Report.Value("probes a second, and how many failed, "+how, fmt.Sprintf("%.0f, %d", float64(ours.Requests)/load.Duration.Seconds(), ours.Failures))
	if goal > 0 {
		b.Report.Checked("heap of a target between its runs, with both connections",
			fmt.Sprintf("%s (and %s of stacks)", report.KiB(ours.Heap), report.KiB(ours.Stacks)), "≤ 60 KiB", ours.Heap <= 60<<10)
	}
}
