package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/internal/domain/health"
)

const (
	// healthIdles is for how long nothing happens: each target is looked at at least once, since it is longer than syncPeriod.
	healthIdles = 20 * time.Second
	// mostHealthFlips in one direction is ten seconds of flipsPerSecond.
	mostHealthFlips = 200
	// missedHealthFlips in one direction happen while no manager runs.
	missedHealthFlips = 50
	healthPatience    = 5 * time.Minute
	// statusSilence is longer than a registration's status may be behind its targets.
	statusSilence = 11 * time.Second
	// targetSilence is longer than a restarted manager takes to look at all targets.
	targetSilence = 5 * time.Second
)

// healthFlips is how many targets turn False: below a fifth of them, at which the breaker opens.
func (b *bench) healthFlips() int { return min(mostHealthFlips, b.size.workers*3/20) }

// health measures the conditions of many Workers with three dependents each: writing the first, following flips, a restart and
// taking the conditions off, against a bare program that is told of the same, and sends the same patches without judging
// anything.
func (b *bench) health(ctx context.Context) error {
	b.say("health: %d Workers with 3 checks each, and %d with a shoot", b.size.workers, b.size.shoots)
	if b.pprof == "" {
		b.pprof = cluster.FreeAddress()
	}
	b.managerArgs = []string{"--probe-loopback"}
	defer func() { b.managerArgs = nil }()
	fleet, err := b.addHealthFleet(ctx)
	if err != nil {
		return err
	}
	if err := b.restarted(ctx); err != nil {
		return err
	}
	empty, err := b.liveMemory(ctx)
	if err != nil {
		return err
	}
	ours, bare := &healthRun{}, &healthRun{}
	if err := b.healthOurs(ctx, fleet, ours, empty); err != nil {
		return err
	}
	if err := b.withoutManager(ctx, func() error { return b.healthBare(ctx, fleet, bare) }); err != nil {
		return err
	}
	b.reportHealth(ours, bare)
	return nil
}

// healthRun are the figures of one program.
type healthRun struct {
	fill, removal            time.Duration
	filling                  usage
	unhealthy, healthy, asks []time.Duration
}

func (b *bench) healthOurs(ctx context.Context, fleet *healthFleet, run *healthRun, empty int) error {
	before, began := b.usage(), time.Now()
	registration, err := b.register(ctx, healthRegistration)
	if err != nil {
		return err
	}
	last, err := fleet.await(ctx, health.True, b.size.workers)
	if err != nil {
		return err
	}
	run.fill, run.filling = last.Sub(began), b.usage().since(before)
	if err := b.healthRest(ctx, targetSilence); err != nil { // it looks at what it has just written itself
		return err
	}
	if err := b.flipHealth(ctx, fleet, run); err != nil {
		return err
	}
	if err := b.healthIdle(ctx); err != nil {
		return err
	}
	if err := b.healthRestart(ctx, fleet); err != nil {
		return err
	}
	if err := b.healthMemory(ctx, empty); err != nil {
		return err
	}
	began = time.Now()
	if err := b.Client.Delete(ctx, registration); err != nil {
		return fmt.Errorf("delete a registration: %w", err)
	}
	if last, err = fleet.await(ctx, "", b.size.workers); err != nil {
		return err
	}
	run.removal = last.Sub(began)
	_, err = b.Kubectl(ctx, "wait", "--for=delete", "--timeout=60s", "healthcheckregistration/bench")
	return err
}

// flipHealth breaks a dependent of one target after the other, and then mends them. The time runs from the API server's answer
// until a watch shows the target's condition.
func (b *bench) flipHealth(ctx context.Context, fleet *healthFleet, run *healthRun) error {
	n := b.healthFlips()
	for _, healthy := range []bool{false, true} {
		answered, asks := make([]time.Time, n), make([]time.Duration, n)
		if err := paced(ctx, n, flipsPerSecond, func(ctx context.Context, i int) error {
			began := time.Now()
			err := fleet.turn(ctx, i, healthy)
			answered[i] = time.Now()
			asks[i] = answered[i].Sub(began)
			return err
		}); err != nil {
			return err
		}
		wanted, count := health.False, n
		if healthy {
			wanted, count = health.True, b.size.workers
		}
		if _, err := fleet.await(ctx, wanted, count); err != nil {
			return err
		}
		into := &run.unhealthy
		if healthy {
			into = &run.healthy
		}
		for i, at := range answered {
			*into = append(*into, max(0, fleet.changedAt(i).Sub(at)))
		}
		run.asks = append(run.asks, asks...)
	}
	return nil
}

