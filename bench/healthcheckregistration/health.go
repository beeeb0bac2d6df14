// Package healthcheckregistration measures the conditions of many Workers with three dependents each: writing the first, following flips
// of dependents, rest, a restart, and taking the conditions off, against a bare program that watches the same and sends the same patches
// without judging anything.
//
// Begin at Health. Nothing plays the Workers and their dependents; their shoots are this one control plane.
package healthcheckregistration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/resourcestack/autohealer/bench/report"
	"github.com/resourcestack/autohealer/bench/testbed"
	"github.com/resourcestack/autohealer/internal/domain/health"
)

const (
	// idleFor is how long nothing happens: each target is looked at at least once, since it is longer than syncPeriod.
	idleFor        = 20 * time.Second
	flipsPerSecond = 20
	// mostFlips in one direction is ten seconds of flipsPerSecond.
	mostFlips = 200
	// missedFlips in one direction happen while no manager runs.
	missedFlips = 50
	// statusSilence is longer than a registration's status may be behind its targets.
	statusSilence = 11 * time.Second
	// targetSilence is longer than a restarted manager takes to look at all targets.
	targetSilence = 5 * time.Second
)

// Bench measures HealthCheckRegistrations.
type Bench struct {
	*testbed.Bed
	// Workers have no shoot; Shoots are how many others have one.
	Workers, Shoots int
}

// flips is how many targets turn False: below a fifth of them, at which the breaker opens.
func (b *Bench) flips() int { return min(mostFlips, b.Workers*3/20) }

// Health measures a manager, and then the bare program.
func (b *Bench) Health(ctx context.Context) error {
	b.Say("health: %d Workers with 3 checks each, and %d with a shoot", b.Workers, b.Shoots)
	workers, err := b.addWorkers(ctx)
	if err != nil {
		return err
	}
	empty, err := b.FreshHeap(ctx, "--probe-loopback")
	if err != nil {
		return err
	}
	ours, bare := &figures{}, &figures{}
	if err := b.measureManager(ctx, workers, ours, empty); err != nil {
		return err
	}
	if err := b.WithoutManager(ctx, func() error { return b.measureBare(ctx, workers, bare) }); err != nil {
		return err
	}
	b.reportHealth(ours, bare)
	return nil
}

// figures are those of one program.
type figures struct {
	fill, removal   time.Duration
	filling         report.Usage
	latencies, asks map[bool][]time.Duration // by whether dependents turned healthy
}

func (b *Bench) measureManager(ctx context.Context, workers *workers, into *figures, empty int) error {
	before, began := b.Usage(), time.Now()
	registration, err := b.register(ctx, workersRegistration)
	if err != nil {
		return err
	}
	last, err := workers.Await(ctx, health.True, b.Workers)
	if err != nil {
		return err
	}
	into.fill, into.filling = last.Sub(began), b.Usage().Since(before)
	for _, step := range []func() error{
		func() error { return b.awaitNoRequests(ctx, targetSilence) }, // it looks at what it has just written itself
		func() error { return b.flip(ctx, workers, into) },
		func() error { return b.idle(ctx) },
		func() error { return b.restart(ctx, workers) },
		func() error { return b.memory(ctx, empty) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	began = time.Now()
	if err := b.Client.Delete(ctx, registration); err != nil {
		return fmt.Errorf("delete a registration: %w", err)
	}
	if last, err = workers.Await(ctx, "", b.Workers); err != nil {
		return err
	}
	into.removal = last.Sub(began)
	_, err = b.Kubectl(ctx, "wait", "--for=delete", "--timeout=60s", "healthcheckregistration/bench")
	return err
}

// flip breaks a dependent of one target after the other, and then mends them. The time runs from the API server's answer until a watch
// shows the target's condition.
func (b *Bench) flip(ctx context.Context, workers *workers, into *figures) error {
	n := b.flips()
	into.latencies, into.asks = map[bool][]time.Duration{}, map[bool][]time.Duration{}
	for _, healthy := range []bool{false, true} {
		answered, took, err := testbed.Timed(ctx, n, flipsPerSecond, func(ctx context.Context, i int) error { return workers.setAvailable(ctx, i, healthy) })
		if err != nil {
			return err
		}
		wanted, count := health.False, n
		if healthy {
			wanted, count = health.True, b.Workers
		}
		if _, err := workers.Await(ctx, wanted, count); err != nil {
			return err
		}
		into.asks[healthy] = took
		for i, at := range answered {
			into.latencies[healthy] = append(into.latencies[healthy], max(0, workers.Get(workerName(i)).At.Sub(at)))
		}
	}
	return nil
}

// idle counts what is asked of the API server while every target is looked at and nothing has changed.
func (b *Bench) idle(ctx context.Context) error {
	if err := b.awaitNoRequests(ctx, statusSilence); err != nil {
		return err
	}
	before, err := b.requests(ctx)
	if err != nil {
		return err
	}
	if err := testbed.Pause(ctx, idleFor); err != nil {
		return err
	}
	after, err := b.requests(ctx)
	if err != nil {
		return err
	}
	reads, writes := after.reads-before.reads, after.writes-before.writes
	b.Report.Checked(fmt.Sprintf("health: %d targets with 3 checks and no news for %s, reads and writes of targets, dependents and registrations", b.Workers, idleFor),
		fmt.Sprintf("%d, %d", reads, writes), "0, 0", reads+writes == 0)
	return nil
}

// restart has dependents break and mend while no manager runs.
func (b *Bench) restart(ctx context.Context, workers *workers) error {
	n := min(missedFlips, b.Workers/20)
	setAvailable := func(from, to int, healthy bool) error {
		return testbed.Each(ctx, to-from, func(ctx context.Context, i int) error { return workers.setAvailable(ctx, from+i, healthy) })
	}
	if err := setAvailable(0, n, false); err != nil {
		return err
	}
	if _, err := workers.Await(ctx, health.False, n); err != nil {
		return err
	}
	var before requests
	var began time.Time
	if err := b.WithoutManager(ctx, func() (err error) {
		if err = setAvailable(0, n, true); err != nil {
			return err
		}
		if err = setAvailable(n, 2*n, false); err != nil {
			return err
		}
		before, err = b.requests(ctx)
		began = time.Now()
		return err
	}); err != nil {
		return err
	}
	ready := time.Since(began)
	converged, err := workers.AwaitEach(ctx, b.Workers, workerName, func(i int, s health.Status) bool { return (s == health.False) == (i >= n && i < 2*n) })
	if err != nil {
		return err
	}
	if err := b.awaitNoRequests(ctx, targetSilence); err != nil {
		return err
	}
	after, err := b.requests(ctx)
	if err != nil {
		return err
	}
	redundant := after.toTargets - before.toTargets - 2*n
	b.Report.Value(fmt.Sprintf("health: restart with %d targets: ready, and converged with %d changes missed", b.Workers, 2*n), report.Seconds(ready)+", "+report.Seconds(converged.Sub(began)))
	b.Report.Checked("health: restart, redundant writes to targets", strconv.Itoa(redundant), "0", redundant == 0)
	if err := setAvailable(n, 2*n, true); err != nil {
		return err
	}
	_, err = workers.Await(ctx, health.True, b.Workers)
	return err
}

func (b *Bench) reportHealth(ours, bare *figures) {
	all := func(of map[bool][]time.Duration) []time.Duration { return slices.Concat(of[false], of[true]) }
	p50, p99 := report.Quantile(all(ours.latencies), .5), report.Quantile(all(ours.latencies), .99)
	b.Report.Checked(fmt.Sprintf("health: %d flips/s, flip of a dependent acknowledged → condition on a watch, %d targets with 3 checks, p50", flipsPerSecond, b.Workers),
		report.Milliseconds(p50), "< 50 ms", p50 < 50*time.Millisecond)
	b.Report.Checked("the same, p99", report.Milliseconds(p99), "< 300 ms", p99 < 300*time.Millisecond)
	b.Report.Value("the same of a bare program that watches and patches, p50 and p99", report.P50P99(all(bare.latencies)))
	b.Report.Value("ours that turn False, before which all is read live; the bare program's, which reads nothing",
		report.P50P99(ours.latencies[false])+"; "+report.P50P99(bare.latencies[false]))
	b.Report.Value("for comparison, the flips' own requests; the bare program's", report.P50P99(all(ours.asks))+"; "+report.P50P99(all(bare.asks)))
	perSecond := func(took time.Duration) report.Series { return report.Series{float64(b.Workers) / took.Seconds()} }
	b.Report.Ratio(fmt.Sprintf("health: first conditions of %d targets, a second, against a bare loop that sends the same two patches for each", b.Workers),
		"%.0f", perSecond(ours.fill), perSecond(bare.fill), nil)
	b.Report.Ratio(fmt.Sprintf("health: conditions of %d targets taken off when the registration is deleted, a second, against a bare loop", b.Workers),
		"%.0f", perSecond(ours.removal), perSecond(bare.removal), nil)
	b.Report.Cost("health: the first condition of a target, ours", ours.filling, float64(b.Workers))
	b.Report.Cost("the same, bare loop", bare.filling, float64(b.Workers))
}