// healthIdle counts what is asked of the API server while every target is looked at and nothing has changed.
func (b *bench) healthIdle(ctx context.Context) error {
	if err := b.healthRest(ctx, statusSilence); err != nil {
		return err
	}
	before, err := b.healthRequests(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, healthIdles); err != nil {
		return err
	}
	after, err := b.healthRequests(ctx)
	if err != nil {
		return err
	}
	reads, writes := after.reads-before.reads, after.writes-before.writes
	b.report.absolute(row{what: fmt.Sprintf("health: %d targets with 3 checks and no news for %s, reads and writes of targets, dependents and registrations", b.size.workers, healthIdles),
		ours: fmt.Sprintf("%d, %d", reads, writes), goal: "0, 0", reached: reads+writes == 0})
	return nil
}

// healthRestart has dependents break and mend while no manager runs.
func (b *bench) healthRestart(ctx context.Context, fleet *healthFleet) error {
	n := min(missedHealthFlips, b.size.workers/20)
	turn := func(from, to int, healthy bool) error {
		return each(ctx, to-from, func(ctx context.Context, i int) error { return fleet.turn(ctx, from+i, healthy) })
	}
	if err := turn(0, n, false); err != nil {
		return err
	}
	if _, err := fleet.await(ctx, health.False, n); err != nil {
		return err
	}
	var before healthRequests
	var began time.Time
	if err := b.withoutManager(ctx, func() (err error) {
		if err = turn(0, n, true); err != nil {
			return err
		}
		if err = turn(n, 2*n, false); err != nil {
			return err
		}
		before, err = b.healthRequests(ctx)
		began = time.Now()
		return err
	}); err != nil {
		return err
	}
	ready := time.Since(began)
	converged, err := fleet.awaitAll(ctx, func(i int, s health.Status) bool { return (s == health.False) == (i >= n && i < 2*n) })
	if err != nil {
		return err
	}
	if err := b.healthRest(ctx, targetSilence); err != nil {
		return err
	}
	after, err := b.healthRequests(ctx)
	if err != nil {
		return err
	}
	redundant := after.toTargets - before.toTargets - 2*n
	b.report.absolute(row{what: fmt.Sprintf("health: restart with %d targets: ready, and converged with %d changes missed", b.size.workers, 2*n), ours: seconds(ready) + ", " + seconds(converged.Sub(began))})
	b.report.absolute(row{what: "health: restart, redundant writes to targets", ours: strconv.Itoa(redundant), goal: "0", reached: redundant == 0})
	if err := turn(n, 2*n, true); err != nil {
		return err
	}
	_, err = fleet.await(ctx, health.True, b.size.workers)
	return err
}

func (b *bench) reportHealth(ours, bare *healthRun) {
	both := func(of []time.Duration) string {
		return milliseconds(quantile(of, .5)) + ", " + milliseconds(quantile(of, .99))
	}
	all := slices.Concat(ours.unhealthy, ours.healthy)
	p50, p99 := quantile(all, .5), quantile(all, .99)
	b.report.absolute(row{what: fmt.Sprintf("health: %d flips/s, flip of a dependent acknowledged → condition on a watch, %d targets with 3 checks, p50", flipsPerSecond, b.size.workers),
		ours: milliseconds(p50), goal: "< 50 ms", reached: p50 < 50*time.Millisecond})
	b.report.absolute(row{what: "the same, p99", ours: milliseconds(p99), goal: "< 300 ms", reached: p99 < 300*time.Millisecond})
	b.report.absolute(row{what: "the same of a bare program that watches and patches, p50 and p99", ours: both(slices.Concat(bare.unhealthy, bare.healthy))})
	b.report.absolute(row{what: "ours that turn False, before which all is read live; the bare program's, which reads nothing", ours: both(ours.unhealthy) + "; " + both(bare.unhealthy)})
	b.report.absolute(row{what: "for comparison, the flips' own requests; the bare program's", ours: both(ours.asks) + "; " + both(bare.asks)})
	for _, r := range []struct {
		what       string
		ours, bare time.Duration
	}{{"first conditions of %d targets, a second, against a bare loop that sends the same two patches for each", ours.fill, bare.fill},
		{"conditions of %d targets taken off when the registration is deleted, a second, against a bare loop", ours.removal, bare.removal}} {
		n := float64(b.size.workers)
		own, reference := series{n / r.ours.Seconds()}, series{n / r.bare.Seconds()}
		b.report.ratio(row{what: "health: " + fmt.Sprintf(r.what, b.size.workers), ours: own.text("%.0f"), reference: reference.text("%.0f"), ratio: own.over(reference)})
	}
	b.report.cost("health: the first condition of a target, ours", ours.filling, float64(b.size.workers))
	b.report.cost("the same, bare loop", bare.filling, float64(b.size.workers))
}
